"""Findings about outages: consumers that are away, and work for trees that have ended. No I/O."""

from collections.abc import Sequence

from acker_redis.doctor.finding import Finding, error, ok, warning
from acker_redis.doctor.words import SHOWN, span
from acker_redis.protocol.growth import Growth
from acker_redis.protocol.status import Status
from acker_redis.terminal import count_of

USELESS, MOSTLY_USELESS = 0.05, 0.5
"""Share of the work that is for expired trees, from which on it is a warning, and an error."""
LEAST_USELESS = 10
"""Fewer trees than this are no congestion."""


def acks(
    status: Status,
    growth: Growth | None,
    stalled_ms: int,
    recent: Growth | None = None,
    stands: Sequence[str] = (),
) -> Finding:
    """Check that trees are acked while some have used half of their lifetime."""
    half, life = (status.config.buckets + 1) // 2, status.config.lifetime_ms
    waiting = sum(status.pending_by_bucket[half:])
    # During a reshard no new tree is tracked.
    seen = [] if status.reshard else [each for each in (recent, growth) if each]
    silent = [each for each in seen if not each.counts["acked"] and each.over_ms >= stalled_ms]
    trees = count_of(status.open, "tree")
    where = _stands(status, growth, stands)
    fix = f"check that the bolts run, and inspect old trees: acker-redis find {status.namespace}"
    for each in silent:
        # Without an old or expired tree, the namespace may have had nothing to do until now.
        if each.over_ms >= life and status.open and (waiting or each.counts["expired"]):
            return error(
                "acks",
                f"{trees} without a verdict, and none was acked in the last {span(each.over_ms)}, "
                f"although a tree lives for {span(life)} at most; {each.counts['expired']:,} "
                f"expired{where}",
                fix,
                status.namespace,
                headline=f"Nothing was acked for a whole lifetime{where}",
            )
    if waiting and growth and growth in silent:
        return warning(
            "acks",
            f"{count_of(status.pending, 'tree')} pending, {waiting:,} of them for more than half "
            f"of their lifetime, and none was acked in the last {span(growth.over_ms)}{where}",
            fix,
            status.namespace,
            headline=f"Nothing is acked{where}",
        )
    if not growth:
        return ok("acks", f"{trees} without a verdict", status.namespace)
    acked = count_of(growth.counts["acked"], "tree")
    return ok("acks", f"{acked} acked in the last {span(growth.over_ms)}", status.namespace)


def congestion(
    status: Status, growth: Growth | None, recent: Growth | None = None
) -> Finding | None:
    """Check that bolts do not process messages whose trees have expired; None if it is unknown."""
    seen = next((each for each in (recent, growth) if each and "orphaned" in each.counts), None)
    if not seen:
        return None
    useless, useful = seen.orphaned, seen.counts["acked"] + seen.counts["failed"]
    share = useless / (useless + useful) if useless else 0.0
    text = (
        f"in the last {span(seen.over_ms)}, {share:.0%} of the work was useless: "
        f"{count_of(useless, 'tree')} got rows after the end, {useful:,} in time, and "
        f"{seen.counts['expired']:,} expired"
    )
    # Each outage leaves some; orphans are counted at ticks.
    over = growth and growth.over_ms >= status.config.tick_ms and not growth.orphaned
    if over or useless < LEAST_USELESS or share < USELESS or not seen.counts["expired"]:
        return ok("congestion", text, status.namespace)
    where = _stands(status, growth, ())
    return (error if share >= MOSTLY_USELESS else warning)(
        "congestion",
        f"{text}{where}. Messages wait in a queue for longer than their trees live, and replays "
        "make the queue longer",
        "track by a Source with adaptive=True (its default), which sends less until the queue is "
        "short; let its consumers skip_ended; else add consumers, or set a longer tick_ms",
        status.namespace,
        headline=f"Congestion: {share:.0%} of the work is for trees that have expired{where}",
    )


def window(status: Status) -> Finding | None:
    """Check that sources get answers on each edge; None if no source reports."""
    if not status.reports:
        return None
    down = {
        (source, each.edge): (down_ms, each.waiting)
        for source, report in status.reports.items()
        for each in report.windows
        if (down_ms := report.down_ms(each)) is not None
    }
    sources = count_of(len(status.reports), "source")
    if not down:
        return ok("window", f"{sources}: each gets answers", status.namespace)
    worst = sorted(down, key=lambda key: -down[key][0])
    text = "; ".join(
        f"{source}{_on(edge)} for {span(down[source, edge][0])}, {down[source, edge][1]:,} waiting"
        for source, edge in worst[:SHOWN]
    )
    source, edge = worst[0]
    return warning(
        "window",
        f"no answer came for a whole lifetime, so the window collapsed and only probes go: {text}",
        "start the consumers of the edge; the source goes on by itself with the first answer. What "
        f"is missing: acker-redis find {status.namespace}",
        status.namespace,
        headline=f"Source {source} has got no answer{_on(edge)} for {span(down[worst[0]][0])}",
    )


def _on(edge: str) -> str:
    return f" on edge {edge}" if edge else ""


def _stands(status: Status, growth: Growth | None, stands: Sequence[str]) -> str:
    """Return where trees stand, in words; '' if it is not known.

    The edges of the oldest tree, else that on which most trees expired lately, else those on which
    sources get no answer.
    """
    odd = {edge: count for edge, count in (growth.odd if growth else {}).items() if edge and count}
    down = {
        each.edge
        for report in status.reports.values()
        for each in report.windows
        if each.edge and each.down_for is not None
    }
    edges = list(stands) or sorted(odd, key=lambda edge: -odd[edge])[:1] or sorted(down)
    return f" on edge {' or '.join(edges[:SHOWN])}" if edges else ""
