"""Histories in which a shard returns to any of its earlier states, any number of times.

An old snapshot, a promoted replica and a truncated log have this effect. Clients do not go back:
their lanes continue, and they retry batches in doubt, or batches of long ago. Sets record the truth
(``tests/properties/topology.py``), and they do not go back either: a processed message stays
processed.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from acker_redis.errors import BacklogError, ChangedBatchError
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import ANCHOR_MAX
from acker_redis.protocol.outcome import Outcome
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockRow
from proof.simulate.backends import Backend
from tests.properties.topology import FAIL, TOUCH, TRACK, Forest, Slot, fold, fold_blocks

TASK = "t"
LANES = ("p", "q", "@r", "@s")
SNAPSHOTS = 4
CONFIG = AckerConfig(tick_ms=1000, buckets=3, high_water=10_000, publish=False)

OPS = {
    "begin": 3,
    "begin_block": 2,
    "process": 10,
    "send": 8,
    "again": 3,
    "tick": 1,
    "drain": 2,
    "take": 2,
    "save": 2,
    "back": 2,
}
BREAKS = ("split", "parted")
"""Rules that a history breaks on purpose: an input and its children in two rows; a failure and its
delta in two rows. Without lost writes the second one is harmless."""


class FalseAck(AssertionError):
    """Raised when a tree is acked that is incomplete or has failed."""


@dataclass
class _Sent:
    rows: Sequence[TreeRow] | Sequence[BlockRow]
    blocks: bool
    fence: Fence


class History:
    """One history, on several backends in parallel, which must agree."""

    def __init__(self, backends: Sequence[Backend], seed: int, breaks: str = "") -> None:
        self.seen: Counter[str] = Counter()
        """Number of times that each interesting state was reached."""
        self._backends, self._breaks = backends, breaks
        self._chance = random.Random(seed)
        self._forest = Forest(self._chance)
        self._waiting: dict[str, list[TreeRow]] = {lane: [] for lane in LANES}
        self._seq = dict.fromkeys(LANES, 0)
        self._sent: list[_Sent] = []
        self._saved: list[tuple[Callable[[], None], ...]] = []
        self._restored = False
        self._reported: Counter[int] = Counter()

    def play(self, steps: int) -> None:
        """Play random steps, and let the remaining trees expire."""
        names, weights = list(OPS), list(OPS.values())
        for name in self._chance.choices(names, weights, k=steps):
            getattr(self, f"_{name}")()
        for lane in LANES:
            self._deliver(lane)
        for _ in range(CONFIG.buckets + 1):
            self._tick()
            self._drain()

    def _begin(self) -> None:
        chance, forest = self._chance, self._forest
        shared = forest.pick([chance.randrange(1000)] if chance.random() < 0.2 else [])
        self._add([forest.begin(chance.randint(0 if shared else 1, 2), shared)])

    def _begin_block(self) -> None:
        chance = self._chance
        slots: list[Slot] = [
            (chance.randint(0, 2), []) if chance.random() < 0.8 else None
            for _ in range(chance.randint(1, 4))
        ]
        if any(slots):
            self._add(self._forest.begin_block(slots)[1])

    def _process(self) -> None:
        chance, forest = self._chance, self._forest
        inputs = forest.pick([chance.randrange(1000) for _ in range(chance.choice((1, 1, 1, 2)))])
        children = chance.choice((0, 0, 0, 0, 1, 2))
        flags = chance.choice((0,) * 10 + (FAIL, TOUCH))
        if chance.random() < 0.05 and inputs:
            forest.lose(inputs[0])  # it is never processed
            return
        owns = [own for message in inputs for own in message.ids.values()]
        rows = forest.process(inputs, children, flags, "no" if flags & FAIL else "")
        self._add(rows if not self._breaks else self._broken(rows, owns))

    def _broken(self, rows: Sequence[TreeRow], owns: Sequence[int]) -> list[TreeRow]:
        kept = []
        for row, own in zip(rows, owns, strict=True):
            if self._breaks == "split" and row.delta != own:
                self._add([replace(row, delta=row.delta ^ own)])
                kept.append(TreeRow(row.anchor, own))
            elif self._breaks == "parted" and row.flags & FAIL:
                self._add([replace(row, delta=0)])
                kept.append(TreeRow(row.anchor, row.delta))
            else:
                kept.append(row)
        return kept

    def _add(self, rows: Sequence[TreeRow]) -> None:
        self._waiting[self._chance.choice(LANES)] += rows

    def _send(self) -> None:
        self._deliver(self._chance.choice(LANES))

    def _deliver(self, lane: str) -> None:
        rows, self._waiting[lane] = self._waiting[lane], []
        loose = fold([row for row in rows if row.anchor <= ANCHOR_MAX])
        in_blocks = [row for row in rows if row.anchor > ANCHOR_MAX]
        blocks = fold_blocks(in_blocks, TASK, self._forest.sizes)
        for part, in_blocks in ((loose, False), (blocks, True)):
            if part:
                self._seq[lane] += 1
                digest = hashlib.sha1(repr(part).encode()).hexdigest()[:8]
                sent = _Sent(part, in_blocks, Fence(lane, self._seq[lane], digest))
                self._sent.append(sent)
                if self._chance.random() < 0.9:  # otherwise it is lost, and may be sent later
                    self._apply(sent)

    def _again(self) -> None:
        """Retry a batch: usually a recent one, which is in doubt; sometimes one of long ago."""
        if self._sent:
            back = self._chance.choice((1, 1, 2, 3, self._chance.randint(1, len(self._sent))))
            self._apply(self._sent[-min(back, len(self._sent))])

    def _apply(self, sent: _Sent) -> None:
        def call(backend: Backend) -> object:
            try:
                if sent.blocks:
                    return backend.shard.apply_blocks(sent.rows, sent.fence)  # type: ignore[arg-type]
                task = TASK if any(row.flags & TRACK for row in sent.rows) else ""  # type: ignore[union-attr]
                return backend.shard.apply(sent.rows, task, sent.fence)  # type: ignore[arg-type]
            except (ChangedBatchError, BacklogError) as error:
                return error

        replies = [call(backend) for backend in self._backends]
        first = replies[0]
        if isinstance(first, ShardApplied):
            assert all(reply == first for reply in replies), replies
            self.seen["repeats not applied"] += first.highest is not None
        else:
            assert len({type(reply) for reply in replies}) == 1, replies
        self._hear()

    def _tick(self) -> None:
        for backend in self._backends:
            backend.shard.advance(CONFIG.tick_ms)
        ticked = [backend.shard.rotate() for backend in self._backends]
        assert len(set(ticked)) == 1

    def _drain(self) -> None:
        for backend in self._backends:
            backend.drain(None, None)
            backend.drain_blocks(None, None)
        self._hear()

    def _take(self) -> None:
        for backend in self._backends:
            backend.take(TASK)

    def _save(self) -> None:
        saved = tuple(backend.snapshot() for backend in self._backends)
        if len(self._saved) < SNAPSHOTS:
            self._saved.append(saved)
        else:
            self._saved[self._chance.randrange(SNAPSHOTS)] = saved

    def _back(self) -> None:
        """Restore a saved state, which may be of a discarded past."""
        if not self._saved:
            return
        number = self._chance.randrange(len(self._saved))
        for restore in self._saved[number]:
            restore()
        # Restoring uses up the snapshot, so take it again.
        self._saved[number] = tuple(backend.snapshot() for backend in self._backends)
        self._restored = True
        self.seen["restores"] += 1

    def _hear(self) -> None:
        """Check the new verdicts: no ack is false, and all backends agree."""
        found = [
            sorted(_words(outcome) for _, outcome in backend.peek()) for backend in self._backends
        ]
        assert all(each == found[0] for each in found), found
        for anchor, verdict in found[0]:
            if verdict == "touch":
                continue
            tree = self._forest.trees.get(anchor)
            if tree is None:
                raise FalseAck(f"{anchor:x}: a verdict for an absent slot")
            self._reported[anchor] += 1
            self.seen["trees reported twice"] += self._reported[anchor] == 2
            if verdict == "ack":
                name = "acks after a restore" if self._restored else "acks"
                self.seen[name] += 1
                if not tree.complete or tree.failing:
                    raise FalseAck(f"{anchor:x}: {tree}")


def _words(outcome: Outcome) -> tuple[int, str]:
    return outcome.anchor, outcome.verdict


__all__ = ["BREAKS", "CONFIG", "TASK", "FalseAck", "History"]
