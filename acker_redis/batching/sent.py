"""The parts of a batch, their state while they are sent, and the result.

A part is one atomic call of a script, with its own number. Loose rows and blocks need different
scripts, but use one lane: the parts of a batch have consecutive numbers and are sent in this order.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from acker_redis.protocol.blocks import Blocks
from acker_redis.protocol.commands import ShardApplied
from acker_redis.protocol.rows import TRACK, Columns


@dataclass(frozen=True, slots=True)
class Part:
    """One call of ``apply`` (loose rows) or of ``apply_blocks``."""

    shard: int
    rows: Columns | Blocks

    @property
    def only_tracks(self) -> bool:
        """Whether each row begins a tree, or a block of trees."""
        if isinstance(self.rows, Columns):
            return all(flags & TRACK for flags in self.rows.flags)
        return all(block.header for block in self.rows.parts)


@dataclass(slots=True)
class Sent:
    """State of a sent batch: its numbers in the lane, and the replies so far."""

    namespace: str
    producer: str
    seq: int
    """Number of the first part; the other parts have the next numbers."""
    shards: int = 1
    """Shards of the namespace when the batch was first sent; its parts do not change after that."""
    fence_ms: float = math.inf
    """Milliseconds in which a part may be retried: minimum of all configurations read."""
    times: dict[int, float] = field(default_factory=dict)
    """When each part was first sent, on the ``time.monotonic`` clock."""
    replies: dict[int, Any] = field(default_factory=dict)
    """ShardApplied per part."""
    doubt: set[int] = field(default_factory=set)
    """Parts that were sent and may have been applied: not every attempt was refused."""

    @property
    def refused(self) -> bool:
        """Whether certainly no part was applied: the batch may be sent under another number."""
        return not self.doubt and not self.replies

    def horizon(self, part: int) -> float:
        """Return when the fence of a part may expire, on the ``time.monotonic`` clock.

        It counts from the first call, which is now if there was none.
        """
        return self.times.setdefault(part, time.monotonic()) + self.fence_ms / 1000


class Sendable(Protocol):
    """An argument of ``Acker.apply``: a Batch or a ColumnBatch."""

    sent: Sent | None

    def parts(self, shards: int) -> list[Part]:
        """Return the parts; after the batch was sent, always the same ones in the same order."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a batch, summed over all shards that it touched.

    If ``repeated`` is true, a shard had already applied its part and that reply was lost. The
    counts and the rejected trees of that part are missing here. Its rejected trees are still
    nacked through the outcomes.

    >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
    >>> batch.track(7, "order-1", [40])
    >>> applied = acker.apply(batch)
    >>> applied.tracked, applied.acked, applied.rejected, applied.repeated
    (1, 0, (), False)
    """

    tracked: int
    """Number of trees that the batch tracked."""
    acked: int
    """Number of trees that the batch completed."""
    failed: int
    """Number of trees that the batch failed."""
    rejected: tuple[int, ...]
    """Anchors of the loose trees that were nacked for overflow: do not emit their messages."""
    rejected_blocks: tuple[range, ...]
    """Anchors of the blocks that were nacked, because of overflow, or because the previous block
    with the same number is expiring: do not emit their messages."""
    pending: int
    """Pending trees of these shards."""
    high_water: int
    """Sum of these shards' shares of the high-water mark."""
    repeated: bool
    """Whether a part had already been applied by an earlier call."""


def combine(parts: Sequence[Part], replies: Sequence[ShardApplied]) -> Applied:
    """Return the sum of the replies to the parts of a batch."""
    if len(parts) == 1 and isinstance(parts[0].rows, Columns):  # the usual case
        (only,) = replies
        totals = only.tracked, only.acked, only.failed, only.rejected, ()
        return Applied(*totals, only.pending, only.high_water, only.highest is not None)
    last = {part.shard: reply for part, reply in zip(parts, replies, strict=True)}
    loose: list[int] = []
    blocks: list[range] = []
    for part, reply in zip(parts, replies, strict=True):
        if isinstance(part.rows, Columns):
            loose += reply.rejected
        else:
            blocks += [each.anchors for each in part.rows.parts if each.block in reply.rejected]
    return Applied(
        tracked=sum(reply.tracked for reply in replies),
        acked=sum(reply.acked for reply in replies),
        failed=sum(reply.failed for reply in replies),
        rejected=tuple(loose),
        rejected_blocks=tuple(blocks),
        pending=sum(reply.pending for reply in last.values()),
        high_water=sum(reply.high_water for reply in last.values()),
        repeated=any(reply.highest is not None for reply in replies),
    )
