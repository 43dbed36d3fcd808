"""List the namespaces of a Redis."""

import math
from collections.abc import Iterable

from acker_redis.errors import ConfigError
from acker_redis.flows.steps import Flow, ask_until
from acker_redis.protocol.keys import NAMESPACES, check_name


def names(deadline: float = -math.inf) -> Flow[list[str]]:
    """Return the names of all namespaces, sorted.

    A name may belong to a namespace that is being created or dropped. Members of the set that are
    no valid names are left out. While Redis does not answer, the command is retried until
    ``deadline`` on the ``time.monotonic`` clock; by default it is not retried.
    """
    return valid((yield from ask_until(("SMEMBERS", NAMESPACES), deadline)))


def valid(members: Iterable[bytes]) -> list[str]:
    """Return the valid names among the members of the set of namespaces, sorted."""
    return sorted(filter(_is_name, (member.decode(errors="replace") for member in members)))


def _is_name(name: str) -> bool:
    try:
        return bool(check_name("namespace", name))
    except ConfigError:
        return False
