"""Shards that a history is played on, and the reference as one of them."""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from acker_redis.errors import BacklogError, ChangedBatchError
from acker_redis.protocol.commands import COUNTERS, Fence
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.outcome import Outcome
from acker_redis.reference.acker import TreeRow
from acker_redis.reference.blocks import BlockReference, BlockRow
from acker_redis.simulate.batches import Reply
from acker_redis.simulate.books import Told


class Backend(Protocol):
    """A shard whose new verdicts can be looked at, and which can be set back."""

    exact: bool
    """Whether looking at its counters after each call costs next to nothing."""

    def apply(self, rows: Sequence[TreeRow], task: str, fence: Fence) -> Reply:
        """Reply of apply; ChangedBatchError and BacklogError are returned, others raised."""

    def apply_blocks(self, rows: Sequence[BlockRow], fence: Fence) -> Reply:
        """Reply of apply_blocks, likewise."""

    def rotate(self) -> bool:
        """Tick if it is due."""

    def expire(self) -> None:
        """Drain the loose trees that expire."""

    def expire_blocks(self) -> None:
        """Drain the blocks that expire."""

    def take(self, task: str) -> list[Outcome]:
        """Take the verdicts of a task."""

    def peek(self) -> list[Told]:
        """Verdicts that were written since the last peek, and wait still."""

    def advance(self, ms: int) -> None:
        """Move the clock."""

    def snapshot(self) -> Callable[[], None]:
        """Remember the shard; the function that is returned sets it back, but for the clock."""

    def counters(self) -> dict[str, int]:
        """The shard's counters, by name."""

    def names(self) -> set[str]:
        """Tasks that are registered."""

    def tracked_records(self) -> int:
        """Trees without a verdict."""


class ReferenceBackend:
    """The acker in plain Python."""

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
        except (ChangedBatchError, BacklogError) as error:
            return error

    def rotate(self) -> bool:
        """Tick if it is due."""
        return self._shard.rotate()

    def expire(self) -> None:
        """Drain the loose trees that expire."""
        self._shard.expire()

    def expire_blocks(self) -> None:
        """Drain the blocks that expire."""
        self._shard.expire_blocks()

    def take(self, task: str) -> list[Outcome]:
        """Take the verdicts of a task."""
        self._peeked[task, False] = self._peeked[task, True] = 0
        blocks = self._shard.take_blocks(task)
        return [*self._shard.take(task), *(each for block in blocks for each in block.expand())]

    def peek(self) -> list[Told]:
        """Verdicts that were written since the last peek."""
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
        """Remember the shard."""
        shard, peeked = copy.deepcopy(self._shard), self._peeked.copy()

        def restore() -> None:
            shard.now_ms = self._shard.now_ms
            self._shard, self._peeked = shard, peeked

        return restore

    def counters(self) -> dict[str, int]:
        """The shard's counters, by name."""
        counters = self._shard.counters
        return {name: counters[name] for name in COUNTERS}

    def names(self) -> set[str]:
        """Tasks that are registered."""
        return set(self._shard.names)

    def tracked_records(self) -> int:
        """Trees without a verdict."""
        return self._shard.tracked_records
