"""The oracle's knowledge of one record and of one block: sets of messages, and no XOR."""

from dataclasses import dataclass, replace

from acker_redis.batching.batch import FAIL, TRACK
from acker_redis.reference.blocks import BlockRow
from acker_redis.simulate.batches import FoldedRow
from acker_redis.simulate.trees import Tree


@dataclass(slots=True)
class Pending:
    """A record, or a slot of a block, and the rows applied to it since it began."""

    tree: Tree
    born: int
    """Number of ticks when it was last put into the newest bucket."""
    tracked: bool = False
    failed: bool = False
    done: frozenset[int] = frozenset()
    made: frozenset[int] = frozenset()
    odd: frozenset[int] = frozenset()
    """Messages that this record saw processed an odd number of times."""
    twice: bool = False
    """Whether a message was processed twice in this record: then it can only expire."""

    def add(self, row: FoldedRow) -> None:
        """Apply a row."""
        done = self.done.union(row.done)
        self.twice |= len(done) != len(self.done) + len(row.done)
        self.done, self.made = done, self.made.union(row.made)
        self.odd = self.odd.symmetric_difference(row.done)
        self.tracked |= bool(row.flags & TRACK)
        self.failed |= bool(row.flags & FAIL)

    @property
    def complete(self) -> bool:
        """Whether every existing message was announced and processed, each once."""
        return self.tracked and not self.twice and self.done == self.tree.exists == self.made

    @property
    def zero(self) -> bool:
        """Whether every existing message was announced, and processed by an odd number of rows.

        A repeated row cancels the first one, and a third one counts again.
        """
        return self.odd == self.tree.exists == self.made


@dataclass(slots=True)
class PendingBlock:
    """A block since it was tracked, and the row that tracked it."""

    row: BlockRow
    born: int
    slots: list[Pending]

    @property
    def task(self) -> str:
        """The source task that tracked it."""
        return self.row.task

    @property
    def open(self) -> int:
        """Number of its trees that have no verdict yet."""
        return sum(not slot.failed for slot in self.slots)

    @property
    def zero(self) -> bool:
        """Whether all its trees are complete, the failed ones included: then it ends."""
        return all(slot.zero for slot in self.slots)

    def copy(self) -> "PendingBlock":
        """Return a copy, for the case that the shard loses all later calls."""
        return replace(self, slots=[replace(slot) for slot in self.slots])
