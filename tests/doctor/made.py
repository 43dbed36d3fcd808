"""Facts of a healthy server and namespace, with changes that a test gives."""

from dataclasses import replace
from typing import Any

from acker_redis.doctor.facts import (
    ClockSample,
    ClusterFacts,
    ClusterNode,
    Missing,
    NamespaceFacts,
    NodeFacts,
    ShardFacts,
)
from acker_redis.protocol.commands import COUNTERS, ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys

DENIED = Missing("CONFIG GET", "NOPERM this user has no permissions", denied=True)
UNKNOWN = Missing("CONFIG GET", "unknown command 'CONFIG'", denied=False)
NOW = 1_700_000_000
TICK_MS = 10_000

INFO = {
    "redis_version": "7.0.15",
    "redis_mode": "standalone",
    "maxmemory_policy": "noeviction",
    "maxmemory": 1000,
    "used_memory": 500,
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "latest_fork_usec": 900,
    "role": "master",
    "connected_slaves": 0,
    "maxclients": 10,
}
CONFIG = {
    "appendfsync": "everysec",
    "save": "",
    "bind": "127.0.0.1 -::1",
    "protected-mode": "yes",
    "disable-thp": "yes",
    "hash-max-listpack-entries": "64",
    "hash-max-listpack-value": "64",
    "min-replicas-to-write": "0",
    "min-replicas-max-lag": "10",
}


def node(info: Any = None, config: Any = None, **facts: Any) -> NodeFacts:
    """Return a healthy server with the given changes; None removes a field."""
    good: dict[str, Any] = {
        "name": "h:1",
        "addresses": ("127.0.0.1",),
        "tls": False,
        "socket": False,
        "clock": sample(),
        "info": _changed(INFO, info),
        "config": _changed(CONFIG, config),
        "nopass": True,
        "clients": (),
        "slow": (),
        "events": {},
    }
    return NodeFacts(**{**good, **facts})


def _changed(good: dict[str, Any], given: Any) -> Any:
    if isinstance(given, Missing):
        return given
    return {name: value for name, value in {**good, **(given or {})}.items() if value is not None}


def sample(node: float = NOW, here: float = NOW, steady: float = 0, doubt: float = 0) -> Any:
    """Return a node's time and this machine's."""
    return ClockSample(node, here, steady, doubt)


def cluster_node(name: str, *slots: tuple[int, int], of: str = "-", **more: Any) -> ClusterNode:
    """Return a master, or a replica ``of`` one; its id is its name."""
    flags = frozenset(("master",)) if of == "-" else frozenset(("slave",))
    good = ClusterNode(name, name, flags, of, connected=True, slots=slots)
    return replace(good, **more)


def cluster(*nodes: ClusterNode, **more: Any) -> ClusterFacts:
    """Return a cluster whose nodes report the state ok."""
    states = {each.name: {"cluster_state": "ok"} for each in nodes}
    return replace(ClusterFacts(states, nodes, (), ()), **more)


def status(shard: int = 0, config: AckerConfig | None = None, **more: Any) -> ShardStatus:
    """Return an idle shard; ``counters`` holds those that are not 0."""
    counters = dict.fromkeys(COUNTERS, 0) | more.pop("counters", {})
    good: dict[str, Any] = {
        "config": config or AckerConfig(tick_ms=TICK_MS),
        "now_ms": NOW * 1000,
        "pending": (0, 0, 0),
        "in_blocks": (0, 0, 0),
        "expiring": 0,
        "fences": 0,
        "ticked_ms": NOW * 1000,
        "backlog": {},
    }
    return ShardStatus(shard=shard, counters=counters, **{**good, **more})


def namespace(
    *shards: ShardStatus, lanes: int = 0, durable: int = 0, **more: Any
) -> NamespaceFacts:
    """Return a namespace of these shards."""
    made = tuple(
        ShardFacts(
            ShardKeys("orders", each.shard),
            {"schema": "2"},
            each,
            "",
            dropping=False,
            lanes=lanes,
            durable=durable,
        )
        for each in shards or (status(),)
    )
    good = NamespaceFacts("orders", listed=True, shards=made, waiting=(), unseen=0)
    return replace(good, **more)
