"""Which namespaces a Redis has."""

from acker_redis.connection import Connection
from acker_redis.keys import NAMESPACES


def names(connection: Connection) -> list[str]:
    """Names of all namespaces, sorted; one may be in the course of being created or dropped."""
    return sorted(name.decode() for name in connection.command("SMEMBERS", NAMESPACES))
