"""The reference model of blocks: trees that are tracked together, with adjacent checksums.

It extends :class:`~proof.reference.acker.Reference`; for the terms, see "Blocks" in
``lua/README.md``. A block is a set of trees, one per slot. Three things differ from loose trees:
a block is tracked, touched and expired as a whole; rows without a tracked block are dropped; the
ack of a completed tree is reported only when its block ends.

The model also has the only damage that leaves the shard in use: a block that has lost a key
(:meth:`BlockReference.lose`).
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from acker_redis.errors import BacklogError, ChangedBatchError, SchemaError
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.outcome import BlockOutcome
from proof.reference.acker import Reference

BlockKey = Literal["block", "failed", "present"]
"""A key of a block: its checksums, and the bitmaps of its failed and of its present slots."""


@dataclass(frozen=True)
class BlockRow:
    """The rows of one call for one block: deltas and failures by slot."""

    block: int
    deltas: Mapping[int, int] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)
    """Slot -> why, for the trees that fail."""
    touch: bool = False
    task: str = ""
    """Set in a TRACK only, with ``label`` and a delta for each slot from 0 on."""
    label: str = ""
    absent: frozenset[int] = frozenset()
    """Of a TRACK: the slots that hold no tree; their deltas are 0."""


@dataclass
class Block:
    """Trees that were tracked together."""

    first_ms: int
    task: str
    label: str
    tracked: tuple[int, ...]
    """The checksums with which the block was tracked."""
    checksums: list[int]
    failed: set[int] = field(default_factory=set)
    absent: frozenset[int] = frozenset()
    """Slots that hold no tree."""
    last_ms: int = 0
    """Time of a row: the first since the last tick, or the first that failed a tree. For
    display only."""
    capped: bool = False
    """Whether the deadline kept the last move out of the newest bucket."""
    lost: set[BlockKey] = field(default_factory=set)
    """Its keys that are lost. What they held is unknown, also to the fields above."""

    @property
    def trees(self) -> set[int]:
        """The slots that hold a tree."""
        return set(range(len(self.checksums))) - self.absent


@dataclass
class BlockReference(Reference):
    """One shard with blocks."""

    def __post_init__(self) -> None:
        self.block_buckets: deque[dict[int, Block]] = deque(
            {} for _ in range(self.config.buckets)
        )  # newest first
        self.blocks_expiring: dict[int, Block] = {}
        self.block_outcomes: dict[str, list[BlockOutcome]] = {}
        self._taken = 0
        super().__post_init__()

    @property
    def pending(self) -> int:
        """Number of records in the buckets, plus all trees of blocks that have not ended."""
        blocks = (block for bucket in self.block_buckets for block in bucket.values())
        return super().pending + sum(len(block.checksums) for block in blocks)

    @property
    def tracked_records(self) -> int:
        """Number of pending trees without a verdict, expiring ones included."""
        places = (*self.block_buckets, self.blocks_expiring)
        blocks = (block for place in places for block in place.values())
        return super().tracked_records + sum(len(b.trees - b.failed) for b in blocks)

    def is_pending(self, anchor: int) -> bool:
        """Return whether a tree, loose or in a block, was tracked and has no verdict yet."""
        if not anchor >> 62:
            return super().is_pending(anchor)
        number, slot = anchor >> 12 & 2**50 - 1, anchor & 4095
        for place in (*self.block_buckets, self.blocks_expiring):
            if number in place:
                return slot in place[number].trees - place[number].failed
        return False

    @property
    def draining(self) -> bool:
        """Whether records or blocks expire. No tick happens before they are drained."""
        return super().draining or bool(self.blocks_expiring)

    def apply_blocks(self, rows: Iterable[BlockRow], fence: Fence | None = None) -> ShardApplied:
        """Apply a batch, all or nothing.

        Raise ChangedBatchError or BacklogError if refused, and SchemaError if a block of it has
        lost a key.
        """
        rows = list(rows)
        highest = self._repeated(fence) if fence else None
        if highest is not None:
            self.counters["repeated"] += 1
            return ShardApplied(highest=highest)
        for row in rows:
            self._check(row)
        for row in rows:  # the script checks the failures last
            _, block = self._find(row.block)
            if block and block.lost:
                raise SchemaError(f"block {row.block} has lost {sorted(block.lost)}")
        if fence:
            self._remember(fence)
        before = self.counters.copy()
        # Blocks that end in this call make room for the next call only.
        self._taken = self.pending
        rejected = tuple(row.block for row in rows if self._block(row))
        new = self.counters - before
        return ShardApplied(
            None,
            new["tracked"],
            new["acked"],
            new["failed"],
            self.pending,
            self.high_water,
            rejected,
        )

    def rotate(self, force: bool = False) -> bool:
        """Tick if a tick is due or forced, and return whether it ticked."""
        if not super().rotate(force):
            return False
        self.blocks_expiring = self.block_buckets.pop()
        self.block_buckets.appendleft({})
        return True

    def expire_blocks(self, blocks: Iterable[int] | None = None) -> int:
        """Drain all expiring blocks, or only ``blocks``, and return the number left."""
        for number in list(self.blocks_expiring) if blocks is None else blocks:
            block = self.blocks_expiring.pop(number)
            slots = block.trees - block.failed
            nacked = slots if block.lost else {slot for slot in slots if block.checksums[slot]}
            self.counters["expired"] += len(nacked)
            for slot in nacked if not block.lost else ():
                self._count_odd(block.checksums[slot])
            self._acked(block, len(slots - nacked))
            if slots:
                self._tell_block("mixed", "expired", number, block, nacked=nacked)
        return len(self.blocks_expiring)

    def lose(self, number: int, key: BlockKey) -> None:
        """Delete a key of a pending or expiring block, as an operator or an eviction may.

        From now on each call for the block is refused. When the block expires, it nacks all trees
        that are not known to have failed; without its present slots, all slots.
        """
        block = self._find(number)[1] or self.blocks_expiring[number]
        if key == "failed" and block.failed:
            block.failed = set()
        elif key == "present" and block.absent:
            block.absent = frozenset()
        elif key != "block":
            return  # the block has no such key
        block.lost.add(key)

    def take_blocks(self, task: str) -> list[BlockOutcome]:
        """Remove and return the block verdicts that wait for a task, oldest first."""
        return self.block_outcomes.pop(task, [])

    def backlog(self, task: str) -> int:
        """Return the number of verdicts that wait for a task, those in blocks included."""
        return super().backlog(task) + sum(o.count for o in self.block_outcomes.get(task, ()))

    def _check(self, row: BlockRow) -> None:
        _, block = self._find(row.block)
        if block and block.lost - {"failed"}:
            raise SchemaError(f"block {row.block} has lost {sorted(block.lost)}")
        if not row.task:
            return
        if block is None:
            if self.reshard:
                raise BacklogError(
                    "the namespace is resharding; no tree is tracked until that ends, try again "
                    "later"
                )
            if self.backlog(row.task) >= self.outcomes_limit:
                raise BacklogError(row.task)
        elif (block.task, block.label, block.tracked, block.absent) != (
            row.task,
            row.label,
            _column(row),
            row.absent,
        ):
            raise ChangedBatchError(f"block {row.block} came back with other content")

    def _block(self, row: BlockRow) -> bool:
        """Apply one row, and return whether its block was rejected."""
        age, block = self._find(row.block)
        if row.task and block:
            row = replace(row, deltas={}, task="")  # a repeat: its deltas count already
        if row.task:
            column = _column(row)
            block = Block(
                self.now_ms,
                row.task,
                row.label,
                column,
                list(column),
                absent=row.absent,
                last_ms=self.now_ms,
            )
            self.counters["tracked"] += len(block.trees)
            self.names[row.task] = self.ticks
            for reason, refused in (
                ("conflict", row.block in self.blocks_expiring),
                ("overflow", self._taken + len(column) > 2 * self.high_water),
            ):
                if refused:
                    self.counters[reason] += len(block.trees)
                    self._tell_block("nack", reason, row.block, block)
                    return True
            self._taken += len(column)
            age = None
            self.block_buckets[0][row.block] = block
        elif block is None or age is None:
            self.counters["orphaned"] += len(row.deltas) + len(row.failed)
            return False
        else:
            for slot, delta in row.deltas.items():
                if slot < len(block.checksums):
                    block.checksums[slot] ^= delta
                else:
                    self.counters["orphaned"] += 1
        failed_before = bool(block.failed)
        self._fail(row, block)
        if not any(block.checksums):
            del self.block_buckets[age or 0][row.block]
            done = len(block.trees - block.failed)
            self._acked(block, done)
            if done:
                self._tell_block("ack", "completed", row.block, block)
            return False
        to, capped = age, block.capped
        if age is not None and (row.touch or self.config.refresh == "update"):
            to, capped = self._moved_to(age, block.first_ms)
            del self.block_buckets[age][row.block]
            self.block_buckets[to][row.block] = block
            self.names[block.task] = self.ticks
        stored = failed_before == bool(block.failed) and block.last_ms >= self.ticked_ms
        if to != age or capped != block.capped or not stored:
            block.last_ms, block.capped = self._last(block.first_ms), capped
        if row.touch and not (capped and to == age):
            self._tell_block("touch", "reset", row.block, block)
        return False

    def _acked(self, block: Block, trees: int) -> None:
        self.counters["acked"] += trees
        if trees:
            self.latency = self.latency.plus(self.now_ms - block.first_ms, trees)

    def _fail(self, row: BlockRow, block: Block) -> None:
        new = {slot: why for slot, why in row.failed.items() if slot in block.trees}
        self.counters["orphaned"] += len(row.failed) - len(new)
        new = {slot: why for slot, why in new.items() if slot not in block.failed}
        if new:
            self.counters["failed"] += len(new)
            self._tell_block("nack", "failed", row.block, block, rows=tuple(new.items()))
            block.failed |= new.keys()

    def _find(self, number: int) -> tuple[int | None, Block | None]:
        for age, bucket in enumerate(self.block_buckets):
            if number in bucket:
                return age, bucket[number]
        return None, None

    def _tell_block(
        self,
        verdict: Literal["ack", "nack", "touch", "mixed"],
        reason: str,
        number: int,
        block: Block,
        *,
        nacked: Iterable[int] = (),
        rows: tuple[tuple[int, str], ...] = (),
    ) -> None:
        outcome = BlockOutcome(
            verdict=verdict,
            reason=reason,
            block=number,
            label=block.label,
            age_ms=max(0, self.now_ms - block.first_ms),
            slots=0 if rows else len(block.checksums),
            failed=tuple(sorted(block.failed)) if verdict in ("ack", "mixed") else (),
            absent=() if rows else tuple(sorted(block.absent)),
            nacked=tuple(sorted(nacked)),
            rows=rows,
        )
        if verdict == "mixed":
            sums = [0] * len(block.checksums) if block.lost else block.checksums
            outcome = replace(
                outcome,
                cause="deadline" if block.capped else "idle",
                idle_ms=max(0, self.now_ms - block.last_ms),
                edges=self.config.edges,
                residuals=tuple(sums[slot] for slot in outcome.nacked),
            )
        if verdict != "touch":
            acked = outcome.count - len(outcome.nacked) if verdict in ("ack", "mixed") else 0
            self._count_end(block.task, outcome.count, acked, outcome.age_ms)
        waiting = self.block_outcomes.setdefault(block.task, [])
        if verdict != "touch" or self.backlog(block.task) < self.outcomes_limit:
            waiting.append(outcome)


def _column(row: BlockRow) -> tuple[int, ...]:
    return tuple(row.deltas[slot] for slot in range(len(row.deltas)))
