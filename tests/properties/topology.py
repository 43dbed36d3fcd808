"""The true state of tuple trees, as sets of messages and without XOR.

A message may belong to several trees and have several parents. In each tree its id is the XOR of
its edge ids. The sets hold the messages that exist and those that were processed. So they know
when a tree is really complete, whether or not its rows were lost. A tree in a block has a block
anchor, and is otherwise a tree like any other.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from acker_redis.batching.batch import FAIL, TOUCH, TRACK
from acker_redis.protocol.ids import BLOCK_MAX, EDGE_BIT, block_anchor, split_anchor
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockRow

Slot = tuple[int, list[int]] | None
"""The number of a tree's first messages, and others that it shares; None for an absent slot."""


@dataclass(eq=False)
class Message:
    """A message, with its id in each of its trees, and the edge that it travels on."""

    edge: str = ""
    ids: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class Tree:
    """A tuple tree, as a set of messages."""

    anchor: int
    outstanding: set[Message] = field(default_factory=set)
    rows: set[int] = field(default_factory=set)
    """Deltas of all its rows, applied or not."""
    processed: int = 0
    failing: bool = False
    """A bolt has failed the tree; its row may be in flight."""
    failed: bool = False
    """Its FAIL was applied."""
    tracked: bool = False
    """Its TRACK was applied, so it must get a verdict."""
    due: int = 0
    """Tick by which it must have a verdict."""
    verdicts: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all its messages were processed."""
        return not self.outstanding


class Forest:
    """All trees of one history; ids, and the edges of messages, are drawn from ``chance``."""

    def __init__(self, chance: random.Random, edges: Sequence[str] = ()) -> None:
        self.chance = chance
        self.edges = ("", *edges)
        self.trees: dict[int, Tree] = {}
        self.messages: list[Message] = []
        """Messages that wait to be processed."""
        self.sizes: dict[int, int] = {}
        """Number of slots of each block, absent ones included."""

    def begin(self, firsts: int, also: Sequence[Message], anchor: int | None = None) -> TreeRow:
        """Create a tree with new first messages and with ``also``; return its TRACK row."""
        tree = Tree(self.chance.randrange(1, 2**62) if anchor is None else anchor)
        self.trees[tree.anchor] = tree
        delta = 0
        for message in [*(self._message() for _ in range(firsts)), *also]:
            delta ^= self._edge(message, tree, True)
            if message not in self.messages:
                self.messages.append(message)
        tree.rows ^= {delta} - {0}
        return TreeRow(tree.anchor, delta, TRACK, f"source {tree.anchor}")

    def begin_block(self, slots: Sequence[Slot]) -> tuple[int, list[TreeRow]]:
        """Create a block of new trees; return its number, and a TRACK row per tree.

        ``slots`` has the number of first messages of each slot, and the messages that it shares,
        also with earlier slots; None for an absent slot. A slot without messages is a hole, which
        is zero from the start.
        """
        number = self.chance.randrange(BLOCK_MAX + 1)
        self.sizes[number] = len(slots)
        return number, [
            self.begin(tree[0], self.pick(tree[1]), block_anchor(number, slot))
            for slot, tree in enumerate(slots)
            if tree
        ]

    def process(
        self, inputs: Sequence[Message], children: int, flags: int = 0, why: str = ""
    ) -> list[TreeRow]:
        """Process messages together, which all cause each child; return their rows."""
        caused = [self._message() for _ in range(children)]
        rows = []
        least: dict[int, int] = {}
        for anchor, own in (pair for message in inputs for pair in message.ids.items()):
            least[anchor] = min(own, least.get(anchor, own))
        for message in inputs:
            self.messages.remove(message)
            for anchor, own in message.ids.items():
                tree = self.trees[anchor]
                delta = own
                for child in caused:
                    delta ^= self._edge(child, tree, own == least[anchor])
                tree.outstanding.remove(message)
                tree.rows ^= {delta}
                tree.processed += 1
                tree.failing |= bool(flags & FAIL)
                rows.append(TreeRow(anchor, delta, flags, why=why))
        self.messages += caused
        return rows

    def lose(self, message: Message) -> None:
        """Lose a message: no bolt will process it, so it stays outstanding in its trees."""
        self.messages.remove(message)

    def pick(self, which: Sequence[int]) -> list[Message]:
        """Return some of the waiting messages, without duplicates."""
        waiting = self.messages
        return list(dict.fromkeys(waiting[i % len(waiting)] for i in which if waiting))

    def _message(self) -> Message:
        return Message(self.chance.choice(self.edges))

    def _edge(self, message: Message, tree: Tree, carries: bool) -> int:
        """Return a new edge id of a message; ``carries``: it has the code of the edge."""
        edge = self.chance.randrange(1, 1 << (EDGE_BIT if len(self.edges) > 1 else 63))
        if carries and message.edge:
            edge |= 1 << EDGE_BIT + self.edges.index(message.edge) - 1
        message.ids[tree.anchor] = message.ids.get(tree.anchor, 0) ^ edge
        tree.outstanding.add(message)
        return edge


def fold(rows: Sequence[TreeRow]) -> list[TreeRow]:
    """Fold rows into one row per anchor, as a client does."""
    folded: dict[int, TreeRow] = {}
    for row in rows:
        old = folded.get(row.anchor, TreeRow(row.anchor, 0))
        folded[row.anchor] = TreeRow(
            row.anchor,
            old.delta ^ row.delta,
            old.flags | row.flags,
            old.source_id or row.source_id,
            old.why or row.why,
        )
    return list(folded.values())


def fold_blocks(
    rows: Sequence[TreeRow], task: str, sizes: Mapping[int, int] = MappingProxyType({})
) -> list[BlockRow]:
    """Fold rows into one row per block, as a client does; a TRACK includes its trees' rows.

    ``sizes`` are the numbers of slots of blocks; without it the last slot of a block is a tree.
    """
    folded: dict[int, list[TreeRow]] = {}
    for row in fold(rows):
        block, _ = split_anchor(row.anchor) or (0, 0)
        folded.setdefault(block, []).append(row)
    return [_fold_block(block, slots, task, sizes.get(block)) for block, slots in folded.items()]


def _fold_block(block: int, rows: Sequence[TreeRow], task: str, size: int | None) -> BlockRow:
    deltas = {row.anchor & 0xFFF: row.delta for row in rows if row.delta}
    failed = {row.anchor & 0xFFF: row.why for row in rows if row.flags & FAIL}
    touch = any(row.flags & TOUCH for row in rows)
    if not any(row.flags & TRACK for row in rows):
        return BlockRow(block, deltas, failed, touch)
    present = {row.anchor & 0xFFF for row in rows}
    slots = range(size or max(present) + 1)
    column = dict.fromkeys(slots, 0) | deltas
    absent = frozenset(slots) - present
    return BlockRow(block, column, failed, touch, task, f"block {block}", absent)


__all__ = ["FAIL", "TOUCH", "TRACK", "Forest", "Message", "Slot", "Tree", "fold", "fold_blocks"]
