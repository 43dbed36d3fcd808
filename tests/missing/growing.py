"""Random tuple trees made with the client, and the missing messages of each, as sets.

Sources and bolts call the functions that programs call. A message may belong to several trees, have
several inputs, travel on any edge or on none, and have a derived id. Some messages are dropped, and
some rows: then the row's message and its children are unaccounted for. The sets below know it all
without XOR.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.rows import TRACK, Row
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.processing import OpenTree, Processing, emit, emit_from
from proof.reference.acker import TreeRow

MAX_MESSAGES = 40
MAX_MISSING = 5
"""Messages of a tree that are unaccounted for at most."""


@dataclass(eq=False)
class Message:
    """A message that was sent: its id in each of its trees, and the edge it travels on."""

    id: MessageId
    edge: str


@dataclass(eq=False)
class Tree:
    """A tree, and the messages of which the rows that count them were applied."""

    anchor: int
    messages: list[Message] = field(default_factory=list)
    """All its messages that were sent."""
    announced: set[Message] = field(default_factory=set)
    processed: set[Message] = field(default_factory=set)

    @property
    def missing(self) -> set[Message]:
        """The messages that are unaccounted for."""
        return self.announced ^ self.processed

    @property
    def missing_ids(self) -> set[int]:
        """Their ids in this tree."""
        return {message.id[self.anchor] for message in self.missing}

    @property
    def table(self) -> list[tuple[int, int]]:
        """All its messages, as anchor and tuple id."""
        return [(self.anchor, message.id[self.anchor]) for message in self.messages]

    def edges(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the edges on which an odd number of messages is unaccounted for."""
        lost = [message.edge for message in self.missing]
        return tuple(name for name in names if lost.count(name) % 2)


class Grower:
    """Grows groups of trees that share messages, and keeps their rows."""

    def __init__(self, chance: random.Random, maker: IdMaker) -> None:
        self._chance, self._maker = chance, maker
        self._edges = ("", *maker.edges)
        self._keys = 0
        self.trees: dict[int, Tree] = {}
        self.rows: list[TreeRow] = []
        """Rows that arrive, of all trees, not folded."""

    def group(self, anchors: Sequence[int] = ()) -> None:
        """Grow a group of one to three trees; ``anchors`` are those of slots of a block."""
        chance = self._chance
        trees, waiting = [], []
        for number in range(len(anchors) or chance.choice((1, 1, 1, 2, 3))):
            tree = self._begin(*anchors[number : number + 1])
            trees.append(tree)
            waiting += tree.messages
        limit = chance.choice((chance.randrange(1, MAX_MESSAGES + 1), MAX_MESSAGES))
        dropped, lost = chance.choice(((0, 0), (1, 0), (1, 1), (0, 1), (3, 0), (5, 0), (5, 0)))
        while waiting:
            chance.shuffle(waiting)
            room = limit - max(len(tree.messages) for tree in trees)
            if dropped and chance.random() < (0.05 if room > 0 else 0.5):
                dropped -= 1
                waiting.pop()
                continue
            some = chance.choice((1, 1, 1, 2, 3))
            inputs, waiting = waiting[:some], waiting[some:]
            loses = lost > 0 and some == 1 and chance.random() < 0.1
            lost -= loses
            children = min(room, chance.choice((0, 1, 1, 2, 2, 3)) or not waiting)
            waiting += self._process(inputs, children, loses)

    def block(self, number: int, slots: int) -> None:
        """Grow the trees of a block, in groups. Some slots are absent, but not the last one."""
        chance = self._chance
        share = chance.choice((1, 0.7))
        held = [slot for slot in range(slots - 1) if chance.random() < share]
        anchors = [block_anchor(number, slot) for slot in (*held, slots - 1)]
        while anchors:
            size = chance.choice((1, 1, 2, 3))
            self.group(anchors[:size])
            anchors = anchors[size:]

    def _begin(self, anchor: int = 0) -> Tree:
        """Begin a tree in one of the ways in which a source does it."""
        chance, maker = self._chance, self._maker
        firsts = chance.choice((1, 1, 1, 2, 3))
        edge = chance.choice(self._edges)
        if anchor:
            edges = [chance.choice(self._edges) for _ in range(firsts)]
            ids = [maker.draw(1)[0] | maker.code(edge) for edge in edges]
            delta = 0
            for tuple_id in ids:
                delta ^= tuple_id
            rows = [Row(anchor, delta, TRACK, "s")]
            sent = [
                Message(MessageId({anchor: tuple_id}), edge)
                for tuple_id, edge in zip(ids, edges, strict=True)
            ]
        elif chance.random() < 0.5:
            emitted = emit("s", firsts, edge=edge, ids=maker)
            anchor, rows = emitted.anchor, [emitted.row]
            sent = [Message(each, edge) for each in emitted.ids]
        else:
            opened = OpenTree("s", ids=maker)
            anchor, sent = opened.anchor, []
            for _ in range(firsts):
                edge = chance.choice(self._edges)
                sent.append(Message(opened.emit(edge=edge), edge))
            rows = [opened.opening, *opened.close()]
        tree = self.trees[anchor] = Tree(anchor, sent, set(sent))
        self._apply(rows)
        return tree

    def _process(self, inputs: Sequence[Message], children: int, loses: bool) -> list[Message]:
        """Process messages together, and return the messages that they cause.

        ``loses``: the worker dies before its row is sent, after it has sent the children.
        """
        chance, maker = self._chance, self._maker
        apart = len(inputs) > 1 and chance.random() < 0.3
        if apart:
            work = [Processing(str(each.id), ids=maker) for each in inputs]
        else:
            work = [Processing(*(each.id for each in inputs), ids=maker)]
        caused = []
        for _ in range(children):
            edge, key = chance.choice(self._edges), None
            if chance.random() < 0.3:
                self._keys += 1
                key = f"key {self._keys}"
            if apart:
                child = emit_from(*work, key=key, edge=edge)
            else:
                some = chance.sample(inputs, chance.randrange(1, len(inputs) + 1))
                child = work[0].emit([each.id for each in some], key=key, edge=edge)
            caused.append(Message(child, edge))
        for message in caused:
            for anchor in message.id:
                self.trees[anchor].messages.append(message)
        if loses:
            return caused
        self._apply([row for each in work for row in each.acked()])
        for message in inputs:
            for anchor in message.id:
                self.trees[anchor].processed.add(message)
        for message in caused:
            for anchor in message.id:
                self.trees[anchor].announced.add(message)
        return caused

    def _apply(self, rows: Sequence[Row]) -> None:
        self.rows += [
            TreeRow(row.anchor, row.delta, row.flags, row.text if row.flags & TRACK else "")
            for row in rows
        ]
