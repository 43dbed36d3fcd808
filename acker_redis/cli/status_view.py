"""Draw a namespace's state for a terminal."""

from collections.abc import Iterable, Mapping, Sequence

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from acker_redis.doctor.finding import Finding
from acker_redis.doctor.health import judge, rotation, wrong
from acker_redis.doctor.words import span
from acker_redis.flows.browse import OldestTree
from acker_redis.flows.waits import Waits
from acker_redis.protocol.growth import Growth
from acker_redis.protocol.latency import Latency
from acker_redis.protocol.server_version import ServerVersion
from acker_redis.protocol.status import Status
from acker_redis.terminal import count_of

WIDTH = 40
"""Width of the bars, in columns."""
EDGE_WIDTH = 10
"""The same, beside the names of edges: that table must fit into 80 columns."""
COLOURS = {"ok": "green", "high": "yellow", "over": "red"}
WORDS = {
    "ok": "room for more",
    "high": "sources wait",
    "over": "new trees are nacked",
}
NO_EDGE = "no edge or an even number"
"""Trees whose outstanding messages are on no named edge, or cancel on each."""
HIDDEN = "hidden: this user may not list pending trees"
SHOWN_SOURCES = 10
MAX_BUCKETS = 5
"""If there are more, empty buckets are not drawn."""


def draw(
    status: Status,
    growth: Growth | None,
    oldest: OldestTree | None,
    where: str,
    server: ServerVersion | None,
    rates: Growth | None = None,
    edges: RenderableType | None = None,
    untaken: Mapping[str, int] | None = None,
    recent: Growth | None = None,
) -> RenderableType:
    """Return the whole view; ``where`` is the URL without its password, ``server`` None if unknown.

    The findings use ``growth``, ``untaken``, the age of the oldest untaken verdict in ms by source,
    and ``recent``, the growth over some 15 minutes. The view shows ``rates``, or ``growth`` if
    there are none; and ``edges``, which :func:`draw_edges` has drawn.
    """
    config = status.config
    at = f"{where} ({server})" if server else where
    head = Text.assemble(
        (status.namespace, "bold"),
        (f" at {at} · {count_of(config.shards, 'shard')} · ", "dim"),
        (f"{config.buckets} buckets of {span(config.tick_ms)}", "dim"),
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("high water", _gauge(status))
    table.add_row("pending", _pending(status))
    table.add_row("", _buckets(status))
    table.add_row("oldest", _oldest(status, oldest))
    if edges is not None:
        table.add_row("edges", edges)
    table.add_row("rotator", _rotator(status))
    table.add_row("latency", _latency(status.latency))
    table.add_row("verdicts", _counters(status, rates or growth))
    table.add_row("waiting", _backlog(status))
    if status.reports:
        table.add_row("sources", _sources(status))
    age_ms = oldest.tree.age_ms if oldest else None
    stands = oldest.tree.open_edges(config.edges) if oldest else ()
    found = wrong(judge(status, growth, age_ms, untaken=untaken, recent=recent, stands=stands))
    if found:
        table.add_row("problems", _findings(found))
    return Group(head, table)


def draw_edges(status: Status, waits: Waits | None) -> RenderableType:
    """Return on which edges the trees of a sample wait, and how many have expired by edge.

    ``waits`` is None if the user may not list trees.
    """
    if not status.config.edges:
        return Text(
            "this namespace has no edges. Name them when you create a namespace: acker-redis "
            "create NAMESPACE --edge NAME; then the ids of its messages tell where trees wait"
        )
    counts = [f"{edge or NO_EDGE} {count:,}" for edge, count in status.odd.items() if count]
    if counts:
        ended = Text(f"expired since the namespace was created: {', '.join(counts)}", style="dim")
        return Group(_waits(waits), ended)
    return _waits(waits)


def _waits(waits: Waits | None) -> RenderableType:
    if waits is None:
        return Text(HIDDEN, style="dim")
    if not waits.sampled:
        return Text("no tracked tree is open", style="dim")
    grid = Table.grid(padding=(0, 1))
    for right in (False, False, True, True, True, True):
        grid.add_column(justify="right" if right else "left", no_wrap=True)
    heads = ("edge", "", "trees", "share", "idle", "longest")
    grid.add_row(*(Text(head, style="dim") for head in heads))
    for each in waits.edges:
        grid.add_row(
            Text(each.edge) if each.edge else Text(NO_EDGE, style="dim"),
            Bar(waits.sampled, 0, each.trees, width=EDGE_WIDTH, color="cyan", bgcolor="default"),
            f"{each.trees:,}",
            f"{each.trees / waits.sampled:.0%}",
            span(each.idle_ms),
            span(each.max_idle_ms),
        )
    of = f"a sample of {count_of(waits.sampled, 'tree')}, of {waits.pending:,} pending"
    idle = "idle is the time since the last row: the median, and the longest"
    both = "a tree that waits on two edges is in both rows"
    return Group(grid, Text(f"{of}; {both}; {idle}", style="dim"))


def _gauge(status: Status) -> RenderableType:
    ratio, colour = status.high_water_ratio, COLOURS[status.high_water]
    grid = Table.grid(padding=(0, 1))
    of = " (worst shard)" if status.config.shards > 1 else ""
    grid.add_row(
        Bar(2.0, 0, min(ratio, 2.0), width=WIDTH, color=colour, bgcolor="grey30"),
        Text(f"{ratio:.0%}", colour),
        Text(f"of {status.config.high_water:,}{of}"),
    )
    # The bar ends at twice the mark; the mark is its middle.
    mark = Text("▲ the mark".rjust(WIDTH // 2 + 10), style="dim")
    grid.add_row(mark, "", Text(WORDS[status.high_water], colour))
    return grid


def _buckets(status: Status) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    most = max(*status.pending_by_bucket, status.expiring, 1)
    rows = [*status.pending_by_bucket, status.expiring]
    names = ["newest", *(f"{n} tick{'s' * (n > 1)} old" for n in range(1, len(rows) - 1))]
    few = len(rows) <= MAX_BUCKETS
    for name, count in zip([*names, "expiring"], rows, strict=True):
        if not (count or few or name == "newest"):
            continue
        colour = "red" if name == "expiring" else "cyan"
        bar = Bar(most, 0, count, width=WIDTH, color=colour, bgcolor="default")
        grid.add_row(Text(name, style="dim"), bar, Text(f"{count:,}", justify="right"))
    return grid


def _oldest(status: Status, oldest: OldestTree | None) -> RenderableType:
    if oldest is None:
        words = HIDDEN if status.pending else "nothing is pending"
        return Text(words, style="dim")
    tree = oldest.tree
    about = "" if oldest.exact else "at least "
    name = f"{tree.source_id} of {tree.source}" if tree.source else "rows that were not tracked"
    return Text(f"{about}{span(tree.age_ms)}: {name} (anchor {tree.anchor})")


def _rotator(status: Status) -> RenderableType:
    shard = max(status.shards, key=lambda each: each.lag_ms)
    since = span(max(0, shard.now_ms - shard.ticked_ms))
    state = rotation(status.shards)
    if state == "away":
        return Text(f"a tick is {span(status.lag_ms)} late: is a rotator running?", style="red")
    if state == "late":
        return Text(f"a tick is {span(status.lag_ms)} late", style="yellow")
    if state == "unknown":
        due = span(max(0, shard.ticked_ms + status.config.tick_ms - shard.now_ms))
        return Text(f"no tick yet; the first one is due in {due}: is a rotator running?")
    return Text(f"on time; the last tick was {since} ago, {span(status.late_ms)} late")


def _findings(findings: Sequence[Finding]) -> RenderableType:
    """Return the headline and the fix of each finding."""
    lines = Table.grid()
    for finding in findings:
        colour = "red" if finding.level == "error" else "yellow"
        lines.add_row(Text(finding.headline, style=colour))
        lines.add_row(Text(f"  {finding.fix}", style="dim"))
    return lines


def _latency(latency: Latency) -> RenderableType:
    if not latency.count:
        return Text("no tree was acked yet", style="dim")
    half, most = (span(latency.quantile_ms(q)) for q in (0.5, 0.99))
    words = f"p50 about {half}, p99 about {most} from the first row to the ack"
    return Text(words)


def _pending(status: Status) -> str:
    words = count_of(status.open, "tree")
    if status.not_open:
        others = "rows that came early or late"
        if status.in_blocks:
            others += ", or slots that are done or hold no tree"
        words += f", and {status.not_open:,} {others}"
    return words


def _counters(status: Status, growth: Growth | None) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for name, count in status.counters.items():
        bad = name in ("failed", "expired", "overflow", "conflict") and count
        row = [
            Text(name, style="dim"),
            Text(f"{count:,}", "yellow" if bad else "", justify="right"),
        ]
        if growth:
            rate = 1000 * growth.counts[name] / growth.over_ms
            row.append(Text(f"{rate:,.0f}/s", style="dim", justify="right"))
        grid.add_row(*row)
    return grid


def _backlog(status: Status) -> RenderableType:
    waiting = sorted(status.backlog.items(), key=lambda item: -item[1])
    lines: Iterable[str] = (
        f"{count:,} for {source} ({count / status.config.outcomes_limit:.0%} of outcomes_limit)"
        for source, count in waiting[:SHOWN_SOURCES]
        if count
    )
    more = sum(1 for _, count in waiting[SHOWN_SOURCES:] if count)
    text = "\n".join([*lines, *([f"and for {more} more sources"] if more else [])])
    return Text(text) if text else Text("no verdicts wait", style="dim")


def _sources(status: Status) -> RenderableType:
    """Return what sources have reported: first of edges without answers, then of full windows."""
    told = [
        (report.down_ms(each) or 0, each.waiting, name, each)
        for name, report in status.reports.items()
        for each in report.windows
    ]
    told.sort(key=lambda item: (-item[0], -item[1], item[2]))
    lines = []
    for down_ms, waiting, name, each in told[:SHOWN_SOURCES]:
        of = "" if each.window is None else f" of {each.window:,}"
        down = f", no answer for {span(down_ms)}" if each.down_for is not None else ""
        where = f" on {each.edge}" if each.edge else ""
        lines.append(f"{name}{where}: {each.in_flight:,}{of} in flight, {waiting:,} waiting{down}")
    more = [f"and {len(told) - SHOWN_SOURCES} more"] if len(told) > SHOWN_SOURCES else []
    return Text("\n".join([*lines, *more]))
