"""Trees of random shape, with sets that record which messages were really processed.

A row is drawn before a client gets it. So when an ``ack`` is read, every message of its tree must
have been drawn. A tree with a failed or never acked message must never be acked.
"""

import random
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from acker_redis.protocol.ids import TUPLE_MAX
from acker_redis.protocol.outcome import Outcome
from acker_redis.protocol.rows import Row, ack_row, fail_row, track_row

LARGEST = 12
"""Maximum number of messages of a tree."""


@dataclass(slots=True, eq=False)
class Tree:
    anchor: int
    messages: int = 0
    open: set[int] = field(default_factory=set)
    """Messages that were emitted and not yet processed."""
    failed: bool = False
    in_doubt: bool = False
    """Whether a batch with one of its rows was given up, so that it may never complete."""
    track_in_doubt: bool = False
    verdicts: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.open and not self.failed


@dataclass(frozen=True, slots=True)
class Drawn:
    tree: Tree
    row: Row
    tracks: bool = False


class Forest:
    """A number of trees; any thread may draw their rows."""

    def __init__(self, trees: int, seed: int) -> None:
        self.trees: dict[int, Tree] = {}
        self.false_acks: list[int] = []
        """Trees that were acked before all their messages were drawn."""
        self._left = trees
        self._todo: list[tuple[Tree, int]] = []
        self._chance = random.Random(seed)
        self._lock = threading.Lock()

    @property
    def half_planted(self) -> bool:
        return len(self.trees) > self._left

    def draw(self, most: int) -> list[Drawn]:
        """Return 1 to ``most`` rows of processed messages; [] when no row is left."""
        chance, drawn = self._chance, list[Drawn]()
        with self._lock:
            count = chance.randint(1, most)
            while len(drawn) < count and (self._left or self._todo):
                if self._left and (not self._todo or chance.random() < 0.25):
                    drawn.append(self._plant())
                elif found := self._process():
                    drawn.append(found)
        return drawn

    def given_up(self, drawn: Iterable[Drawn]) -> None:
        """Record that it is unknown whether these rows were applied."""
        for each in drawn:
            each.tree.in_doubt = True
            each.tree.track_in_doubt |= each.tracks

    def note(self, outcomes: Iterable[Outcome]) -> None:
        """Record verdicts when they are read."""
        for outcome in outcomes:
            tree = self.trees[int(outcome.source_id)]
            tree.verdicts.append(outcome.reason)
            if outcome.verdict == "ack" and not tree.complete:
                self.false_acks.append(tree.anchor)

    def wrong(self) -> Counter[str]:
        """Return the number of errors of each kind at the end; empty if there are none."""
        found = Counter({"acked falsely": len(self.false_acks)})
        for tree in self.trees.values():
            found["reported twice"] += len(tree.verdicts) > 1
            found["never reported"] += not tree.verdicts and not tree.track_in_doubt
            done = tree.complete and not tree.in_doubt
            found["complete, and not acked"] += done and tree.verdicts != ["completed"]
            found["failed otherwise"] += bool(
                set(tree.verdicts) - {"completed", "failed", "expired"}
            )
        return +found

    def kinds(self) -> Counter[str]:
        """Return the number of trees of each kind."""
        return Counter(
            "in doubt" if t.in_doubt else "failed" if t.failed else "open" if t.open else "complete"
            for t in self.trees.values()
        )

    def _plant(self) -> Drawn:
        self._left -= 1
        anchor = self._chance.randint(1, TUPLE_MAX >> 1)
        tree = self.trees[anchor] = Tree(anchor)
        first = self._emit(tree, self._chance.randint(1, 3))
        return Drawn(tree, track_row(anchor, str(anchor), first), tracks=True)

    def _process(self) -> Drawn | None:
        chance, todo = self._chance, self._todo
        number = chance.randrange(len(todo))
        todo[number], todo[-1] = todo[-1], todo[number]
        tree, message = todo.pop()
        fate = chance.random()
        if fate < 0.003:
            return None  # never acked: its tree may only expire
        if fate < 0.004:
            tree.failed = True
            return Drawn(tree, fail_row(tree.anchor, "why"))
        caused = self._emit(tree, chance.choice((0, 0, 0, 1, 1, 2, 3)))
        tree.open.remove(message)
        if fate < 0.006:
            tree.failed = True
            return Drawn(tree, fail_row(tree.anchor, "", message, caused))
        return Drawn(tree, ack_row(tree.anchor, message, caused))

    def _emit(self, tree: Tree, count: int) -> list[int]:
        count = min(count, LARGEST - tree.messages)
        ids = [self._chance.randint(1, TUPLE_MAX) for _ in range(count)]
        tree.messages += count
        tree.open.update(ids)
        self._todo += [(tree, id_) for id_ in ids]
        return ids
