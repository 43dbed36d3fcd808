"""Names of connections that read verdicts but keep the last micro-batch untaken, as Spark does."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import redis

_PREFIX = "acker-outcomes"
LONGEST_IDLE = 60
"""Maximum seconds since a reader's last command; longer, it does not count as waiting."""


def reader_name(namespace: str, source: str) -> str:
    """Return the name of the connection that reads the verdicts of a source.

    >>> reader_name("orders", "shop")
    'acker-outcomes:orders:shop'
    """
    return f"{_PREFIX}:{namespace}:{source}"


def waiting_readers(clients: Iterable[Mapping[str, str]]) -> set[tuple[str, str]]:
    """Return namespace and source of each reader in the rows of CLIENT LIST that is not idle.

    >>> waiting_readers([{"name": "acker-outcomes:orders:shop", "idle": "0"}])
    {('orders', 'shop')}
    """
    found = set()
    for client in clients:
        prefix, _, rest = client.get("name", "").partition(":")
        namespace, _, source = rest.partition(":")
        if prefix == _PREFIX and source and int(client.get("idle", 0)) <= LONGEST_IDLE:
            found.add((namespace, source))
    return found


def kept_by(client: Any, namespace: str) -> frozenset[str]:
    """Return the sources of a namespace whose verdicts a waiting reader keeps.

    ``client`` is a redis-py client without asyncio. Empty if its user may not list the clients.
    """
    try:
        if isinstance(client, redis.RedisCluster):
            nodes = map(client.get_redis_connection, client.get_primaries())  # type: ignore[no-untyped-call]
            rows = list(chain.from_iterable(node.client_list() for node in nodes))
        else:
            rows = client.client_list()
    except redis.exceptions.RedisError:
        return frozenset()
    return frozenset(task for name, task in waiting_readers(rows) if name == namespace)
