"""Clients of redis-py: which of them can serve the protocol, and the nodes that they know."""

from typing import Any

import redis

from acker_redis.errors import ConfigError


def check_client(client: Any) -> None:
    """Raise ConfigError unless the client is one of redis-py, returns bytes and reads masters."""
    if not hasattr(client, "get_encoder"):
        raise ConfigError(
            f"the client must be one of redis-py, not {type(client).__name__}; "
            "for a URL use from_url()"
        )
    if client.get_encoder().decode_responses:
        raise ConfigError("the client must return bytes: create it with decode_responses=False")
    check_reads_masters(client)


def check_reads_masters(client: Any) -> None:
    """Raise ConfigError for a client of redis-py that sends reads to replicas.

    Many reads decide a write: the number of shards, the members of a group, the fences of a durable
    lane. A replica may answer with an old state, so that a group is never reported, for example.
    """
    for option in ("read_from_replicas", "load_balancing_strategy"):
        if given := getattr(client, option, None):
            raise ConfigError(
                "the client must read from masters, because reads decide writes: create it without "
                f"{option}={given!r}"
            )
    if not getattr(getattr(client, "connection_pool", None), "is_master", True):
        raise ConfigError(
            "the client must read from the master, because reads decide writes: create it with "
            "Sentinel.master_for(), not slave_for()"
        )


def node_of(client: Any, key: Any) -> Any:
    """Return the master of a key, as far as a cluster's client knows it.

    None if the client has only one server, or if no node serves the key at the moment.
    """
    find = getattr(client, "get_node_from_key", None)
    if find is None:
        return None
    try:
        return find(key)
    except redis.exceptions.RedisClusterException:
        return None
