"""Random tuple trees: their rows, and the facts about them for the oracle.

A message may belong to several trees and have several parents. In each tree its id is the XOR of
its edge ids. The sets hold the messages that exist and those that were processed. So they know
when a tree is really complete, whether or not its rows were lost. A tree in a block has a block
anchor, and is otherwise a tree like any other.
"""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from acker_redis.protocol.ids import BLOCK_MAX, EDGE_BIT, block_anchor, split_anchor
from proof import oracle
from proof.oracle import FAIL, TOUCH, TRACK, Link, Part
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockRow

SLOT = 0xFFF
"""The bits of a block's anchor that are the slot."""
Slot = tuple[int, list[int]] | None
"""The number of a tree's first messages, and others that it shares; None for an absent slot."""


@dataclass(eq=False)
class Message:
    """A message, with its id in each of its trees, and the edge that it travels on."""

    number: int
    edge: str = ""
    ids: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FactRow(TreeRow):
    """A row, with the facts about it; see ``proof.oracle.Row``."""

    done: tuple[int, ...] = ()
    made: tuple[int, ...] = ()
    links: frozenset[Link] = frozenset()


@dataclass(eq=False)
class Tree(oracle.Tree):
    """A tuple tree, as a set of messages."""

    outstanding: set[Message] = field(default_factory=set)
    processed: int = 0
    failing: bool = False
    """A bolt has failed the tree; its row may be in flight."""

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
        self._numbers = itertools.count(1)

    def begin(self, firsts: int, also: Sequence[Message], anchor: int | None = None) -> FactRow:
        """Create a tree with new first messages and with ``also``; return its TRACK row."""
        if anchor is None:
            anchor = self.chance.randrange(1, 2**62)
        tree = Tree(anchor, f"source {anchor}", anchor & SLOT)
        self.trees[tree.anchor] = tree
        delta = 0
        made: list[int] = []
        for message in [*(self._message() for _ in range(firsts)), *also]:
            delta ^= self._edge(message, tree, 0, True)
            made.append(message.number)
            if message not in self.messages:
                self.messages.append(message)
        links = frozenset((number, 0) for number in made)
        return FactRow(anchor, delta, TRACK, tree.source_id, made=tuple(made), links=links)

    def begin_block(self, slots: Sequence[Slot]) -> tuple[int, list[FactRow]]:
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
    ) -> list[FactRow]:
        """Process messages together, which all cause each child; return their rows."""
        caused = [self._message() for _ in range(children)]
        made = tuple(child.number for child in caused)
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
                    delta ^= self._edge(child, tree, message.number, own == least[anchor])
                links = tree.parts[message.number].links | {(n, message.number) for n in made}
                tree.outstanding.remove(message)
                tree.processed += 1
                tree.failing |= bool(flags & FAIL)
                row = FactRow(
                    anchor, delta, flags, "", why, (message.number,), made, frozenset(links)
                )
                rows.append(row)
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
        return Message(next(self._numbers), self.chance.choice(self.edges))

    def _edge(self, message: Message, tree: Tree, cause: int, carries: bool) -> int:
        """Return a new edge id of a message; ``carries``: it has the code of the edge."""
        edge = self.chance.randrange(1, 1 << (EDGE_BIT if len(self.edges) > 1 else 63))
        if carries and message.edge:
            edge |= 1 << EDGE_BIT + self.edges.index(message.edge) - 1
        message.ids[tree.anchor] = message.ids.get(tree.anchor, 0) ^ edge
        part = tree.parts.setdefault(message.number, Part(message.edge))
        part.id = message.ids[tree.anchor]
        part.links.add((message.number, cause))
        tree.exists.add(message.number)
        tree.outstanding.add(message)
        return edge


def facts(rows: Sequence[FactRow], trees: Mapping[int, Tree]) -> list[oracle.Row]:
    """Fold rows into one row per anchor, as the oracle sees them; an unknown anchor has no tree."""
    folded: dict[int, oracle.Row] = {}
    for row in rows:
        nothing = oracle.Tree(row.anchor, "", row.anchor & SLOT)
        fact = folded.setdefault(row.anchor, oracle.Row(trees.get(row.anchor, nothing)))
        fact.flags |= row.flags
        fact.done += row.done
        fact.made += row.made
        fact.links = fact.links.symmetric_difference(row.links)
    return list(folded.values())


def block_facts(
    row: BlockRow, rows: Sequence[FactRow], trees: Mapping[int, Tree]
) -> oracle.BlockRows:
    """Return the rows that were folded into the row of a block, as the oracle sees them."""
    found = facts(rows, trees)
    if not row.task:
        return oracle.BlockRows(row.block, found)
    if row.touch:
        found[0].flags |= TOUCH
    return oracle.BlockRows(row.block, found, row.label, row.task, len(row.deltas))


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
