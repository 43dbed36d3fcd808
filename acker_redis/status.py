"""State of a namespace."""

from dataclasses import dataclass
from typing import Literal

from acker_redis import commands
from acker_redis.commands import ShardStatus
from acker_redis.config import AckerConfig


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
    def pending(self) -> int:
        """Trees in the buckets, loose and in blocks, without those that wait to be drained."""
        return sum(sum(shard.pending) for shard in self.shards)

    @property
    def in_blocks(self) -> int:
        """Those of the pending trees that stand in blocks."""
        return sum(sum(shard.in_blocks) for shard in self.shards)

    @property
    def pending_by_bucket(self) -> tuple[int, ...]:
        """Trees per bucket, newest first."""
        return tuple(map(sum, zip(*(shard.pending for shard in self.shards), strict=True)))

    @property
    def expiring(self) -> int:
        """Records and blocks that wait to be drained."""
        return sum(shard.expiring for shard in self.shards)

    @property
    def counters(self) -> dict[str, int]:
        """tracked, acked, failed, expired, overflow, conflict, repeated, orphaned."""
        names = commands.COUNTERS
        return {name: sum(shard.counters[name] for shard in self.shards) for name in names}

    @property
    def backlog(self) -> dict[str, int]:
        """Verdicts that wait to be taken, per task."""
        total: dict[str, int] = {}
        for shard in self.shards:
            for task, count in shard.backlog.items():
                total[task] = total.get(task, 0) + count
        return total

    @property
    def high_water(self) -> Literal["ok", "high", "over"]:
        """``ok`` below the high-water mark, ``high`` from it on, ``over`` from twice it on.

        Judged per shard, as the scripts do: the worst shard counts.
        """
        share = self.config.share
        worst = max(sum(shard.pending) for shard in self.shards)
        return "over" if worst >= 2 * share else "high" if worst >= share else "ok"
