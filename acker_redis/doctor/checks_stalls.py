"""Checks of stalls, during which a server does not answer. No I/O."""

from collections.abc import Iterator

from acker_redis.doctor.facts import Missing, NodeFacts
from acker_redis.doctor.finding import Finding, merge, ok, warning

RECENT = 24 * 3600
"""Seconds for which events and slow calls are reported."""
LONG_EVENT = 100.0
"""Milliseconds from which on a latency event is a warning."""
LONG_FORK = 500_000
"""Microseconds above which a fork is a warning; Redis answers nothing during a fork."""
BOUND = 10.0
"""Milliseconds that a call of a script may take."""


def check(nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
    """Run all checks of all servers; merge equal findings of several nodes."""
    yield from merge(stalls(node) for node in nodes)
    yield from merge(slow_scripts(node) for node in nodes)


def stalls(node: NodeFacts) -> Finding:
    """Check the last fork, huge pages, and the events of the latency monitor."""
    if isinstance(node.info, Missing):
        return node.info.finding("stalls", node.name)
    found, fixes = [], []
    fork = int(node.info.get("latest_fork_usec", 0))
    if fork > LONG_FORK:
        found.append(f"the last fork took {fork / 1000:,.0f} ms")
        fixes.append("keep less data in one Redis (more shards on more masters)")
    if not isinstance(node.config, Missing) and node.config.get("disable-thp") == "no":
        found.append("disable-thp is no: after a fork, writes copy pages of 2 MiB")
        fixes.append("set disable-thp yes in redis.conf and restart Redis")
    if not isinstance(node.events, Missing):
        recent = [
            f"{name} {ms:,.0f} ms"
            for name, (at, ms) in sorted(node.events.items())
            if node.clock.node - at < RECENT and ms >= LONG_EVENT
        ]
        if recent:
            found.append(f"latency events of the last 24 h: {', '.join(recent)}")
            fixes.append("read the advice of: redis-cli LATENCY DOCTOR")
    if found:
        return warning("stalls", "; ".join(found), "; ".join(fixes), node.name)
    return ok("stalls", f"the last fork took {fork / 1000:,.1f} ms", node.name)


def slow_scripts(node: NodeFacts) -> Finding:
    """Check the SLOWLOG of the last 24 h for calls of the scripts."""
    if isinstance(node.slow, Missing):
        return node.slow.finding("slow-scripts", node.name)
    recent = [call for call in node.slow if node.clock.node - call.at < RECENT]
    slow = [call for call in recent if call.ms > BOUND]
    if not slow:
        return ok("slow-scripts", f"no call took more than {BOUND:.0f} ms within 24 h", node.name)
    worst: dict[str, float] = {}
    for call in slow:
        worst[call.script] = max(call.ms, worst.get(call.script, 0.0))
    text = ", ".join(f"{name} up to {ms:,.0f} ms" for name, ms in sorted(worst.items()))
    return warning(
        "slow-scripts",
        f"{len(slow)} calls took more than {BOUND:.0f} ms within 24 h: {text}",
        "find what else the machine did at these times: redis-cli SLOWLOG GET 128; see also the "
        "findings listpack and stalls",
        node.name,
    )
