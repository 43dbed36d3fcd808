"""Growth of the counters of a namespace between two readings. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from acker_redis.protocol.commands import ENDED, NACKS
from acker_redis.protocol.history import Point
from acker_redis.protocol.status import Status


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of each counter over a period of time.

    >>> Growth(2000, {"acked": 30, "failed": 1}).per_second()
    {'acked': 15.0, 'failed': 0.5}
    """

    over_ms: int
    """Time between the two readings by Redis's clock, in ms; above 0."""
    counts: dict[str, int]
    """Growth by name of counter, as in ``Status.counters``; none is negative."""
    after_failure: int = 0
    """Growth of ``Status.after_failure``."""
    odd: Mapping[str, int] = field(default_factory=dict)
    """Growth of ``Status.odd``: trees that expired, by edge."""

    @classmethod
    def between(cls, before: Status, after: Status) -> "Growth | None":
        """Return the growth between two readings of a namespace, or None.

        None means that no time passed, or that the readings are not comparable: a counter
        decreased or the number of shards changed. That happens after the namespace was created
        again, resharded, or set back by a failover.
        """
        over_ms = after.shards[0].now_ms - before.shards[0].now_ms
        if over_ms <= 0 or len(before.shards) != len(after.shards):
            return None
        old = before.counters
        counts = {name: count - old[name] for name, count in after.counters.items()}
        late = after.after_failure - before.after_failure
        odd = {edge: count - before.odd.get(edge, 0) for edge, count in after.odd.items()}
        return cls(over_ms, counts, late, odd) if min(late, *counts.values()) >= 0 else None

    @classmethod
    def since(cls, point: Point, status: Status) -> "Growth | None":
        """Return the growth of the trees and verdicts since a point of the history, or None.

        None as for :meth:`between`. Of the other counters, only ``orphaned`` is known, as growth of
        ``useless``, and not since a point of version 1.
        """
        over_ms, now = status.shards[0].now_ms - point.at_ms, status.counters
        counts = {name: now[name] - getattr(point, name) for name in ("tracked", *ENDED)}
        if over_ms <= 0 or min(counts.values()) < 0:
            return None
        useless = {"orphaned": max(0, status.useless - point.useless)} if point.useless >= 0 else {}
        return cls(over_ms, counts | useless)

    @property
    def nacked(self) -> int:
        """Number of trees that were nacked, for any reason."""
        return sum(self.counts[name] for name in NACKS)

    @property
    def orphaned(self) -> int:
        """Number of orphans that no failure explains."""
        return max(0, self.counts["orphaned"] - self.after_failure)

    @property
    def ended(self) -> int:
        """Number of trees that were acked or nacked."""
        return self.counts["acked"] + self.nacked

    @property
    def pending(self) -> int:
        """Growth of the number of pending trees; negative if there are fewer."""
        return self.counts["tracked"] - self.ended

    def per_second(self) -> dict[str, float]:
        """Return the growth of each counter per second, rounded to thousandths."""
        return {name: round(1000 * n / self.over_ms, 3) for name, n in self.counts.items()}
