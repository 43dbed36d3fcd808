"""A call and the facts about its rows: what a judge knows that never reads a checksum.

A generator of histories creates the trees, and knows which messages exist and which rows have which
links. A row carries an edge id for each link, so two rows are equal if their links are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from acker_redis.errors import AckerError
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.outcome import Outcome

TRACK, FAIL, TOUCH = 1, 2, 4

Link = tuple[int, int]
"""A message and a message that causes it, by number; the cause of a first message is 0."""
BlockKey = Literal["block", "failed", "present"]
"""A key of a block: its checksums, and the bitmaps of its failed and of its present slots."""
Reply = ShardApplied | AckerError
Told = tuple[str, Outcome]
"""A task and a verdict that was written for it. One on a block is expanded to its trees."""


@dataclass(slots=True, eq=False)
class Part:
    """A message in one of its trees."""

    edge: str = ""
    """Name of the edge that the message travels on; '' for none."""
    id: int = 0
    links: set[Link] = field(default_factory=set)
    """The links to the messages that cause it."""


@dataclass(slots=True, eq=False)
class Tree:
    """A tuple tree, and the facts about it that need no checksum."""

    anchor: int
    source_id: str
    """Not of a tree in a block: its verdicts have the label of the block."""
    slot: int = 0
    parts: dict[int, Part] = field(default_factory=dict)
    """All its messages, emitted or not, by number."""
    exists: set[int] = field(default_factory=set)
    """Numbers of the messages emitted so far; only grows."""
    failed: set[int] = field(default_factory=set)
    """Numbers of the messages that a bolt has failed, even if its row never arrives, and that no
    other bolt has processed."""
    tracks: int = 0
    """How often its TRACK was applied, lost tails included; in a block: how often it began a life
    or was rejected."""


@dataclass(slots=True)
class Row:
    """All rows of one call for one tree, folded."""

    tree: Tree
    flags: int = 0
    done: tuple[int, ...] = ()
    """Numbers of the messages that were processed."""
    made: tuple[int, ...] = ()
    """Numbers of the messages that were announced."""
    links: frozenset[Link] = frozenset()
    """The links whose edge ids the row has an odd number of times."""

    @property
    def empty(self) -> bool:
        """Whether it adds nothing to a record."""
        return not (self.flags & (TRACK | FAIL) or self.links)


@dataclass(slots=True)
class BlockRows:
    """All rows of one call for one block; a TRACK has a row for each slot that holds a tree."""

    number: int
    rows: Sequence[Row]
    label: str = ""
    """Of a TRACK, as ``task`` and ``size``, the number of slots."""
    task: str = ""
    size: int = 0
    strays: int = 0
    """Failures that come with a TRACK, of slots that hold no tree."""

    @property
    def track(self) -> bool:
        """Whether the rows track the block."""
        return self.size > 0

    @property
    def touch(self) -> bool:
        """Whether a row touches the block."""
        return any(row.flags & TOUCH for row in self.rows)

    @property
    def absent(self) -> list[int]:
        """Of a TRACK: the slots that hold no tree."""
        return sorted(set(range(self.size)) - {row.tree.slot for row in self.rows})

    @property
    def content(self) -> object:
        """Of a TRACK: what must be equal if it comes again while the block is pending."""
        return self.task, self.label, self.size, {row.tree.slot: row.links for row in self.rows}


@dataclass(slots=True)
class Call:
    """A call of apply, or of apply_blocks if it has ``blocks``."""

    fence: Fence
    task: str
    """The task that tracks; '' if no row does."""
    rows: Sequence[Row] = ()
    blocks: Sequence[BlockRows] = ()

    def each(self) -> Iterator[Row]:
        """Yield the row of each tree."""
        yield from self.rows
        for block in self.blocks:
            yield from block.rows

    def tracked(self) -> Iterator[tuple[int, str]]:
        """Yield the anchors that it tracks, and their tasks."""
        yield from ((row.tree.anchor, self.task) for row in self.rows if row.flags & TRACK)
        for block in self.blocks:
            if block.track:
                yield from ((row.tree.anchor, block.task) for row in block.rows)


def slot_anchor(block: int, slot: int) -> int:
    """Return the anchor of a slot, as ``lua/README.md`` has it."""
    return 2**62 + (block << 12) + slot
