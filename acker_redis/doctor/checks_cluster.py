"""Checks of a cluster, and of the spread of namespaces over its masters. No I/O."""

from collections.abc import Iterator, Sequence

from redis.crc import key_slot

from acker_redis.doctor.facts import ClusterFacts, Missing, NamespaceFacts, NodeFacts
from acker_redis.doctor.finding import Finding, error, ok, warning
from acker_redis.protocol.keys import ShardKeys
from acker_redis.terminal import count_of

SLOTS = 16384
_SHOWN = 5
"""Maximum number of slots that a finding names."""


def check(cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Run all checks of the cluster itself."""
    yield state(cluster, nodes)
    yield slots(cluster)
    yield replicas(cluster)


def state(cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> Finding:
    """Check that every node is connected and reports the state ok."""
    down = [name for name, info in cluster.states.items() if info.get("cluster_state") != "ok"]
    failed = [
        f"{node.name} ({'/'.join(sorted(node.flags & _BAD)) or 'link down'})"
        for node in cluster.nodes
        if node.flags & _BAD or not (node.connected or "myself" in node.flags)
    ]
    if down or cluster.silent or failed:
        said = [f"cluster_state is not ok on {', '.join(down)}"] if down else []
        said += [f"no answer from {', '.join(cluster.silent)}"] if cluster.silent else []
        said += [f"failed or disconnected: {', '.join(failed)}"] if failed else []
        return error(
            "cluster-state",
            "; ".join(said),
            "restart or reconnect these nodes, then: redis-cli --cluster check HOST:PORT",
        )
    if cluster.refused and not cluster.states:
        return cluster.refused.finding("cluster-state")
    configs = [node.config for node in nodes if not isinstance(node.config, Missing)]
    if any(config.get("cluster-allow-reads-when-down") == "yes" for config in configs):
        return warning(
            "cluster-state",
            "ok, but cluster-allow-reads-when-down is yes: a partitioned node returns stale state",
            "redis-cli --cluster call HOST:PORT CONFIG SET cluster-allow-reads-when-down no",
        )
    full = any(config.get("cluster-require-full-coverage") == "yes" for config in configs)
    more = "; a single slot without a node stops all shards (cluster-require-full-coverage)"
    return ok(
        "cluster-state", f"ok on {count_of(len(cluster.states), 'node')}{more if full else ''}"
    )


def slots(cluster: ClusterFacts) -> Finding:
    """Check that each slot has a master, and that no slot migrates."""
    have = [0] * SLOTS
    for node in cluster.masters:
        for first, last in node.slots:
            for slot in range(first, last + 1):
                have[slot] += 1
    free = [slot for slot, count in enumerate(have) if not count]
    if free:
        return error(
            "cluster-slots",
            f"{len(free)} of {SLOTS} slots have no node: {_some(free)}",
            "redis-cli --cluster fix HOST:PORT",
        )
    if cluster.moving:
        return warning(
            "cluster-slots",
            f"{len(cluster.moving)} slots migrate: {_some(cluster.moving)}; calls on them wait",
            "wait for the migration; if it was interrupted: redis-cli --cluster fix HOST:PORT",
        )
    return ok("cluster-slots", f"all {SLOTS} slots, on {len(cluster.masters)} masters")


def replicas(cluster: ClusterFacts) -> Finding:
    """Check that each master has a replica."""
    with_one = {node.master_id for node in cluster.nodes if "slave" in node.flags}
    alone = [node.name for node in cluster.masters if node.id not in with_one]
    if alone:
        return warning(
            "cluster-replicas",
            f"{len(alone)} of {len(cluster.masters)} masters have no replica: {', '.join(alone)}; "
            "if one of them fails, its shards are unavailable until it is back",
            "redis-cli --cluster add-node NEW_HOST:PORT HOST:PORT --cluster-slave",
        )
    return ok("cluster-replicas", f"each of the {len(cluster.masters)} masters has a replica")


def spread(cluster: ClusterFacts, namespace: NamespaceFacts) -> Finding:
    """Check that several shards are on several masters."""
    places: dict[str, list[int]] = {}
    for shard in namespace.shards:
        node = cluster.owner(shard_slot(shard.keys))
        places.setdefault(node.name if node else "no node", []).append(shard.keys.shard)
    text = "; ".join(f"{name}: {_some(numbers)}" for name, numbers in sorted(places.items()))
    count = len(namespace.shards)
    if len(places) == 1 and count > 1 and len(cluster.masters) > 1:
        return warning(
            "cluster-spread",
            f"all {count} shards are on one of {len(cluster.masters)} masters ({text})",
            f"use more shards: acker-redis reshard {namespace.name} --shards {_enough(cluster)}; "
            "or migrate the slot of a shard: redis-cli --cluster reshard HOST:PORT",
            namespace.name,
        )
    return ok("cluster-spread", text, namespace.name)


def shard_slot(keys: ShardKeys) -> int:
    """Return the slot of a shard, which is the slot of all its keys."""
    return int(key_slot(keys.prefix.encode()))


_BAD = frozenset(("fail", "fail?", "handshake", "noaddr"))


def _enough(cluster: ClusterFacts) -> int:
    """Return the shards with which every master probably gets one: four per master."""
    shards = 1
    while shards < 4 * len(cluster.masters):
        shards *= 2
    return shards


def _some(numbers: Sequence[int]) -> str:
    more = ", .." if len(numbers) > _SHOWN else ""
    return ", ".join(map(str, numbers[:_SHOWN])) + more
