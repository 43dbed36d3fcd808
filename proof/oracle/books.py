"""The oracle's knowledge of one shard: sets of messages and ticks, and no XOR.

The books are copied, and rolled back together with the shard when a failover loses the tail. The
facts about a tree (``Tree.exists``, ``failed``) are never rolled back.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Self, TypeVar

from acker_redis.protocol.commands import COUNTERS
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.outcome import Outcome
from proof.oracle import diagnosis
from proof.oracle.facts import TRACK, BlockKey, Call, Told
from proof.oracle.fences import Fences
from proof.oracle.lifetimes import Place, newest_bucket
from proof.oracle.records import Block, Record
from proof.oracle.violations import Violation

T = TypeVar("T")


class Books:
    """Books of one shard: records, ticks, verdicts. Raises Violation if a call contradicts them.

    ``liveness``: whether a tree that is complete must be acked.
    """

    def __init__(self, config: AckerConfig, liveness: bool = True) -> None:
        self.config = config
        self.liveness = liveness
        self.ticks = 0
        self.ticked_ms = self.now_ms = 0
        self.pending: dict[int, Record] = {}
        self.expiring: dict[int, Record] = {}
        self.blocks: dict[int, Block] = {}
        self.blocks_expiring: dict[int, Block] = {}
        self.fences = Fences(config.buckets)
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.closed = False
        """Whether the namespace is resharding: no tree is tracked."""
        self.waiting: dict[str, list[Outcome]] = {}
        self.sources: dict[int, set[str]] = {}
        """The tasks that tracked an anchor: only they receive its verdicts. Never rolled back."""
        self.ended: Counter[int] = Counter()
        """Verdicts per anchor, without touches."""
        self.surplus = 0
        """Verdicts that blocks owe no tree, because they have lost a key: a second one of each
        failed tree, or one of each absent slot."""
        self.extra: Counter[int] = Counter()
        """Those that were written, per anchor."""
        self._telling = 0  # verdicts of the call under check
        self.seen: Counter[str] = Counter()
        """States worth counting; never rolled back."""

    def copy(self) -> Self:
        """Return a copy, for the case that the shard loses all later calls."""
        other = type(self)(self.config, self.liveness)
        other.ticks, other.ticked_ms = self.ticks, self.ticked_ms
        other.pending = {anchor: record.copy() for anchor, record in self.pending.items()}
        other.expiring = {anchor: record.copy() for anchor, record in self.expiring.items()}
        other.blocks = {number: block.copy() for number, block in self.blocks.items()}
        other.blocks_expiring = {n: block.copy() for n, block in self.blocks_expiring.items()}
        other.fences = self.fences.copy()
        other.counters, other.ended = self.counters.copy(), self.ended.copy()
        other.surplus, other.extra = self.surplus, self.extra.copy()
        other.sources = self.sources
        other.waiting = {task: list(told) for task, told in self.waiting.items()}
        other.seen = self.seen
        return other

    @property
    def load(self) -> int:
        """The load that admission counts: records, and all slots of a block until it ends."""
        return len(self.pending) + sum(block.size for block in self.blocks.values())

    def open_trees(self) -> Iterator[int]:
        """Yield the anchors of the trees without a verdict; an anchor may be in two lives."""
        for place in (self.pending, self.expiring):
            yield from (anchor for anchor, record in place.items() if record.tracked)
        for blocks in (self.blocks, self.blocks_expiring):
            for block in blocks.values():
                slots = block.slots.values()
                yield from (slot.tree.anchor for slot in slots if not slot.failed)

    def rotated(self, ticked: bool, now_ms: int, forced: bool = False) -> None:
        """Check a call of rotate, at ``now_ms`` by the server's clock."""
        late = now_ms - self.ticked_ms
        left = self.expiring or self.blocks_expiring
        due = (forced or late >= self.config.tick_ms) and not left
        if ticked != due:
            raise Violation("tick", f"ticked: {ticked}, {late} ms after the last tick; due: {due}")
        if late < 0 and not forced:
            self.ticked_ms = now_ms
            self.seen["clock was back"] += 1
        if ticked:
            self.ticks += 1
            self.ticked_ms = now_ms
            self.fences.ticked(now_ms)
            oldest = self.ticks - self.config.buckets
            self.expiring = {a: r for a, r in self.pending.items() if r.place.born <= oldest}
            for anchor in self.expiring:
                del self.pending[anchor]
            self.blocks_expiring = {n: b for n, b in self.blocks.items() if b.place.born <= oldest}
            for number in self.blocks_expiring:
                del self.blocks[number]

    def expired(self, told: Sequence[Told], drained: Collection[int] | None = None) -> None:
        """Check a drain: the trees that expire are nacked now, and no others.

        ``drained`` has the anchors of those that this call has drained; without it, all of them.
        """
        left = {}
        if drained is not None:
            left = {a: record for a, record in self.expiring.items() if a not in drained}
            self.expiring = self.expected(self.expiring, drained)
        for _, outcome in told:
            record = self.expiring.pop(outcome.anchor, None)
            if record is None or not record.tracked or outcome.reason != "expired":
                raise Violation("verdict", f"drained {outcome}", outcome.anchor)
            self.diagnosed(record, outcome)
            self.end(outcome)
        for anchor, record in self.expiring.items():
            if record.tracked:
                raise Violation("no verdict", "the tree expired without a verdict", anchor)
        self.counters["orphaned"] += len(self.expiring)
        self.expiring = left
        self.deliver(told)

    def expected(self, expiring: Mapping[int, T], drained: Collection[int]) -> dict[int, T]:
        """Return those of the expiring records or blocks that a call has drained."""
        if unknown := [number for number in drained if number not in expiring]:
            raise Violation("drain", f"{unknown} do not expire")
        return {number: expiring[number] for number in drained}

    def taken(self, task: str, outcomes: Iterable[Outcome]) -> None:
        """Check the verdicts that a source has taken against those that were written."""
        key = [content(outcome) for outcome in outcomes]
        wanted = [content(outcome) for outcome in self.waiting.pop(task, [])]
        if sorted(key) != sorted(wanted):
            raise Violation("stream", f"{task} took {key}, but {wanted} were written")

    def full(self, call: Call) -> bool:
        """Return whether a batch must be refused: it tracks, and too many verdicts wait.

        The TRACK of a pending block is a no-op, so it does not count.
        """
        tracks = any(row.flags & TRACK for row in call.rows) or any(
            rows.track and rows.number not in self.blocks for rows in call.blocks
        )
        full = len(self.waiting.get(call.task, ())) >= self.config.outcomes_limit
        return tracks and (self.closed or full)

    def other(self, call: Call) -> bool:
        """Return whether a batch must be refused: it tracks a pending block with other trees."""
        pending = [(rows, self.blocks.get(rows.number)) for rows in call.blocks if rows.track]
        return any(block and rows.content != block.rows.content for rows, block in pending)

    def damaged(self, call: Call) -> bool:
        """Return whether a batch must be refused: a pending block of it has lost a key."""
        named = [self.blocks.get(rows.number) for rows in call.blocks]
        return any(block and block.lost for block in named)

    def lost(self, number: int, key: BlockKey) -> None:
        """Record that a key of a block was deleted."""
        block = self.blocks.get(number) or self.blocks_expiring[number]
        block.lost |= {key}
        if key == "failed":
            self.surplus += len(block.slots) - block.open
        elif key == "present":
            self.surplus += len(block.rows.absent)

    def begun(self) -> Place:
        """Return the place of a record or a block that begins now."""
        return Place(self.ticks, self.now_ms)

    def moved(self, place: Place) -> bool:
        """Record that a row moves a record or a block; return whether its clock was restarted."""
        newest = newest_bucket(
            self.config,
            place.first_ms,
            ticks=self.ticks,
            ticked_ms=self.ticked_ms,
            now_ms=self.now_ms,
        )
        restarted = place.move(newest, self.ticks)
        self.seen["rows that a deadline left in their bucket"] += not restarted
        self.seen["rows moved as far as a deadline allows"] += restarted and place.capped
        return restarted

    def diagnosed(self, record: Record, outcome: Outcome) -> None:
        """Check cause, edges and residual of an expired tree, and count its edges."""
        if self.config.edges:
            odd = [f"odd:{self.config.edges.index(edge)}" for edge in outcome.edges]
            self.counters.update(odd or ["odd:none"])
        if self.liveness:  # otherwise a rule is broken, and rows are not whole
            self.seen[diagnosis.check(record, outcome, self.config.edges)] += 1
            self.seen[f"expired, {outcome.cause}"] += 1

    def end(self, outcome: Outcome) -> None:
        """Record a verdict that ends a tree."""
        names = {"completed": "acked"}
        self.counters[names.get(outcome.reason, outcome.reason)] += 1
        self.ended[outcome.anchor] += 1

    def deliver(self, told: Iterable[Told]) -> None:
        """Record verdicts that now wait to be taken."""
        for task, outcome in told:
            if task not in self.sources.get(outcome.anchor, {task}):
                words = f"{outcome} for {task}; {self.sources[outcome.anchor]} tracked its tree"
                raise Violation("verdict", words, outcome.anchor)
            self.waiting.setdefault(task, []).append(outcome)
            if outcome.verdict != "touch":
                self.counters[f"ended:{task}"] += 1
            if outcome.verdict == "ack":
                late = self.config.slo_ms and outcome.age_ms > self.config.slo_ms
                self.counters["slow" if late else f"good:{task}"] += 1

    def forget(self, task: str) -> None:
        """Record that the shard has forgotten a task and its counters."""
        self.counters.pop(f"ended:{task}", 0)
        self.counters.pop(f"good:{task}", 0)


def content(outcome: Outcome) -> tuple[object, ...]:
    """Return the fields of a verdict that do not depend on the speed of a server; sortable."""
    return (
        *(outcome.anchor, outcome.verdict, outcome.reason, outcome.source_id, outcome.why),
        *(outcome.cause, outcome.residual, outcome.edges),
    )
