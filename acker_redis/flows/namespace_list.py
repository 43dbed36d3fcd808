"""List the namespaces of a Redis."""

import difflib
import math
from collections.abc import Iterable

from acker_redis.errors import ConfigError
from acker_redis.flows.steps import Flow, ask_until
from acker_redis.protocol.keys import NAMESPACES, check_name

MAX_NAMED = 8
"""Namespaces that an error names."""


def read_names(deadline: float = -math.inf) -> Flow[list[str]]:
    """Return the names of all namespaces, sorted.

    A name may belong to a namespace that is being created or dropped. Members of the set that are
    no valid names are left out. While Redis does not answer, the command is retried until
    ``deadline`` on the ``time.monotonic`` clock; by default it is not retried.
    """
    return valid_names((yield from ask_until(("SMEMBERS", NAMESPACES), deadline)))


def among(there: list[str], name: str) -> str:
    """Return in words which namespaces a database has, those with a similar name first.

    >>> among(["bills", "orders"], "order")
    'this database has the namespaces orders, bills'
    """
    others = [each for each in there if each != name]
    if not others:
        return "this database has no other namespace: check the host and the database of the URL"
    similar = difflib.get_close_matches(name, others, MAX_NAMED)
    named = [*similar, *(each for each in others if each not in similar)][:MAX_NAMED]
    more = f" and {len(others) - MAX_NAMED:,} more" if len(others) > MAX_NAMED else ""
    return f"this database has the namespaces {', '.join(named)}{more}"


def valid_names(members: Iterable[bytes]) -> list[str]:
    """Return the valid names among the members of the set of namespaces, sorted."""
    return sorted(filter(_is_name, (member.decode(errors="replace") for member in members)))


def _is_name(name: str) -> bool:
    try:
        return bool(check_name("namespace", name))
    except ConfigError:
        return False
