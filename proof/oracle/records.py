"""The oracle's knowledge of one record and of one block: sets of messages, and no XOR."""

from dataclasses import dataclass, field, replace

from proof.oracle.facts import FAIL, TRACK, BlockKey, BlockRows, Link, Row, Tree
from proof.oracle.lifetimes import Place


@dataclass(slots=True)
class Record:
    """A record, or a slot of a block, and the rows applied to it since it began."""

    tree: Tree
    place: Place
    """That of a slot is the place of its block."""
    tracked: bool = False
    failed: bool = False
    done: frozenset[int] = frozenset()
    made: frozenset[int] = frozenset()
    odd: frozenset[int] = frozenset()
    """Messages that this record saw processed an odd number of times."""
    links: frozenset[Link] = frozenset()
    """Links whose edge ids it has seen an odd number of times: they are unaccounted for."""
    twice: bool = False
    """Whether a message was processed twice in this record: then it can only expire."""

    def add(self, row: Row) -> None:
        """Apply a row."""
        done = self.done.union(row.done)
        self.twice |= len(done) != len(self.done) + len(row.done)
        self.done, self.made = done, self.made.union(row.made)
        for number in row.done:  # a lane may have folded two rows of a message into one
            self.odd ^= {number}
        self.links = self.links.symmetric_difference(row.links)
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

    def copy(self) -> "Record":
        """Return a copy, for the case that the shard loses all later calls."""
        return replace(self, place=replace(self.place))


@dataclass(slots=True)
class Block:
    """A block since it was tracked."""

    rows: BlockRows
    """The rows that tracked it."""
    place: Place
    slots: dict[int, Record]
    """The slots that hold a tree."""
    strays: dict[int, Record] = field(default_factory=dict)
    """Absent slots that have received rows: of trees that its TRACK did not have."""

    lost: frozenset[BlockKey] = frozenset()
    """Its keys that were deleted."""

    @property
    def keys(self) -> frozenset[BlockKey]:
        """The keys that it has in Redis."""
        some_failed = any(slot.failed for slot in self.slots.values())
        has: dict[BlockKey, bool] = {
            "block": True,
            "failed": some_failed,
            "present": bool(self.rows.absent),
        }
        return frozenset(key for key, exists in has.items() if exists) - self.lost

    @property
    def size(self) -> int:
        """Number of its slots, absent ones included."""
        return self.rows.size

    @property
    def task(self) -> str:
        """The source task that tracked it."""
        return self.rows.task

    @property
    def open(self) -> int:
        """Number of its trees that have no verdict yet."""
        return sum(not slot.failed for slot in self.slots.values())

    @property
    def zero(self) -> bool:
        """Whether it ends: all its trees are complete, the failed ones included.

        A block that has received messages for an absent slot only expires.
        """
        return all(slot.zero for slot in self.slots.values()) and not self.strayed

    @property
    def strayed(self) -> bool:
        """Whether an absent slot has a checksum that is not zero."""
        return any(slot.links for slot in self.strays.values())

    def copy(self) -> "Block":
        """Return a copy, for the case that the shard loses all later calls."""
        place = replace(self.place)
        slots, strays = (
            {number: replace(slot, place=place) for number, slot in some.items()}
            for some in (self.slots, self.strays)
        )
        return replace(self, place=place, slots=slots, strays=strays)
