"""The shard that a history runs on, and the reference as such a shard."""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from acker_redis.errors import BacklogError, ChangedBatchError, SchemaError
from acker_redis.protocol.commands import COUNTERS, Fence
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.outcome import Outcome
from proof.oracle import BlockKey, Reply, Told
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockReference, BlockRow


class Backend(Protocol):
    """A shard whose new verdicts can be read, and which can be rolled back to a snapshot."""

    exact: bool
    """Whether reading its counters after each call is cheap."""

    def apply(self, rows: Sequence[TreeRow], task: str, fence: Fence) -> Reply:
        """Return the reply of apply, a ChangedBatchError or a BacklogError; raise other errors."""

    def apply_blocks(self, rows: Sequence[BlockRow], fence: Fence) -> Reply:
        """Return the reply of apply_blocks, or the same errors, or a SchemaError."""

    def rotate(self) -> bool:
        """Tick if a tick is due, and return whether it ticked."""

    def expire(self) -> None:
        """Drain the loose trees that expire."""

    def expire_blocks(self) -> None:
        """Drain the blocks that expire."""

    def lose(self, block: int, key: BlockKey) -> None:
        """Delete a key of a block that has not ended."""

    def take(self, task: str) -> list[Outcome]:
        """Take the verdicts of a task and return them."""

    def peek(self) -> list[Told]:
        """Return the verdicts that were written since the last peek and still wait."""

    def advance(self, ms: int) -> None:
        """Move the clock."""

    def snapshot(self) -> Callable[[], None]:
        """Take a snapshot; the returned function restores it, except the clock."""

    def counters(self) -> dict[str, int]:
        """Return the counters of the shard, by name.

        Those of edges and tasks, and ``slow``, only if they are not zero.
        """

    def names(self) -> set[str]:
        """Return the registered tasks."""

    def tracked_records(self) -> int:
        """Return the number of trees without a verdict."""


class ReferenceBackend:
    """The reference acker, in plain Python."""

    exact = True

    def __init__(self, config: AckerConfig, kind: type[BlockReference] = BlockReference) -> None:
        self._shard = kind(config)
        self._peeked: Counter[tuple[str, bool]] = Counter()

    def apply(self, rows: Sequence[TreeRow], task: str, fence: Fence) -> Reply:
        """Apply a batch."""
        try:
            return self._shard.apply(rows, task, fence)
        except (ChangedBatchError, BacklogError) as error:
            return error

    def apply_blocks(self, rows: Sequence[BlockRow], fence: Fence) -> Reply:
        """Apply a batch of blocks."""
        try:
            return self._shard.apply_blocks(rows, fence)
        except (ChangedBatchError, BacklogError, SchemaError) as error:
            return error

    def rotate(self) -> bool:
        """Tick if a tick is due."""
        return self._shard.rotate()

    def expire(self) -> None:
        """Drain the loose trees that expire."""
        self._shard.expire()

    def expire_blocks(self) -> None:
        """Drain the blocks that expire."""
        self._shard.expire_blocks()

    def lose(self, block: int, key: BlockKey) -> None:
        """Delete a key of a block."""
        self._shard.lose(block, key)

    def take(self, task: str) -> list[Outcome]:
        """Take the verdicts of a task."""
        self._peeked[task, False] = self._peeked[task, True] = 0
        blocks = self._shard.take_blocks(task)
        return [*self._shard.take(task), *(each for block in blocks for each in block.expand())]

    def peek(self) -> list[Told]:
        """Return the verdicts that were written since the last peek."""
        told: list[Told] = []
        for task, waiting in self._shard.outcomes.items():
            if len(waiting) > (seen := self._peeked[task, False]):
                told.extend((task, outcome) for outcome in waiting[seen:])
                self._peeked[task, False] = len(waiting)
        for task, blocks in self._shard.block_outcomes.items():
            if len(blocks) > (seen := self._peeked[task, True]):
                told.extend((task, each) for block in blocks[seen:] for each in block.expand())
                self._peeked[task, True] = len(blocks)
        return told

    def advance(self, ms: int) -> None:
        """Move the clock."""
        self._shard.advance(ms)

    def snapshot(self) -> Callable[[], None]:
        """Take a snapshot."""
        shard, peeked = copy.deepcopy(self._shard), self._peeked.copy()

        def restore() -> None:
            shard.now_ms = self._shard.now_ms
            self._shard, self._peeked = shard, peeked

        return restore

    def counters(self) -> dict[str, int]:
        """Return the counters of the shard, by name."""
        counters, odd = self._shard.counters, self._shard.odd
        found = {name: counters[name] for name in COUNTERS}
        found |= {f"odd:{'none' if edge < 0 else edge}": n for edge, n in odd.items()}
        more = {"slow": self._shard.slow}
        more |= {f"ended:{task}": n for task, n in self._shard.ended.items()}
        more |= {f"good:{task}": n for task, n in self._shard.good.items()}
        return found | {name: count for name, count in more.items() if count}

    def names(self) -> set[str]:
        """Return the registered tasks."""
        return set(self._shard.names)

    def tracked_records(self) -> int:
        """Return the number of trees without a verdict."""
        return self._shard.tracked_records
