"""Checks of what keeps a server from answering for a while. No I/O."""

from collections.abc import Iterator

from acker_redis.doctor.facts import Missing, NodeFacts
from acker_redis.doctor.finding import Finding, merge, ok, warning

RECENT = 24 * 3600
"""Seconds that what has happened is told of."""
LONG_EVENT = 100.0
"""Milliseconds of an event that are worth a warning."""
LONG_FORK = 500_000
"""Microseconds of a fork, during which nothing is answered."""
BOUND = 10.0
"""Milliseconds that a call of a script may take."""


def check(nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
    """All checks of all servers; one finding for the nodes that are alike."""
    yield from merge(stalls(node) for node in nodes)
    yield from merge(slow_scripts(node) for node in nodes)


def stalls(node: NodeFacts) -> Finding:
    """Forks, huge pages, and what the latency monitor has seen of late."""
    if isinstance(node.info, Missing):
        return node.info.finding("stalls", node.name)
    found, fixes = [], []
    fork = int(node.info.get("latest_fork_usec", 0))
    if fork > LONG_FORK:
        found.append(f"the last fork took {fork / 1000:,.0f} ms")
        fixes.append("use less memory in one Redis (more shards on more masters)")
    if not isinstance(node.config, Missing) and node.config.get("disable-thp") == "no":
        found.append("disable-thp is no: after a fork, writes copy pages of 2 MiB")
        fixes.append("write disable-thp yes into redis.conf and restart")
    if not isinstance(node.events, Missing):
        recent = [
            f"{name} {ms:,.0f} ms"
            for name, (at, ms) in sorted(node.events.items())
            if node.clock.node - at < RECENT and ms >= LONG_EVENT
        ]
        if recent:
            found.append(f"latency events of the last 24 h: {', '.join(recent)}")
            fixes.append("see what helps: redis-cli LATENCY DOCTOR")
    if found:
        return warning("stalls", "; ".join(found), "; ".join(fixes), node.name)
    return ok("stalls", f"the last fork took {fork / 1000:,.1f} ms", node.name)


def slow_scripts(node: NodeFacts) -> Finding:
    """Calls of the scripts in SLOWLOG, of the last day."""
    if isinstance(node.slow, Missing):
        return node.slow.finding("slow-scripts", node.name)
    recent = [call for call in node.slow if node.clock.node - call.at < RECENT]
    slow = [call for call in recent if call.ms > BOUND]
    if not slow:
        return ok("slow-scripts", f"none took more than {BOUND:.0f} ms within 24 h", node.name)
    worst: dict[str, float] = {}
    for call in slow:
        worst[call.script] = max(call.ms, worst.get(call.script, 0.0))
    text = ", ".join(f"{name} up to {ms:,.0f} ms" for name, ms in sorted(worst.items()))
    return warning(
        "slow-scripts",
        f"{len(slow)} calls took more than {BOUND:.0f} ms within 24 h: {text}",
        "look for what else the machine does at these times: redis-cli SLOWLOG GET 128; and at "
        "the findings listpack and stalls",
        node.name,
    )
