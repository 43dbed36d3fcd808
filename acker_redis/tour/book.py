"""The trees of the tour: the record that Redis keeps of each, and its open messages."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import xor

from acker_redis.sync.client import Acker
from acker_redis.tour.orders import Order
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.record import Record


@dataclass(frozen=True, slots=True)
class Message:
    """A message of an order, on its way to a bolt."""

    to: str
    order: Order
    name: str
    id: MessageId
    price: int = 0

    @property
    def anchor(self) -> int:
        """The anchor of its tree."""
        return next(iter(self.id))

    @property
    def tuple_id(self) -> int:
        """Its id in the tree."""
        return self.id[self.anchor]


@dataclass(slots=True)
class Tree:
    """One attempt at an order: a tuple tree."""

    order: Order
    attempt: int
    anchor: int
    open: dict[str, int]
    """Messages that are emitted and not acked, by name, and their ids. Redis does not keep them."""
    checksum: int = 0
    """As Redis had it when the tour last looked; 0 if Redis had no record of the tree."""
    pending: bool = True
    """Whether Redis had a record of the tree when the tour last looked."""
    age_ms: int = 0
    bucket: int = 0
    """Ticks since the tree was tracked."""
    verdict: str = ""
    """``ack`` or ``nack``, as the source received it; '' while the tree is pending."""
    reason: str = ""
    why: str = ""

    @property
    def expected(self) -> int:
        """The checksum that the open messages call for: the XOR of their ids."""
        return reduce(xor, self.open.values(), 0)


@dataclass
class Book:
    """The trees of the tour, in the order in which they were tracked."""

    acker: Acker
    trees: list[Tree] = field(default_factory=list)
    heard: list[Tree] = field(default_factory=list)
    """Trees whose verdict was received and not yet shown."""
    wrong: list[str] = field(default_factory=list)
    """Checksums that were not the XOR of the open messages."""

    def begin(self, record: Record, first: Message) -> None:
        """Note a tree that the source has tracked."""
        order, names = first.order, {first.name: first.tuple_id}
        self.trees.append(Tree(order, record.attempt, first.anchor, names))

    def processed(self, message: Message, emitted: Iterable[Message], *, finished: bool) -> None:
        """Note the messages that a bolt emitted, and its ack of a message if ``finished``."""
        tree = self.tree(message.anchor)
        tree.open.update({each.name: each.tuple_id for each in emitted})
        if finished:
            del tree.open[message.name]

    def end(self, record: Record, verdict: str, reason: str, why: str) -> None:
        """Note a verdict that the source received."""
        for tree in self.trees:
            if (tree.order.id, tree.attempt) == (record.source_id, record.attempt):
                tree.verdict, tree.reason, tree.why = verdict, reason, why
                self.heard.append(tree)

    def tree(self, anchor: int) -> Tree:
        """Return the tree with this anchor."""
        return next(tree for tree in self.trees if tree.anchor == anchor)

    def look(self) -> None:
        """Read the trees from Redis."""
        found = {state.anchor: state for state in self.acker.page().trees}
        for tree in self.trees:
            state = found.get(tree.anchor)
            tree.pending = state is not None
            tree.checksum = 0
            if state is None:
                continue
            tree.checksum, tree.age_ms, tree.bucket = state.checksum, state.age_ms, state.bucket
            if tree.checksum != tree.expected:
                self.wrong.append(f"{tree.order.id}: {tree.checksum:016x}")

    def pending(self) -> list[Tree]:
        """Return the trees that are pending now."""
        self.look()
        return [tree for tree in self.trees if tree.pending]
