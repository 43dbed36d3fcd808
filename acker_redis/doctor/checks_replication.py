"""Checks of replicas and sentinels. No I/O."""

from collections.abc import Iterator, Mapping
from typing import Any

from acker_redis.doctor.facts import Missing, NodeFacts, SentinelFacts
from acker_redis.doctor.finding import Finding, error, merge, ok, warning

LONGEST_LAG = 10
"""Seconds of silence from which a replica is not in sync: Redis's default of min-replicas-max-lag.
"""
MAX_LAG = 2
"""Seconds; the recommended min-replicas-max-lag, as the pages have it. Replicas report each second,
and for so long a master that is cut off still answers writes."""


def check(nodes: tuple[NodeFacts, ...], clustered: bool) -> Iterator[Finding]:
    """Run all checks of all servers; merge equal findings of several nodes."""
    yield from merge(role(node, clustered) for node in nodes)
    yield from merge(replicas(node) for node in nodes if not node.is_replica)


def role(node: NodeFacts, clustered: bool) -> Finding:
    """Check that the server is a master, or in a cluster a replica in sync."""
    info = node.info
    if isinstance(info, Missing):
        return info.finding("role", node.name)
    if info.get("role") != "slave":
        return ok("role", "master", node.name)
    master = f"{info.get('master_host')}:{info.get('master_port')}"
    if not clustered:
        return error(
            "role",
            f"this server is a replica of {master}, and refuses writes",
            f"connect to {master}, or find the master by sentinels: redis+sentinel://",
            node.name,
        )
    if info.get("master_link_status") != "up":
        return error(
            "role",
            f"this replica has had no link to {master} for "
            f"{info.get('master_link_down_since_seconds', '?')} s",
            "read the replica's log to see why it cannot connect (masterauth? network?)",
            node.name,
        )
    silent_s = int(info.get("master_last_io_seconds_ago", 0))
    if silent_s > LONGEST_LAG:
        return warning(
            "role",
            f"this replica has received nothing from {master} for {silent_s} s",
            "check the network between both servers, and repl-timeout",
            node.name,
        )
    return ok("role", f"replica of {master}, in sync", node.name)


def replicas(node: NodeFacts) -> Finding:
    """Check that replicas are in sync, and that the master refuses writes without them."""
    if isinstance(node.info, Missing):
        return node.info.finding("replicas", node.name)
    known = _replicas(node.info)
    late = {
        name: str(each.get("state"))
        if each.get("state") != "online"
        else f"lags by {each.get('lag')} s"
        for name, each in known.items()
        if each.get("state") != "online" or int(each.get("lag", 0)) > LONGEST_LAG
    }
    if isinstance(node.config, Missing):
        if not late:
            return node.config.finding("replicas", node.name)
        least, lag = 0, LONGEST_LAG
    else:
        least = int(node.config.get("min-replicas-to-write", 0))
        lag = int(node.config.get("min-replicas-max-lag", LONGEST_LAG))
        least = least if lag else 0  # with a lag of 0 Redis ignores the other setting
    good = len(known) - len(late)
    if least > good:
        return error(
            "replicas",
            f"min-replicas-to-write is {least}, but {good} replicas are in sync: every write is "
            "refused (NOREPLICAS)",
            "restore the replicas; until then: redis-cli CONFIG SET min-replicas-to-write 0",
            node.name,
        )
    if late:
        text = ", ".join(f"{name} {how}" for name, how in late.items())
        return warning(
            "replicas",
            f"{len(late)} of {len(known)} replicas are not in sync: {text}",
            "read their logs; a promoted replica loses the writes that it has not received",
            node.name,
        )
    if not known:
        return ok("replicas", "none; what a crash loses depends on persistence alone", node.name)
    if not least:
        return warning(
            "replicas",
            f"{len(known)} in sync, min-replicas-to-write is 0: a partitioned or replaced master "
            "accepts writes that are then lost; this causes no false ack, but sources replay",
            _fewest(len(known)),
            node.name,
        )
    text = f"{len(known)} in sync, min-replicas-to-write {least}, min-replicas-max-lag {lag}"
    if lag > MAX_LAG:
        return warning(
            "replicas",
            f"{text}: a master that is cut off accepts writes for {lag} s more; they are lost",
            f"redis-cli CONFIG SET min-replicas-max-lag {MAX_LAG}, on the replicas too",
            node.name,
        )
    if least < len(known):
        text += (
            f": a master that is cut off together with {least} of its replicas still accepts "
            f"writes, which are then lost; only {len(known)}, the number of all replicas, prevents "
            "that, and then one lost replica stops writes"
        )
    return ok("replicas", text, node.name)


def _fewest(replicas: int) -> str:
    """Return the fix for a master that needs no replica to accept writes."""
    fix = (
        "redis-cli CONFIG SET min-replicas-to-write {} and CONFIG SET min-replicas-max-lag "
        f"{MAX_LAG}, on the replicas too"
    )
    if replicas == 1:
        return f"add a second replica (else one failure stops writes), then: {fix.format(1)}"
    return (
        f"{fix.format(1)}: a master without any replica then stops. Only {replicas}, the number of "
        f"all replicas, stops one that is cut off together with some of them; then one lost "
        "replica stops writes"
    )


def sentinels(facts: SentinelFacts) -> Finding:
    """Check that the sentinels agree on the master and have a quorum to replace it."""
    asked = len(facts.masters) + len(facts.silent)
    if len(set(facts.masters.values())) > 1:
        said = ", ".join(f"{name} says {master}" for name, master in facts.masters.items())
        return error(
            "sentinels",
            f"the sentinels disagree about the master of {facts.service}: {said}",
            f"wait for the failover to end, then: redis-cli -p 26379 SENTINEL RESET {facts.service}"
            " on the sentinels that still name the old master",
        )
    if not facts.quorum.startswith("OK") and facts.quorum:
        return error(
            "sentinels",
            f"the sentinels could not replace a failed master: {facts.quorum}",
            "start the missing sentinels; run at least three",
        )
    if facts.silent or asked < 3:
        away = "; ".join(f"{name}: {why}" for name, why in facts.silent.items())
        return warning(
            "sentinels",
            f"{len(facts.masters)} of {asked} sentinels answer{f' ({away})' if away else ''}",
            "run three or more, and name all of them in the URL",
        )
    master = next(iter(facts.masters.values()), "")
    return ok("sentinels", f"{asked} agree on {master}{', with a quorum' if facts.quorum else ''}")


def _replicas(info: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    count = int(info.get("connected_slaves", 0))
    found = (info.get(f"slave{number}") for number in range(count))
    return {f"{each['ip']}:{each['port']}": each for each in found if isinstance(each, Mapping)}
