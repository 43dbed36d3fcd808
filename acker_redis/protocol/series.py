"""Growth between the points of a history: the buckets of a chart. No I/O.

A *bucket* is the time between two points that follow each other. Its counts are exact, because
points hold counters. Two rules keep a chart honest:

- **A gap is a gap.** If a point is missing, the bucket has ``gap`` set. Its counts are right, but
  nothing is known about their course, so a chart draws nothing there.
- **A counter that went back is marked.** A failover or a drop may set counters back.
  Their growth is 0 then, and the bucket has the mark ``reset``.

In every other bucket, ``tracked`` is the sum of the endings and the growth of ``open``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from acker_redis.protocol.commands import ENDED
from acker_redis.protocol.history import (
    HOUR_MS,
    HOURS,
    MINUTE_MS,
    MINUTES,
    Point,
    Settings,
    Unit,
)

Mark = Literal["reset", "restart", "settings"]
"""``reset``: a counter went back. ``restart``: Redis started again. ``settings``: they changed."""
Range = Literal["15m", "1h", "24h", "30d"]
RANGES: Mapping[Range, tuple[Unit, int]] = {
    "15m": ("m", 15),
    "1h": ("m", 60),
    "24h": ("m", MINUTES),
    "30d": ("h", HOURS),
}
"""The unit of the points of each range, and their number."""
COUNTS = ("tracked", *ENDED, "good", "useless")
_AT_THE_END = ("open", "window", "in_flight")
GAUGES = (*_AT_THE_END, "pending", "waiting", "held", "down")


@dataclass(frozen=True, slots=True)
class Bucket:
    """What happened between two points."""

    from_ms: int
    to_ms: int
    counts: Mapping[str, int]
    """Growth of tracked, acked, failed, expired, overflow, conflict, good (acked in time) and
    useless (trees that got rows after they had expired)."""
    gauges: Mapping[str, int]
    """At its end: open, pending and waiting; of all sources: window, in_flight, held (records that
    wait in sources) and down (edges on which a source gets no answer)."""
    ticks: int
    """Ticks of the shard with most."""
    gap: bool = False
    """Whether points are missing between its beginning and its end."""
    marks: frozenset[Mark] = frozenset()
    changes: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Settings that changed, before and after; {} if that is unknown."""
    sources: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Growth of the ended and good trees per source; {} between points of minutes."""

    @property
    def ended(self) -> int:
        """Trees that were acked or nacked."""
        return sum(self.counts[name] for name in ENDED)


def series(points: Sequence[Point], unit: Unit, known: Iterable[Settings] = ()) -> list[Bucket]:
    """Return the buckets between points, which are in the order of their time.

    ``known`` are settings that points without settings may refer to by their fingerprint.
    """
    settings = {each.mark: each for each in known}
    settings |= {point.mark: point.settings for point in points if point.settings}
    longest = 2 * (MINUTE_MS if unit == "m" else HOUR_MS)
    return [_between(before, after, longest, settings) for before, after in pairwise(points)]


def _between(
    before: Point, after: Point, longest: int, settings: Mapping[bytes, Settings]
) -> Bucket:
    grown = {name: getattr(after, name) - getattr(before, name) for name in (*COUNTS, "slow")}
    marks = set[Mark]()
    # ``good`` is acked - slow, so it goes back only if one of them does, or is miscounted.
    if any(grown[name] < 0 for name in ("tracked", *ENDED, "slow")):
        marks.add("reset")
    if b"\0\0" not in (before.run, after.run) and before.run != after.run:
        marks.add("restart")
    changes: Mapping[str, tuple[float, float]] = {}
    if before.mark != after.mark:
        marks.add("settings")
        old, new = settings.get(before.mark), settings.get(after.mark)
        changes = old.changes(new) if old and new else {}
    counts = {name: max(0, grown[name]) for name in COUNTS}
    if before.useless < 0:
        counts["useless"] = 0
    counts["good"] = min(counts["good"], counts["acked"])
    return Bucket(
        before.at_ms,
        after.at_ms,
        counts,
        {name: getattr(after, name) for name in GAUGES},
        max(0, after.ticks - before.ticks),
        gap=after.at_ms - before.at_ms > longest,
        marks=frozenset(marks),
        changes=changes,
        sources=_sources(before, after) if before.settings and after.settings else {},
    )


def _sources(before: Point, after: Point) -> dict[str, tuple[int, int]]:
    """Return the growth per source.

    A source that the first point does not have is new, unless that point had no room for it. The
    counters of a source that was forgotten begin again at 0: its growth is 0 then.
    """
    found = {}
    for name, (ended, good) in after.sources.items():
        old = before.sources.get(name, None if before.more_sources else (0, 0))
        if old:
            grown = max(0, ended - old[0])
            found[name] = (grown, min(grown, max(0, good - old[1])))
    return found


def merged_buckets(buckets: Sequence[Bucket], most: int) -> list[Bucket]:
    """Return at most ``most`` buckets and one per gap, each the sum of neighbours.

    A gap stays a separate bucket. ``open``, ``window`` and ``in_flight`` are those at the end, the
    other gauges are the highest.
    """
    size = -(-len(buckets) // most)
    found: list[Bucket] = []
    parts = 0
    for bucket in buckets:
        if found and parts < size and not bucket.gap and not found[-1].gap:
            found[-1] = _joined(found[-1], bucket)
            parts += 1
        else:
            found.append(bucket)
            parts = 1
    return found


def _joined(first: Bucket, second: Bucket) -> Bucket:
    changes = {
        name: (first.changes.get(name, pair)[0], pair[1]) for name, pair in second.changes.items()
    }
    gauges = {name: max(first.gauges[name], second.gauges[name]) for name in GAUGES}
    return Bucket(
        first.from_ms,
        second.to_ms,
        {name: first.counts[name] + second.counts[name] for name in COUNTS},
        gauges | {name: second.gauges[name] for name in _AT_THE_END},
        first.ticks + second.ticks,
        marks=first.marks | second.marks,
        changes={**first.changes, **changes},
    )
