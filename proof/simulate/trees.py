"""Random tuple trees: chains, fan-outs, joins, and tuples in several trees."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from acker_redis.protocol.ids import ANCHOR_MAX, BLOCK_MAX, EDGE_BIT, block_anchor
from proof import oracle
from proof.oracle import Link


@dataclass(slots=True, eq=False)
class Tree(oracle.Tree):
    """A tuple tree, and what its source knows."""

    firsts: list[tuple["Message", int]] = field(default_factory=list)
    """First messages and their ids in this tree."""
    read: list[str] = field(default_factory=list)
    """Verdicts that its source has taken."""
    rewound: bool = False
    """Whether a failover rolled back its TRACK or a verdict."""
    block: "Block | None" = None
    """Its block; None if it is loose."""


@dataclass(slots=True, eq=False)
class Block:
    """Trees that a source tracks together, by slot; a tree without first messages is a hole."""

    number: int
    label: str
    trees: list[Tree]
    size: int
    """Number of its slots; a slot of no tree is absent."""


@dataclass(slots=True, eq=False)
class Part(oracle.Part):
    """A message in one of its trees, and the messages it causes there."""

    tree: Tree = field(kw_only=True)
    number: int = field(kw_only=True)
    caused: int = 0
    """XOR of the edge ids of all messages it causes."""
    children: list[int] = field(default_factory=list)
    """Numbers of the messages it causes."""

    def __post_init__(self) -> None:
        self.tree.parts[self.number] = self

    @property
    def announced(self) -> frozenset[Link]:
        """The links to the messages that it causes."""
        return frozenset((child, self.number) for child in self.children)


@dataclass(slots=True, eq=False)
class Message:
    """A message: delivered once all its inputs were processed."""

    number: int
    edge: str = ""
    inputs: int = 1
    parts: list[Part] = field(default_factory=list)
    children: list["Message"] = field(default_factory=list)

    def part(self, tree: Tree) -> Part:
        """Return its part in a tree; create it if it has none."""
        for part in self.parts:
            if part.tree is tree:
                return part
        self.parts.append(Part(self.edge, tree=tree, number=self.number))
        return self.parts[-1]


class Forest:
    """Draws groups of trees that share messages; ``shared`` breaks the second rule.

    ``edges`` are the names of the edges that messages travel on, in the order of their codes.
    """

    def __init__(
        self, chance: random.Random, edges: Sequence[str] = (), shared: bool = False
    ) -> None:
        self._chance = chance
        self._edges = ("", *edges)
        self._shared = shared
        self._messages = self._trees = self._blocks = 0
        self._bits, self._shift = 63, 0

    def groups(self, trees: int) -> Iterator[list[Tree]]:
        """Yield groups of one to three trees, ``trees`` in all."""
        while trees:
            size = min(trees, self._chance.choice((1, 1, 1, 1, 1, 2, 3)))
            trees -= size
            yield self._group(size)

    def block(self, trees: Sequence[Tree]) -> Block:
        """Put trees into one block, which sets their anchors, and its label as their source id.

        Half of the blocks have absent slots.
        """
        chance = self._chance
        self._blocks += 1
        size = len(trees) + (chance.randrange(1, 10) if chance.random() < 0.5 else 0)
        slots = sorted(chance.sample(range(size), len(trees)))
        block = Block(chance.randrange(BLOCK_MAX + 1), f"b{self._blocks}", list(trees), size)
        for slot, tree in zip(slots, block.trees, strict=True):
            tree.block, tree.slot, tree.source_id = block, slot, block.label
            tree.anchor = block_anchor(block.number, slot)
        return block

    def new_id(self) -> int:
        """Return a random id without a code.

        In some groups only the high or the low half of its bits is random.
        """
        return (self._chance.getrandbits(self._bits) << self._shift) or self.new_id()

    def new_number(self) -> int:
        """Return a number that no other message has."""
        self._messages += 1
        return self._messages

    def _group(self, size: int) -> list[Tree]:
        chance = self._chance
        # An acker that checks only one half of the checksum must be detected.
        whole = EDGE_BIT if len(self._edges) > 1 else 63
        halves = ((whole, 0), (whole, 0), (whole - 32, 32), (32, 0))
        self._bits, self._shift = chance.choice(halves)
        trees, messages = [], []
        for _ in range(size):
            self._trees += 1
            tree = Tree(chance.randrange(ANCHOR_MAX) + 1, f"s{self._trees}")
            trees.append(tree)
            for _ in range(chance.choice((0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3))):
                message = Message(self.new_number(), chance.choice(self._edges))
                part = message.part(tree)
                part.id = self.new_id() | self._code(message.edge)
                part.links.add((message.number, 0))
                tree.firsts.append((message, part.id))
                messages.append(message)
        for _ in range(chance.choice((0, 1, 2, 3, 4, 5, 6, 8)) * size if messages else 0):
            self._child(messages)
        return trees

    def _child(self, messages: list[Message]) -> None:
        """Add a message that one or more of ``messages`` cause."""
        chance = self._chance
        wanted = chance.choice((1, 1, 1, 1, 2, 2, 3))
        if wanted == 1:
            inputs = [messages[-1] if chance.random() < 0.4 else chance.choice(messages)]
        else:
            inputs = chance.sample(messages, min(wanted, len(messages)))
        child = Message(self.new_number(), chance.choice(self._edges), len(inputs))
        causes = [part for parent in inputs for part in parent.parts]
        carriers = _carriers(causes)
        for parent in inputs:
            parent.children.append(child)
        for cause in causes:
            part = child.part(cause.tree)
            if self._shared:
                edge = part.id = part.id or self.new_id()
            else:
                # The id of a joined message is the XOR of an edge id per input.
                edge = self.new_id()
                if cause in carriers:
                    edge |= self._code(child.edge)
                part.id ^= edge
            cause.caused ^= edge
            cause.children.append(child.number)
            part.links.add((child.number, cause.number))
        messages.append(child)

    def _code(self, edge: str) -> int:
        return 1 << EDGE_BIT + self._edges.index(edge) - 1 if edge else 0


def _carriers(causes: Sequence[Part]) -> list[Part]:
    """Return the causes whose edge id carries the code: in each tree that with the least id."""
    least: dict[int, Part] = {}
    for cause in sorted(causes, key=lambda part: part.id):
        least.setdefault(cause.tree.anchor, cause)
    return list(least.values())
