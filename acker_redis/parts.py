"""What one batch sends: a part per call of a script, each all or nothing under a number of its own.

Loose rows and blocks go by different scripts, but by one lane: the parts of a batch have
consecutive numbers, and are sent in this order.
"""

import math
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from acker_redis.blocks import Blocks
from acker_redis.columns import Columns


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
        """The same parts in the same order whenever it is asked, once it was sent."""
