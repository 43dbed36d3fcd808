"""Names of connections that read verdicts but keep the last micro-batch untaken, as Spark does.

Every user of Redis may name its connections. So the name ends with a proof that its owner may read
the namespace, or a user of another one could hide that no program takes the verdicts.
"""

import hashlib
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import redis

from acker_redis.protocol.status import Status

_PREFIX = "acker-outcomes"
LONGEST_IDLE = 60
"""Maximum seconds since a reader's last command; longer, it does not count as waiting."""


def reader_name(namespace: str, source: str, salt: str) -> str:
    """Return the name of the connection that reads the verdicts of a source.

    It reveals nothing of the salt of the namespace.

    >>> reader_name("orders", "shop", "00" * 16)
    'acker-outcomes:orders:shop:b6f4913c586707a3'
    """
    text = f"reader:{namespace}:{source}:{salt}"
    return f"{_PREFIX}:{namespace}:{source}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def waiting_readers(clients: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """Return the names of the readers in the rows of CLIENT LIST that are not idle.

    >>> sorted(waiting_readers([{"name": "acker-outcomes:orders:shop:0f", "idle": "0"}]))
    ['acker-outcomes:orders:shop:0f']
    """
    return frozenset(
        client["name"]
        for client in clients
        if client.get("name", "").startswith(f"{_PREFIX}:")
        and int(client.get("idle", 0)) <= LONGEST_IDLE
    )


def kept_by(readers: frozenset[str], status: Status) -> frozenset[str]:
    """Return the sources of a namespace whose verdicts one of these readers keeps."""
    salt = status.shards[0].salt.reveal()
    return frozenset(
        source
        for source in status.backlog
        if readers and reader_name(status.namespace, source, salt) in readers
    )


def list_readers(client: Any) -> frozenset[str]:
    """Return the waiting readers that a redis-py client without asyncio can list.

    Empty if its user may not list the clients.
    """
    try:
        if isinstance(client, redis.RedisCluster):
            nodes = map(client.get_redis_connection, client.get_primaries())  # type: ignore[no-untyped-call]
            rows = list(chain.from_iterable(node.client_list() for node in nodes))
        else:
            rows = client.client_list()
    except redis.exceptions.RedisError:
        return frozenset()
    return waiting_readers(rows)
