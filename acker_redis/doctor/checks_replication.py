"""Checks of replicas and sentinels. No I/O."""

from collections.abc import Iterator, Mapping
from typing import Any

from acker_redis.doctor.facts import Missing, NodeFacts, SentinelFacts
from acker_redis.doctor.finding import Finding, error, merge, ok, warning

LONGEST_LAG = 10
"""Seconds; Redis's default of min-replicas-max-lag."""


def check(nodes: tuple[NodeFacts, ...], clustered: bool) -> Iterator[Finding]:
    """All checks of all servers; one finding for the nodes that are alike."""
    yield from merge(role(node, clustered) for node in nodes)
    yield from merge(replicas(node) for node in nodes if not node.is_replica)


def role(node: NodeFacts, clustered: bool) -> Finding:
    """A master, or in a cluster a replica that is in step."""
    info = node.info
    if isinstance(info, Missing):
        return info.finding("role", node.name)
    if info.get("role") != "slave":
        return ok("role", "master", node.name)
    master = f"{info.get('master_host')}:{info.get('master_port')}"
    if not clustered:
        return error(
            "role",
            f"this is a replica of {master}, and takes no writes",
            f"connect to {master}, or let sentinels say who is master: redis+sentinel://",
            node.name,
        )
    if info.get("master_link_status") != "up":
        return error(
            "role",
            f"a replica of {master} whose link is down for "
            f"{info.get('master_link_down_since_seconds', '?')} s",
            "look into the log of the replica for why it does not connect (masterauth? network?)",
            node.name,
        )
    behind = int(info.get("master_last_io_seconds_ago", 0))
    if behind > LONGEST_LAG:
        return warning(
            "role",
            f"a replica of {master} that has not heard of it for {behind} s",
            "look at the network between the two, and at repl-timeout",
            node.name,
        )
    return ok("role", f"replica of {master}, in step", node.name)


def replicas(node: NodeFacts) -> Finding:
    """Replicas in step, and a master that refuses to write without them."""
    if isinstance(node.info, Missing):
        return node.info.finding("replicas", node.name)
    known = _replicas(node.info)
    late = {
        name: str(each.get("state"))
        if each.get("state") != "online"
        else f"{each.get('lag')} s behind"
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
    good = len(known) - len(late)
    if least > good:
        return error(
            "replicas",
            f"min-replicas-to-write is {least}, and {good} replicas are in step: every write is "
            "refused (NOREPLICAS)",
            "bring the replicas back; until then: redis-cli CONFIG SET min-replicas-to-write 0",
            node.name,
        )
    if late:
        text = ", ".join(f"{name} {how}" for name, how in late.items())
        return warning(
            "replicas",
            f"{len(late)} of {len(known)} replicas are not in step: {text}",
            "look into their logs; a replica that is promoted loses what it has not got",
            node.name,
        )
    if not known:
        return ok("replicas", "none; what a crash may lose, the disk decides", node.name)
    if not least:
        more = "" if len(known) > 1 else "add a second replica (writes stop without), and then: "
        return warning(
            "replicas",
            f"{len(known)} in step, min-replicas-to-write is 0: a master that is cut off or "
            "replaced takes writes that are then lost; nothing is acked for it, but sources replay",
            f"{more}redis-cli CONFIG SET min-replicas-to-write 1, on the replicas too, with "
            f"min-replicas-max-lag {LONGEST_LAG}",
            node.name,
        )
    text = f"{len(known)} in step, min-replicas-to-write {least}, min-replicas-max-lag {lag}"
    return ok("replicas", text, node.name)


def sentinels(facts: SentinelFacts) -> Finding:
    """They agree, and are enough to replace a master."""
    asked = len(facts.masters) + len(facts.silent)
    if len(set(facts.masters.values())) > 1:
        said = ", ".join(f"{name} says {master}" for name, master in facts.masters.items())
        return error(
            "sentinels",
            f"they do not agree who is the master of {facts.service}: {said}",
            f"wait for the failover to end, then: redis-cli -p 26379 SENTINEL RESET {facts.service}"
            " on those that still name the old one",
        )
    if not facts.quorum.startswith("OK") and facts.quorum:
        return error(
            "sentinels",
            f"a master that fails would not be replaced: {facts.quorum}",
            "start the sentinels that are away, three of them at least",
        )
    if facts.silent or asked < 3:
        away = "; ".join(f"{name}: {why}" for name, why in facts.silent.items())
        return warning(
            "sentinels",
            f"{len(facts.masters)} of the {asked} in the URL answer{f' ({away})' if away else ''}",
            "run three or more, and name all of them in the URL",
        )
    master = next(iter(facts.masters.values()), "")
    return ok("sentinels", f"{asked} agree on {master}{', and are enough' if facts.quorum else ''}")


def _replicas(info: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    count = int(info.get("connected_slaves", 0))
    found = (info.get(f"slave{number}") for number in range(count))
    return {f"{each['ip']}:{each['port']}": each for each in found if isinstance(each, Mapping)}
