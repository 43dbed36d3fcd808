"""Which namespaces a Redis has."""

from acker_redis.connection import Connection
from acker_redis.errors import ConfigError
from acker_redis.keys import NAMESPACES, check_name


def names(connection: Connection) -> list[str]:
    """Names of all namespaces, sorted; one may be in the course of being created or dropped.

    What somebody else has put there, and is no name, is passed over.
    """
    return sorted(filter(_is_name, map(_text, connection.command("SMEMBERS", NAMESPACES))))


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _is_name(name: str) -> bool:
    try:
        return bool(check_name("namespace", name))
    except ConfigError:
        return False
