"""Batches as producers send them, with what the oracle may know of their rows."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from acker_redis.commands import Fence, ShardApplied
from acker_redis.errors import AckerError
from acker_redis.reference import Row
from acker_redis.simulate.trees import Tree

Reply = ShardApplied | AckerError
After = tuple[int, Callable[[], None]]
"""An anchor, and what is to be done once its row was applied and not rejected."""


@dataclass(slots=True)
class FoldedRow:
    """All that one batch says of one tree."""

    tree: Tree
    delta: int = 0
    flags: int = 0
    why: str = ""
    done: tuple[int, ...] = ()
    """Numbers of the messages that were processed."""
    made: tuple[int, ...] = ()
    """Numbers of the messages that were announced."""

    def fold(
        self, delta: int, flags: int, why: str, done: tuple[int, ...], made: tuple[int, ...]
    ) -> None:
        """Merge another row of this tree."""
        self.delta ^= delta
        self.flags |= flags
        self.why = self.why or why
        self.done += done
        self.made += made

    def changed(self, number: int, id_: int) -> "FoldedRow":
        """The same row with one more message announced: a plan that is not deterministic."""
        made = (*self.made, number)
        return FoldedRow(self.tree, self.delta ^ id_, self.flags, self.why, self.done, made)


@dataclass(slots=True)
class Sent:
    """A batch under its number. ``at`` is when it was sent first, in virtual ms."""

    producer: str
    seq: int
    task: str
    folded: list[FoldedRow]
    at: int
    digests: bool = True
    after: list[After] = field(default_factory=list)
    rows: list[Row] = field(init=False)
    fence: Fence = field(init=False)

    def __post_init__(self) -> None:
        self.rows = [
            Row(row.tree.anchor, row.delta, row.flags, row.tree.source_id, row.why)
            for row in self.folded
        ]
        text = ",".join([f"{r.anchor} {r.delta} {r.flags} {r.why}" for r in self.rows])
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        self.fence = Fence(self.producer, self.seq, digest if self.digests else "")
