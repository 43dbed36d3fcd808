"""What one batch sends, and what became of it.

A part is one call of a script: all or nothing, under a number of its own. Loose rows and blocks
go by different scripts, but by one lane: the parts of a batch have consecutive numbers, and are
sent in this order.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from acker_redis.protocol.blocks import Blocks
from acker_redis.protocol.commands import ShardApplied
from acker_redis.protocol.rows import Columns


@dataclass(frozen=True, slots=True)
class Part:
    """One call of ``apply`` (loose rows) or of ``apply_blocks``."""

    shard: int
    rows: Columns | Blocks


@dataclass(slots=True)
class Sent:
    """A batch's numbers in its lane, and the parts that were answered."""

    namespace: str
    producer: str
    seq: int
    """Number of the first part; the next ones follow."""
    shards: int = 1
    """Shards of the namespace when it was sent first: its parts stay what they were."""
    fence_ms: float = math.inf
    """Milliseconds for which a part may be sent again: the least the namespace has said."""
    times: dict[int, float] = field(default_factory=dict)
    """When a part was sent first, on the ``time.monotonic`` clock."""
    replies: dict[int, Any] = field(default_factory=dict)
    """ShardApplied per part."""
    doubt: set[int] = field(default_factory=set)
    """Parts that were sent, but for those that were refused whenever they were."""

    @property
    def refused(self) -> bool:
        """Whether nothing of it was applied, for sure: it may be sent under another number."""
        return not self.doubt and not self.replies

    def first_sent(self, part: int) -> float:
        """When a part was sent first; now, if it was not sent yet."""
        return self.times.setdefault(part, time.monotonic())


class Sendable(Protocol):
    """What ``Acker.apply`` takes: a Batch or a ColumnBatch."""

    sent: Sent | None

    def parts(self, shards: int) -> list[Part]:
        """Return the parts; once the batch was sent, the same ones in the same order."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a batch; the numbers are of all shards that it touched.

    When ``repeated``, a shard had applied its part before, and its reply was lost: its counts
    are missing, and so are its rejected trees. Those are nacked through the outcomes in any
    case.

    >>> acker, batch = Acker.from_url(url, "orders"), Batch("shop")
    >>> batch.track(7, "order-1", [40])
    >>> applied = acker.apply(batch)
    >>> applied.tracked, applied.acked, applied.rejected, applied.repeated
    (1, 0, (), False)
    """

    tracked: int
    acked: int
    failed: int
    rejected: tuple[int, ...]
    """Anchors of the loose trees that were nacked for overflow: do not emit their messages."""
    rejected_blocks: tuple[range, ...]
    """Anchors of the blocks that were nacked, because of overflow, or because their last life
    expires just now: do not emit their messages."""
    pending: int
    high_water: int
    repeated: bool


def combine(parts: Sequence[Part], replies: Sequence[ShardApplied]) -> Applied:
    """Sum the replies to the parts of a batch."""
    if len(parts) == 1 and isinstance(parts[0].rows, Columns):  # mostly
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
