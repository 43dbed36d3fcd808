"""The shard as the actors see it: every call goes to the backend, then to the oracle."""

import random
from collections import Counter
from collections.abc import Callable, Iterable

from acker_redis.protocol.commands import ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.outcome import Outcome
from proof.oracle import BlockKey, Oracle, Reply, Violation
from proof.simulate.backends import Backend
from proof.simulate.batches import AnySent, SentBlocks
from proof.simulate.clock import Clock
from proof.simulate.trace import Trace
from proof.simulate.trees import Tree


class Service:
    """One shard, its oracle and its history. ``offset``: the error of its clock, in ms."""

    def __init__(
        self, config: AckerConfig, backend: Backend, clock: Clock, trace: Trace, liveness: bool
    ) -> None:
        self.config = config
        self.oracle = Oracle(config, liveness)
        self.trees: dict[int, Tree] = {}
        self.counts: Counter[str] = Counter()
        self.offset = 0
        self._backend, self._clock, self._trace = backend, clock, trace
        self._server_ms = 0
        self._snapshot: tuple[Callable[[], None], Oracle] | None = None

    def apply(self, sent: AnySent) -> Reply:
        """Apply a batch, of loose rows or of blocks."""
        if self.config.deadline_ms:
            # Ticks and deadlines are at sixteenths of a tick, rows between two of them. So the real
            # time that passes on a server does not decide in which tick a deadline falls. A late
            # tick is expected with the row itself: a deadline may then fall on a tick exactly, and
            # the real time only makes the first row older, which changes nothing.
            sixteenth = self.config.tick_ms // 16
            self._set_clock(self._clock.now // sixteenth * sixteenth + sixteenth // 2)
        if isinstance(sent, SentBlocks):
            reply = self._backend.apply_blocks(sent.rows, sent.fence)
        else:
            reply = self._backend.apply(sent.rows, sent.task, sent.fence)
        told = self._backend.peek()
        rows = " ".join(
            f"{row.tree.anchor:x}:{row.delta:x}:{row.flags}:{row.done}>{row.made}"
            for row in sent.each()
        )
        verdicts = _words(outcome for _, outcome in told)
        if not isinstance(reply, ShardApplied):
            said = type(reply).__name__
        elif reply.highest is not None:
            said = f"repeat, highest {reply.highest}"
        else:
            said = f"applied, {reply.pending} pending"
        name = "apply_blocks" if isinstance(sent, SentBlocks) else "apply"
        text = f"{name} {sent.producer}#{sent.seq} [{rows}] -> {said} {verdicts}"
        anchors = {row.tree.anchor for row in sent.each()} | {o.anchor for _, o in told}
        self._trace.add(self._clock.now, text, anchors)
        self.oracle.applied(sent.call, reply, told, self._server_ms)
        self._balance(self._backend.exact)
        return reply

    def rotate(self) -> bool:
        """Tick if a tick is due, and return whether it ticked."""
        self._set_clock(self._clock.now)
        ticked = self._backend.rotate()
        if ticked:
            self._trace.add(self._clock.now, f"tick {self.oracle.ticks + 1}")
        self.oracle.rotated(ticked, self._server_ms)
        if ticked:
            self._balance()
        return ticked

    def expire(self) -> None:
        """Drain the loose trees that expire."""
        anchors = list(self.oracle.expiring)
        self._backend.expire()
        told = self._backend.peek()
        verdicts = _words(outcome for _, outcome in told)
        self._trace.add(self._clock.now, f"expire -> {verdicts}", anchors or [-1])
        self.oracle.expired(told)
        self._balance()

    def expire_blocks(self) -> None:
        """Drain the blocks that expire."""
        blocks = self.oracle.blocks_expiring.values()
        anchors = [slot.tree.anchor for block in blocks for slot in block.slots.values()]
        self._backend.expire_blocks()
        told = self._backend.peek()
        verdicts = _words(outcome for _, outcome in told)
        self._trace.add(self._clock.now, f"expire_blocks -> {verdicts}", anchors or [-1])
        self.oracle.blocks_expired(told)
        self._balance()

    def take(self, task: str) -> list[Outcome]:
        """Take the verdicts of a task and return them."""
        outcomes = self._backend.take(task)
        if outcomes:
            anchors = [outcome.anchor for outcome in outcomes]
            self._trace.add(self._clock.now, f"{task} takes {_words(outcomes)}", anchors)
        self.oracle.taken(task, outcomes)
        for outcome in outcomes:
            # An absent slot has a verdict only if its block has lost the bitmap of its slots.
            if outcome.verdict != "touch" and outcome.anchor in self.trees:
                self.trees[outcome.anchor].read.append(outcome.reason)
        return outcomes

    def lose(self, key: BlockKey, chance: random.Random) -> bool:
        """Delete this key of a block that has not ended; return False if no block has it."""
        blocks = {**self.oracle.blocks, **self.oracle.blocks_expiring}
        having = [number for number, block in blocks.items() if key in block.keys]
        if not having:
            return False
        number = chance.choice(having)
        self._backend.lose(number, key)
        self.oracle.lost(number, key)
        self.counts[f"lost keys, {key}"] += 1
        anchors = [slot.tree.anchor for slot in blocks[number].slots.values()]
        self._trace.add(self._clock.now, f"block {number:x} loses its key {key}", anchors)
        self._balance()
        return True

    def snapshot(self) -> None:
        """Take a snapshot for a later failover."""
        self._snapshot = self._backend.snapshot(), self.oracle.copy()
        self._trace.add(self._clock.now, "a replica stops replicating")

    def fail_over(self) -> None:
        """Lose all calls after the snapshot."""
        if self._snapshot is None:
            return
        restore, kept = self._snapshot
        self._snapshot = None
        restore()
        lost, self.oracle = self.oracle, kept
        before, after = _standing(lost), _standing(kept)
        for anchor, tree in self.trees.items():
            if before.get(anchor) != after.get(anchor):
                tree.rewound = True
                self.counts["trees set back"] += 1
        self.counts["failovers"] += 1
        self._trace.add(self._clock.now, "failover: all calls since then are lost")
        self._balance()

    def _set_clock(self, now: int) -> None:
        """Move the clock of the server, which has an error of ``offset``; this is expensive."""
        moved = now + self.offset - self._server_ms
        if moved:
            self._backend.advance(moved)
            self._server_ms += moved

    def _balance(self, counters: bool = True) -> None:
        """Check that every tracked tree is accounted for."""
        if not counters:
            return
        found, wanted = self._backend.counters(), self.oracle.counters
        gone = {name[6:] for name in wanted.keys() - found.keys() if name.startswith("ended:")}
        for task in gone - self._backend.names() if gone else ():
            self.oracle.forget(task)
        if found != wanted:
            raise Violation("counters", f"{found}, expected {dict(wanted)}")
        ended = ("acked", "failed", "expired", "overflow", "conflict")
        open_ = found["tracked"] - sum(found[name] for name in ended)
        open_ += self.oracle.surplus
        if open_ != self._backend.tracked_records():
            raise Violation(
                "counters", f"{found} leave {open_} trees, but the shard has another number"
            )
        if open_ and not self._backend.names():
            raise Violation("names", f"{open_} trees are pending, but no task is registered")


def _words(outcomes: Iterable[Outcome]) -> str:
    # Sorted, because shards differ in their order.
    return " ".join(sorted(map(_word, outcomes)))


def _word(outcome: Outcome) -> str:
    word = f"{outcome.anchor:x}={outcome.verdict}/{outcome.reason}"
    if outcome.reason != "expired":
        return word
    return f"{word}/{outcome.cause}/{outcome.residual:x}/{','.join(outcome.edges)}"


def _standing(oracle: Oracle) -> dict[int, tuple[int, int, int]]:
    """Return per anchor: has a tree, verdicts, verdicts not taken; without touches."""
    waiting: Counter[int] = Counter()
    for told in oracle.waiting.values():
        waiting.update(outcome.anchor for outcome in told if outcome.verdict != "touch")
    pending = set(oracle.open_trees())
    anchors = {*pending, *oracle.ended, *waiting}
    return {a: (a in pending, oracle.ended[a], waiting[a]) for a in anchors}
