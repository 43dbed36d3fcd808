"""Batches as producers send them, and the same calls for the oracle."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self

from acker_redis.protocol.commands import Fence, ShardApplied
from proof import oracle
from proof.oracle import FAIL, TOUCH
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockReference, BlockRow
from proof.simulate.redis_shard import RedisShard
from proof.simulate.trees import Block, Tree

After = Callable[[], None]


@dataclass(slots=True)
class FoldedRow(oracle.Row):
    """All rows of one batch for one tree, folded."""

    tree: Tree
    delta: int = 0
    why: str = ""
    after: list[After] = field(default_factory=list)
    """Actions to run after the row was applied and not rejected."""

    def fold(self, other: "FoldedRow") -> None:
        """Merge another row of this tree."""
        self.delta ^= other.delta
        self.flags |= other.flags
        self.why = self.why or other.why
        self.done += other.done
        self.made += other.made
        self.links ^= other.links
        self.after += other.after

    def changed(self, number: int, id_: int) -> "FoldedRow":
        """Return this row with one more message announced: the plan is not deterministic."""
        made, links = (*self.made, number), self.links | {(number, 0)}
        return replace(self, delta=self.delta ^ id_, made=made, links=links)


@dataclass(slots=True)
class FoldedBlock:
    """All rows of one batch for one block; a TRACK has a row for each slot that holds a tree."""

    block: Block
    rows: list[FoldedRow]
    size: int = 0
    """Of a TRACK: the number of slots."""

    @property
    def track(self) -> bool:
        """Whether the rows track the block."""
        return self.size > 0

    def facts(self, task: str) -> oracle.BlockRows:
        """Return the rows as the oracle sees them."""
        label = self.block.label
        return oracle.BlockRows(self.block.number, self.rows, label, task, self.size)

    def wire(self, task: str) -> BlockRow:
        """Return the row as it is sent."""
        failed = {row.tree.slot: row.why for row in self.rows if row.flags & FAIL}
        touch = any(row.flags & TOUCH for row in self.rows)
        present = {row.tree.slot: row.delta for row in self.rows}
        number, label = self.block.number, self.block.label
        if not self.track:
            deltas = {slot: delta for slot, delta in present.items() if delta}
            return BlockRow(number, deltas, failed, touch)
        column = dict.fromkeys(range(self.size), 0) | present
        absent = frozenset(column.keys() - present.keys())
        return BlockRow(number, column, failed, touch, task, label, absent)


@dataclass(slots=True)
class Sent:
    """Loose rows and their number. ``at``: the virtual ms when they were first sent."""

    producer: str
    seq: int
    task: str
    folded: list[FoldedRow]
    digests: bool = True
    at: int | None = None
    rows: list[TreeRow] = field(init=False)
    fence: Fence = field(init=False)

    def __post_init__(self) -> None:
        self.rows = [
            TreeRow(row.tree.anchor, row.delta, row.flags, row.tree.source_id, row.why)
            for row in self.folded
        ]
        text = ",".join([f"{r.anchor} {r.delta} {r.flags} {r.why}" for r in self.rows])
        self.fence = _fence(self.producer, self.seq, text if self.digests else "")

    @property
    def call(self) -> oracle.Call:
        """The call, as the oracle sees it."""
        return oracle.Call(self.fence, self.task, rows=self.folded)

    def to(self, shard: BlockReference | RedisShard) -> ShardApplied:
        """Send it to a shard; raise AckerError if it is refused."""
        return shard.apply(self.rows, self.task, self.fence)

    def each(self) -> Iterator[FoldedRow]:
        """Yield the folded row of each tree."""
        yield from self.folded

    def accepted(self, reply: ShardApplied) -> Iterator[FoldedRow]:
        """Return the rows that were not rejected."""
        return (row for row in self.folded if row.tree.anchor not in reply.rejected)

    def changed(self, victim: int, number: int, id_: int) -> Self:
        """Return a copy in which one tree has one more message."""
        rows = _changed(self.folded, victim, number, id_)
        return replace(self, folded=list(rows))


@dataclass(slots=True)
class SentBlocks:
    """Rows of blocks and their number, as in ``Sent``."""

    producer: str
    seq: int
    task: str
    folded: list[FoldedBlock]
    digests: bool = True
    at: int | None = None
    rows: list[BlockRow] = field(init=False)
    fence: Fence = field(init=False)

    def __post_init__(self) -> None:
        self.rows = [block.wire(self.task) for block in self.folded]
        text = ",".join(map(str, self.rows))
        self.fence = _fence(self.producer, self.seq, text if self.digests else "")

    @property
    def call(self) -> oracle.Call:
        """The call, as the oracle sees it."""
        return oracle.Call(self.fence, self.task, blocks=[b.facts(self.task) for b in self.folded])

    def to(self, shard: BlockReference | RedisShard) -> ShardApplied:
        """Send it to a shard; raise AckerError if it is refused."""
        return shard.apply_blocks(self.rows, self.fence)

    def each(self) -> Iterator[FoldedRow]:
        """Yield the folded row of each tree."""
        for block in self.folded:
            yield from block.rows

    def accepted(self, reply: ShardApplied) -> Iterator[FoldedRow]:
        """Yield the rows of the blocks that were not rejected."""
        for block in self.folded:
            if block.block.number not in reply.rejected:
                yield from block.rows

    def changed(self, victim: int, number: int, id_: int) -> Self:
        """Return a copy in which one tree has one more message."""
        rows = _changed(self.each(), victim, number, id_)
        folded = [replace(each, rows=[next(rows) for _ in each.rows]) for each in self.folded]
        return replace(self, folded=folded)


AnySent = Sent | SentBlocks


def by_block(rows: Iterable[FoldedRow]) -> list[FoldedBlock]:
    """Return the rows of trees in blocks, grouped by block."""
    blocks: dict[int, FoldedBlock] = {}
    for row in rows:
        if row.tree.block:
            number = row.tree.block.number
            blocks.setdefault(number, FoldedBlock(row.tree.block, [])).rows.append(row)
    return list(blocks.values())


def _changed(rows: Iterable[FoldedRow], victim: int, number: int, id_: int) -> Iterator[FoldedRow]:
    for place, row in enumerate(rows):
        yield row.changed(number, id_) if place == victim else row


def _fence(producer: str, seq: int, text: str) -> Fence:
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest() if text else ""
    return Fence(producer, seq, digest)
