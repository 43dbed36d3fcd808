"""The state of a namespace."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from acker_redis.protocol import commands
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.latency import Latency
from acker_redis.protocol.reports import Report
from acker_redis.protocol.reshard import Reshard

HighWater = Literal["ok", "high", "over"]
"""Pending trees by the high-water mark: below it, from it on, from twice the mark on."""


@dataclass(frozen=True, slots=True)
class Status:
    """State of a namespace, read shard by shard (not at one instant).

    >>> status = Acker.from_url(url, "orders").status()
    >>> status.pending, status.high_water, status.counters["acked"], status.backlog
    (0, 'ok', 0, {})
    """

    namespace: str
    config: AckerConfig
    shards: tuple[ShardStatus, ...]

    @property
    def open(self) -> int:
        """Trees without a verdict, also those that wait to be drained."""
        return sum(shard.open for shard in self.shards)

    @property
    def pending(self) -> int:
        """Places in the buckets: what counts toward the high-water mark and costs memory.

        These are the records of trees, the records of rows that came before their tree was tracked
        or after its verdict, and all slots of pending blocks, also those that are done or hold no
        tree. What waits to be drained does not count.
        """
        return sum(sum(shard.pending) for shard in self.shards)

    @property
    def not_open(self) -> int:
        """Places of ``pending`` that hold no open tree; while trees expire, at least so many."""
        return sum(max(0, sum(shard.pending) - shard.open) for shard in self.shards)

    @property
    def in_blocks(self) -> int:
        """Those of ``pending`` that are slots of blocks."""
        return sum(sum(shard.in_blocks) for shard in self.shards)

    @property
    def pending_by_bucket(self) -> tuple[int, ...]:
        """Pending trees per bucket, newest first.

        A damaged shard may have fewer buckets than the others.
        """
        columns = zip_longest(*(shard.pending for shard in self.shards), fillvalue=0)
        return tuple(map(sum, columns))

    @property
    def expiring(self) -> int:
        """Records and blocks that wait to be drained."""
        return sum(shard.expiring for shard in self.shards)

    @property
    def lag_ms(self) -> int:
        """How late the next tick of the worst shard is by now, in ms; 0 while a rotator is on time.

        Trees expire later by this time. If it exceeds 1000 ms, check the rotator.
        """
        return max(shard.lag_ms for shard in self.shards)

    @property
    def late_ms(self) -> int:
        """How late the last tick of the worst shard was, in ms."""
        return max(shard.late_ms for shard in self.shards)

    @property
    def ticks(self) -> int:
        """Ticks of the shard with the most ticks; 0: unknown yet whether a rotator runs."""
        return max(shard.ticks for shard in self.shards)

    @property
    def counters(self) -> dict[str, int]:
        """tracked, acked, failed, expired, overflow, conflict, repeated, orphaned."""
        names = commands.COUNTERS
        return {name: sum(shard.counters[name] for shard in self.shards) for name in names}

    @property
    def odd(self) -> dict[str, int]:
        """Expired trees by the edges on which an odd number of their messages is unaccounted for.

        In the order of the configuration; "" for none of the named edges. Empty in a namespace
        without edges.
        """
        names = (*self.config.edges, "") if self.config.edges else ()
        return {name: sum(shard.odd.get(name, 0) for shard in self.shards) for name in names}

    @property
    def latency(self) -> Latency:
        """Complete latency of the trees that were acked since the namespace was created."""
        return Latency.total(shard.latency for shard in self.shards)

    @property
    def backlog(self) -> dict[str, int]:
        """Verdicts that wait to be taken, per source."""
        return _summed(shard.backlog for shard in self.shards)

    @property
    def slow(self) -> int:
        """Acked trees that took longer than ``slo_ms``."""
        return sum(shard.slow for shard in self.shards)

    @property
    def after_failure(self) -> int:
        """Those of ``orphaned`` that late rows of failed trees explain, with no bolt at fault."""
        return sum(shard.after_failure for shard in self.shards)

    @property
    def useless(self) -> int:
        """Trees that got rows after they had expired, and dropped rows."""
        return max(0, self.counters["orphaned"] - self.after_failure)

    @property
    def ended(self) -> dict[str, int]:
        """Trees that were acked or nacked, per source; a source that is idle is forgotten."""
        return _summed(shard.ended for shard in self.shards)

    @property
    def good(self) -> dict[str, int]:
        """Trees that were acked in time, per source; see ``slo_ms``."""
        return _summed(shard.good for shard in self.shards)

    @property
    def reports(self) -> Mapping[str, Report]:
        """What sources have reported within the last minutes, by name."""
        return self.shards[0].reports

    @property
    def fullest(self) -> dict[str, int]:
        """Verdicts that wait on the fullest shard, per source; each shard has its own limit."""
        most: dict[str, int] = {}
        for shard in self.shards:
            for source, count in shard.backlog.items():
                most[source] = max(count, most.get(source, 0))
        return most

    @property
    def reshard(self) -> Reshard | None:
        """The reshard in progress, if any; no tree is tracked meanwhile."""
        return next((shard.reshard for shard in self.shards if shard.reshard), None)

    @property
    def high_water(self) -> HighWater:
        """``ok`` below the high-water mark, ``high`` from the mark on, ``over`` from twice that on.

        The worst shard counts, because the scripts apply the mark per shard.
        """
        ratio = self.high_water_ratio
        return "over" if ratio >= 2 else "high" if ratio >= 1 else "ok"

    @property
    def high_water_ratio(self) -> float:
        """Pending trees of the worst shard, divided by its share of the high-water mark.

        1.0 is the mark. From 2.0 on, new trees are nacked.
        """
        return max(sum(shard.pending) for shard in self.shards) / self.config.share


def _summed(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total
