"""What the oracle knows of one shard: sets of messages and ticks, and no XOR.

It is copied and set back together with the shard when a failover loses the tail; what a tree
*is* (``Tree.exists``, ``failed``) never is.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from acker_redis.batch import FAIL, TRACK
from acker_redis.commands import COUNTERS
from acker_redis.config import AckerConfig
from acker_redis.outcomes import Outcome
from acker_redis.simulate.batches import FoldedRow, Sent
from acker_redis.simulate.fences import Fences
from acker_redis.simulate.trees import Tree
from acker_redis.simulate.violations import Violation

Told = tuple[str, Outcome]
"""A task and a verdict it was told."""


@dataclass(slots=True)
class Pending:
    """A record: what was applied to it since it began."""

    tree: Tree
    born: int
    """Ticks before it was put into the newest bucket."""
    tracked: bool = False
    failed: bool = False
    done: frozenset[int] = frozenset()
    made: frozenset[int] = frozenset()
    twice: bool = False
    """Whether a message was processed in it twice: then it can only expire."""

    def add(self, row: FoldedRow) -> None:
        """Apply a row."""
        done = self.done.union(row.done)
        self.twice |= len(done) != len(self.done) + len(row.done)
        self.done, self.made = done, self.made.union(row.made)
        self.tracked |= bool(row.flags & TRACK)
        self.failed |= bool(row.flags & FAIL)

    @property
    def complete(self) -> bool:
        """Whether every message that exists was announced and processed, each once."""
        exists = self.tree.exists
        return self.tracked and not self.twice and self.done == exists == self.made


class Books:
    """Books of one shard: records, ticks, verdicts. Violation where a call contradicts them.

    ``liveness``: whether a tree that is complete must be acked.
    """

    def __init__(self, config: AckerConfig, liveness: bool = True) -> None:
        self.config = config
        self.liveness = liveness
        self.ticks = 0
        self.ticked_ms = 0
        self.pending: dict[int, Pending] = {}
        self.expiring: dict[int, Pending] = {}
        self.fences = Fences(config.buckets)
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.waiting: dict[str, list[Outcome]] = {}
        self.ended: Counter[int] = Counter()
        """Verdicts per anchor, touches not counted."""
        self._telling = 0  # verdicts of the call that is being checked
        self.seen: Counter[str] = Counter()
        """States worth counting; not set back."""

    def copy(self) -> Self:
        """A copy for the case that the shard loses what follows."""
        other = type(self)(self.config, self.liveness)
        other.ticks, other.ticked_ms = self.ticks, self.ticked_ms
        other.pending = {anchor: replace(record) for anchor, record in self.pending.items()}
        other.expiring = {anchor: replace(record) for anchor, record in self.expiring.items()}
        other.fences = self.fences.copy()
        other.counters, other.ended = self.counters.copy(), self.ended.copy()
        other.waiting = {task: list(told) for task, told in self.waiting.items()}
        other.seen = self.seen
        return other

    @property
    def tracked_records(self) -> int:
        """Trees without a verdict."""
        places = (self.pending, self.expiring)
        return sum(record.tracked for place in places for record in place.values())

    def rotated(self, ticked: bool, now_ms: int) -> None:
        """Check a call of rotate, at ``now_ms`` by the server's clock."""
        late = now_ms - self.ticked_ms
        due = late >= self.config.tick_ms and not self.expiring
        if ticked != due:
            raise Violation("tick", f"ticked: {ticked}, {late} ms after the last; due: {due}")
        if late < 0:
            self.ticked_ms = now_ms
            self.seen["clock was back"] += 1
        if ticked:
            self.ticks += 1
            self.ticked_ms = now_ms
            oldest = self.ticks - self.config.buckets
            self.expiring = {a: r for a, r in self.pending.items() if r.born <= oldest}
            for anchor in self.expiring:
                del self.pending[anchor]

    def expired(self, told: Sequence[Told]) -> None:
        """Check a drain: all that expires is nacked now, and nothing else."""
        for _, outcome in told:
            record = self.expiring.pop(outcome.anchor, None)
            if record is None or not record.tracked or outcome.reason != "expired":
                raise Violation("verdict", f"drained {outcome}", outcome.anchor)
            self.end(outcome)
        for anchor, record in self.expiring.items():
            if record.tracked:
                raise Violation("no verdict", "it expired, and nobody was told", anchor)
        self.counters["orphaned"] += len(self.expiring)
        self.expiring = {}
        self.deliver(told)

    def taken(self, task: str, outcomes: Iterable[Outcome]) -> None:
        """Check what a source has taken against what was told."""
        key = [(o.anchor, o.verdict, o.reason, o.source_id, o.why) for o in outcomes]
        told = self.waiting.pop(task, [])
        wanted = [(o.anchor, o.verdict, o.reason, o.source_id, o.why) for o in told]
        if sorted(key) != sorted(wanted):
            raise Violation("stream", f"{task} took {key}, and was told {wanted}")

    def full(self, sent: Sent) -> bool:
        """Whether a batch must be refused, for it tracks and too many verdicts wait."""
        limit = self.config.outcomes_limit
        tracks = any(row.flags & TRACK for row in sent.folded)
        return tracks and len(self.waiting.get(sent.task, ())) >= limit

    def end(self, outcome: Outcome) -> None:
        """Note a verdict that ends a tree."""
        names = {"completed": "acked"}
        self.counters[names.get(outcome.reason, outcome.reason)] += 1
        self.ended[outcome.anchor] += 1

    def deliver(self, told: Iterable[Told]) -> None:
        """Note verdicts that wait to be taken now."""
        for task, outcome in told:
            self.waiting.setdefault(task, []).append(outcome)
