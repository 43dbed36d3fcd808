"""The shard as the actors see it: every call goes to each backend, then to the oracle."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from acker_redis.errors import AckerError, BacklogError, ChangedBatchError, SchemaError
from acker_redis.protocol.commands import ENDED, ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.outcome import Outcome
from proof.oracle import BlockKey, Oracle, Reply, Told, Violation
from proof.oracle.books import content
from proof.simulate.backends import Backend
from proof.simulate.batches import AnySent, SentBlocks
from proof.simulate.clock import Clock
from proof.simulate.trace import Trace
from proof.simulate.trees import Tree

T = TypeVar("T")


class Service:
    """One shard, its oracle and its history. ``offset``: the error of its clock, in ms.

    All backends get every call. They must do the same, except that the first one chooses which
    trees or blocks a drain in parts drains.
    """

    def __init__(
        self,
        config: AckerConfig,
        backends: Sequence[Backend],
        clock: Clock,
        trace: Trace,
        liveness: bool,
    ) -> None:
        self.config = config
        self.oracle = Oracle(config, liveness)
        self.trees: dict[int, Tree] = {}
        self.counts: Counter[str] = Counter()
        self.offset = 0
        self._backends, self._clock, self._trace = backends, clock, trace
        self._exact = all(backend.exact for backend in backends)
        self._server_ms = 0
        self._snapshots: list[tuple[list[Callable[[], None]], Oracle]] = []

    def apply(self, sent: AnySent) -> Reply:
        """Apply a batch, of loose rows or of blocks."""
        if self.config.deadline_ms:
            # Ticks and deadlines are at sixteenths of a tick, rows between two of them. So the real
            # time that passes on a server does not decide in which tick a deadline falls. A late
            # tick is expected with the row itself: a deadline may then fall on a tick exactly, and
            # the real time only makes the first row older, which changes nothing.
            sixteenth = self.config.tick_ms // 16
            self._set_clock(self._clock.now // sixteenth * sixteenth + sixteenth // 2)
        reply = self._all("reply", lambda backend: _reply(backend, sent), _comparable)
        told = self._peek()
        rows = " ".join(
            f"{row.tree.anchor:x}:{row.delta:x}:{row.flags}:{row.done}>{row.made}"
            for row in sent.each()
        )
        verdicts = _words(told)
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
        self._balance(self._exact)
        return reply

    def rotate(self) -> bool:
        """Tick if a tick is due, and return whether it ticked."""
        self._set_clock(self._clock.now)
        ticked = self._all("rotate", lambda backend: backend.shard.rotate())
        if ticked:
            self._trace.add(self._clock.now, f"tick {self.oracle.ticks + 1}")
        self.oracle.rotated(ticked, self._server_ms)
        if ticked:
            self._balance()
        return ticked

    def expire(self, most: int | None = None) -> None:
        """Drain the loose trees that expire, about ``most`` or all."""
        anchors, gone = list(self.oracle.expiring), None
        for backend in self._backends:
            gone = backend.drain(most, gone)
        told = self._peek()
        self._trace.add(self._clock.now, f"expire -> {_words(told)}", anchors or [-1])
        self.oracle.expired(told, gone if most else None)
        self._balance()

    def expire_blocks(self, most: int | None = None) -> None:
        """Drain the blocks that expire, about ``most`` or all."""
        blocks, gone = self.oracle.blocks_expiring.values(), None
        anchors = [slot.tree.anchor for block in blocks for slot in block.slots.values()]
        for backend in self._backends:
            gone = backend.drain_blocks(most, gone)
        told = self._peek()
        self._trace.add(self._clock.now, f"expire_blocks -> {_words(told)}", anchors or [-1])
        self.oracle.blocks_expired(told, gone if most else None)
        self._balance()

    def take(self, task: str) -> list[Outcome]:
        """Take the verdicts of a task and return them."""
        outcomes = self._all("take", lambda backend: backend.take(task), _ageless)
        if outcomes:
            anchors = [outcome.anchor for outcome in outcomes]
            words = _words((task, outcome) for outcome in outcomes)
            self._trace.add(self._clock.now, f"{task} takes {words}", anchors)
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
        for backend in self._backends:
            backend.shard.lose(number, key)
        self.oracle.lost(number, key)
        self.counts[f"lost keys, {key}"] += 1
        anchors = [slot.tree.anchor for slot in blocks[number].slots.values()]
        self._trace.add(self._clock.now, f"block {number:x} loses its key {key}", anchors)
        self._balance()
        return True

    def snapshot(self) -> None:
        """Take a snapshot for later failovers; the last four are kept."""
        restores = [backend.snapshot() for backend in self._backends]
        self._snapshots = [*self._snapshots[-3:], (restores, self.oracle.copy())]
        self._trace.add(self._clock.now, "a replica stops replicating")

    def fail_over(self, back: int = 1) -> None:
        """Lose all calls after a snapshot; ``back``: 1 for the last one, 2 for that before, ..

        An older snapshot may be of a past that an earlier failover has discarded.
        """
        restores, kept = self._snapshots[-min(back, len(self._snapshots))]
        for restore in restores:
            restore()
        lost, self.oracle = self.oracle, kept.copy()
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
            for backend in self._backends:
                backend.shard.advance(moved)
            self._server_ms += moved

    def _balance(self, counters: bool = True) -> None:
        """Check that every tracked tree is accounted for."""
        if not counters:
            return
        found = self._all("counters", lambda backend: backend.counters(), _unhurried)
        wanted = self.oracle.counters
        gone = {name[6:] for name in wanted.keys() - found.keys() if name.startswith("ended:")}
        for task in gone - self._names() if gone else ():
            self.oracle.forget(task)
        if found != wanted:
            raise Violation("counters", f"{found}, expected {dict(wanted)}")
        open_ = found["tracked"] - sum(found[name] for name in ENDED)
        open_ += self.oracle.surplus
        if open_ != self._all("open trees", lambda backend: backend.tracked_records()):
            raise Violation(
                "counters", f"{found} leave {open_} trees, but the shard has another number"
            )
        if open_ and not self._names():
            raise Violation("names", f"{open_} trees are pending, but no task is registered")

    def _peek(self) -> list[Told]:
        told = self._all("verdicts", lambda backend: backend.peek(), _told)
        if self.counts["failovers"]:
            self.counts["acks after a failover"] += sum(o.verdict == "ack" for _, o in told)
        return told

    def _names(self) -> set[str]:
        return self._all("names of tasks", lambda backend: backend.names())

    def _all(
        self, what: str, call: Callable[[Backend], T], same: Callable[[T], object] | None = None
    ) -> T:
        """Make a call to each backend; raise Violation unless ``same`` of the results is equal."""
        first, *others = map(call, self._backends)
        for other in others:
            if same(first) != same(other) if same else first != other:
                raise Violation("backends differ", f"{what}: {first!r}, {other!r}")
        return first


def _reply(backend: Backend, sent: AnySent) -> Reply:
    try:
        return sent.to(backend.shard)
    except (ChangedBatchError, BacklogError, SchemaError) as error:
        return error


def _comparable(reply: Reply) -> object:
    return type(reply) if isinstance(reply, AckerError) else reply


def _ageless(outcomes: Iterable[Outcome]) -> object:
    """Return what does not depend on the speed of a server, or on the order of an entry."""
    return sorted(map(content, outcomes))


def _told(told: Iterable[Told]) -> object:
    return sorted((task, content(outcome)) for task, outcome in told)


def _unhurried(counters: dict[str, int]) -> object:
    """Return the counters that do not depend on the speed of a server."""
    return {n: count for n, count in counters.items() if n != "slow" and n[:5] != "good:"}


def _words(told: Iterable[Told]) -> str:
    # Sorted, because shards differ in their order.
    return " ".join(sorted(_word(outcome) for _, outcome in told))


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
