"""Checks of a cluster, and of how the namespaces lie on it. No I/O."""

from collections.abc import Iterator, Sequence

from redis.crc import key_slot

from acker_redis.doctor.facts import ClusterFacts, Missing, NamespaceFacts, NodeFacts
from acker_redis.doctor.finding import Finding, error, ok, warning
from acker_redis.protocol.keys import ShardKeys

SLOTS = 16384
_SHOWN = 5
"""Slots that are named at most."""


def check(cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """All checks of the cluster itself."""
    yield state(cluster, nodes)
    yield slots(cluster)
    yield replicas(cluster)


def state(cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> Finding:
    """Up, by what every node says, and all of them there."""
    down = [name for name, info in cluster.states.items() if info.get("cluster_state") != "ok"]
    gone = [
        f"{node.name} ({'/'.join(sorted(node.flags & _BAD)) or 'link down'})"
        for node in cluster.nodes
        if node.flags & _BAD or not (node.connected or "myself" in node.flags)
    ]
    if down or cluster.silent or gone:
        said = [f"cluster_state is not ok by {', '.join(down)}"] if down else []
        said += [f"no answer from {', '.join(cluster.silent)}"] if cluster.silent else []
        said += [f"not in order: {', '.join(gone)}"] if gone else []
        return error(
            "cluster-state",
            "; ".join(said),
            "bring the nodes back, then: redis-cli --cluster check HOST:PORT",
        )
    if cluster.refused and not cluster.states:
        return cluster.refused.finding("cluster-state")
    configs = [node.config for node in nodes if not isinstance(node.config, Missing)]
    if any(config.get("cluster-allow-reads-when-down") == "yes" for config in configs):
        return warning(
            "cluster-state",
            "ok, but cluster-allow-reads-when-down is yes: a node that was cut off shows old state",
            "redis-cli --cluster call HOST:PORT CONFIG SET cluster-allow-reads-when-down no",
        )
    full = any(config.get("cluster-require-full-coverage") == "yes" for config in configs)
    more = "; one slot without a node stops all shards (cluster-require-full-coverage)"
    return ok(
        "cluster-state", f"ok by all {len(cluster.states)} that were asked{more if full else ''}"
    )


def slots(cluster: ClusterFacts) -> Finding:
    """Each has a master, and none is half way to another."""
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
            f"{len(cluster.moving)} slots are moving: {_some(cluster.moving)}; calls on them wait",
            "let the move end; if nobody moves them any more: redis-cli --cluster fix HOST:PORT",
        )
    return ok("cluster-slots", f"all {SLOTS}, on {len(cluster.masters)} masters")


def replicas(cluster: ClusterFacts) -> Finding:
    """One at least for each master."""
    with_one = {node.master_id for node in cluster.nodes if "slave" in node.flags}
    alone = [node.name for node in cluster.masters if node.id not in with_one]
    if alone:
        return warning(
            "cluster-replicas",
            f"{len(alone)} of {len(cluster.masters)} masters have no replica: {', '.join(alone)}; "
            "if one of them dies, its shards stand still until it is back",
            "redis-cli --cluster add-node NEW_HOST:PORT HOST:PORT --cluster-slave",
        )
    return ok("cluster-replicas", f"each of the {len(cluster.masters)} masters has one")


def spread(cluster: ClusterFacts, namespace: NamespaceFacts) -> Finding:
    """Several shards lie on several masters."""
    places: dict[str, list[int]] = {}
    for shard in namespace.shards:
        node = cluster.owner(shard_slot(shard.keys))
        places.setdefault(node.name if node else "no node", []).append(shard.keys.shard)
    text = "; ".join(f"{name}: {_some(numbers)}" for name, numbers in sorted(places.items()))
    count = len(namespace.shards)
    if len(places) == 1 and count > 1 and len(cluster.masters) > 1:
        return warning(
            "cluster-spread",
            f"all {count} shards lie on one of {len(cluster.masters)} masters ({text})",
            f"take more shards: acker-redis reshard {namespace.name} --shards {_enough(cluster)}; "
            "or move the slot of a shard: redis-cli --cluster reshard HOST:PORT",
            namespace.name,
        )
    return ok("cluster-spread", text, namespace.name)


def shard_slot(keys: ShardKeys) -> int:
    """The slot of a shard: that of all of its keys."""
    return int(key_slot(keys.prefix.encode()))


_BAD = frozenset(("fail", "fail?", "handshake", "noaddr"))


def _enough(cluster: ClusterFacts) -> int:
    """Shards with which every master gets some, most likely: four each."""
    shards = 1
    while shards < 4 * len(cluster.masters):
        shards *= 2
    return shards


def _some(numbers: Sequence[int]) -> str:
    more = ", .." if len(numbers) > _SHOWN else ""
    return ", ".join(map(str, numbers[:_SHOWN])) + more
