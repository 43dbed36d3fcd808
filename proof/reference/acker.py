"""The reference model of the scripts: one shard of an acker in plain Python.

The state is in dictionaries, and the caller moves the clock. The model is the oracle of the
tests: Redis must do exactly what the model does. Read it to understand the system; for the
terms, see ``docs/explanation/algorithm.md`` and ``lua/README.md``. ``RedisShard`` (in
``simulate``) has the same methods on a real server.

Not modelled, because they depend on how Redis stores data: the records that one call of
``expire`` drains, maxmemory, the limits on fences and tasks, and the validation of bytes
(``tests/servers``).
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from acker_redis.errors import BacklogError, ChangedBatchError
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import EDGE_BIT
from acker_redis.protocol.latency import Latency
from acker_redis.protocol.outcome import Outcome, VerdictKind, odd_edges
from acker_redis.protocol.rows import FAIL, TOUCH, TRACK

DURABLE_MS = 30 * 24 * 3600 * 1000
"""A durable lane expires this long after its last batch."""
MAX_SINCE_MS = 2**32 - 1
"""The last row of a tree is remembered in four bytes, as the time since the first."""
QUIET_TICKS = 100
"""A task without verdicts is forgotten this many ticks after its last use; no tree lives longer."""


@dataclass(frozen=True)
class TreeRow:
    """A row: the effect of one message on its tree. ``delta`` is its id XOR all ids it caused."""

    anchor: int
    delta: int
    flags: int = 0
    source_id: str = ""
    why: str = ""


@dataclass
class Record:
    """A pending tree. A record without a task was never tracked."""

    first_ms: int
    last_ms: int = 0
    """Time of the last row, see :meth:`Reference._last`. No decision depends on it."""
    checksum: int = 0
    task: str = ""
    source_id: str = ""
    why: str | None = None
    """Why the tree failed, or None if it has not failed."""
    capped: bool = False
    """Whether the deadline kept the last move out of the newest bucket."""


@dataclass
class Reference:
    """One shard of an acker. ``now_ms`` is its clock."""

    config: AckerConfig = field(default_factory=AckerConfig)
    now_ms: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    latency: Latency = field(default_factory=Latency)
    """How long acked trees took. Statistics only: no decision depends on it."""
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    """Verdicts per task that were not taken yet."""
    slow: int = 0
    """Acked trees that took longer than ``slo_ms``."""
    ended: Counter[str] = field(default_factory=Counter)
    """Trees that were acked or nacked, per task."""
    good: Counter[str] = field(default_factory=Counter)
    """Trees that were acked in time, per task."""
    odd: Counter[int] = field(default_factory=Counter)
    """Expired trees by the number of an edge on which their residual is odd; -1 for none."""
    after_failure: int = 0
    """Those of the orphans that late rows of failed trees explain. Statistics, like the others."""
    reshard: bool = False
    """The namespace is resharding: no new tree is tracked."""

    def __post_init__(self) -> None:
        n, shards = self.config.buckets, self.config.shards
        self.buckets: deque[dict[int, Record]] = deque({} for _ in range(n))  # newest first
        self.fences: deque[dict[str, tuple[int, str]]] = deque({} for _ in range(n))
        self.durable: dict[str, tuple[int, str, int]] = {}
        self.unfinished: deque[int] = deque([0] * n)
        """Trees that failed with messages outstanding, by the bucket that was the newest."""
        self._failing, self._left = 0, 0
        """Those of the expiring bucket; and how many orphans of it they still explain, with those
        of the bucket before."""
        self.expiring: dict[int, Record] = {}
        self.ticked_ms = self.now_ms
        self.late_ms = 0  # of the last tick
        self.ticks = 0
        self.names: dict[str, int] = {}
        """Task -> the tick in which it last put a tree into the newest bucket."""
        self._told: dict[tuple[str, VerdictKind, str], list[Outcome]] = {}
        self.high_water = self.config.share
        self.outcomes_limit = max(1, -(-self.config.outcomes_limit // shards))

    @property
    def pending(self) -> int:
        """Number of records in the buckets."""
        return sum(map(len, self.buckets))

    @property
    def tracked_records(self) -> int:
        """Number of pending trees, expiring ones included: records that have a task."""
        places = (*self.buckets, self.expiring)
        return sum(1 for place in places for record in place.values() if record.task)

    def is_pending(self, anchor: int) -> bool:
        """Return whether a tree was tracked and has no verdict yet."""
        places = (*self.buckets, self.expiring)
        return any(anchor in place and bool(place[anchor].task) for place in places)

    @property
    def draining(self) -> bool:
        """Whether the expiring bucket has records. No tick happens before it is drained."""
        return bool(self.expiring)

    def apply(
        self, rows: Iterable[TreeRow], task: str = "", fence: Fence | None = None
    ) -> ShardApplied:
        """Apply a batch, all or nothing. Raise ChangedBatchError or BacklogError if refused."""
        rows = list(rows)
        highest = self._repeated(fence) if fence else None
        if highest is not None:
            self.counters["repeated"] += 1
            return ShardApplied(highest=highest)
        tracks = any(row.flags & TRACK for row in rows)
        waiting = self.backlog(task)
        if tracks and self.reshard:
            raise BacklogError(
                "the namespace is resharding; no tree is tracked until that ends, try again later"
            )
        if tracks and waiting >= self.outcomes_limit:
            raise BacklogError(
                f"task {task} has {waiting} verdicts waiting to be taken; its source must read and "
                "take its outcomes"
            )
        if fence:
            self._remember(fence)
        if tracks:
            self.names[task] = self.ticks
        before = self.counters.copy()
        rejected = [row.anchor for row in rows if self._row(row, task)]
        self._deliver()
        new = self.counters - before
        failed = new["failed"] + new["conflict"]
        return ShardApplied(
            None,
            new["tracked"],
            new["acked"],
            failed,
            self.pending,
            self.high_water,
            tuple(rejected),
        )

    def rotate(self, force: bool = False) -> bool:
        """Tick if a tick is due or forced, and return whether it ticked."""
        late = self.now_ms - self.ticked_ms
        if late < 0 and not force:
            self.ticked_ms = self.now_ms  # the clock went back
            return False
        if self.draining or (late < self.config.tick_ms and not force):
            return False
        self.expiring = self.buckets.pop()
        self.buckets.appendleft({})
        self._left = self.unfinished[-1] + min(self._left, self._failing)
        self._failing = self.unfinished.pop()
        self.unfinished.appendleft(0)
        self.fences.pop()
        self.fences.appendleft({})
        for lane, (*_, used_ms) in list(self.durable.items()):
            if self.now_ms - used_ms > DURABLE_MS:
                del self.durable[lane]
        for name, used in list(self.names.items()):
            if self.ticks - used >= QUIET_TICKS and not self.backlog(name):
                del self.names[name], self.ended[name], self.good[name]
        self.ticks += 1
        self.late_ms = max(0, late - self.config.tick_ms)
        self.ticked_ms = self.now_ms  # a late tick is not caught up
        return True

    def expire(self, anchors: Iterable[int] | None = None) -> int:
        """Drain all expiring records, or only ``anchors``, and return the number left."""
        for anchor in list(self.expiring) if anchors is None else anchors:
            record = self.expiring.pop(anchor)
            self.counters["expired" if record.task else "orphaned"] += 1
            if record.task:
                self._tell("nack", "expired", anchor, record)
                self._count_odd(record.checksum)
            elif self._left:
                self._left -= 1
                self.after_failure += 1
        self._deliver()
        return len(self.expiring)

    def take(self, task: str) -> list[Outcome]:
        """Remove and return the verdicts that wait for a task, oldest first."""
        return self.outcomes.pop(task, [])

    def backlog(self, task: str) -> int:
        """Return the number of verdicts that wait for a task."""
        return len(self.outcomes.get(task, ()))

    def advance(self, ms: int) -> None:
        """Move the clock, back if ``ms`` is negative."""
        self.now_ms += ms

    def _row(self, row: TreeRow, task: str) -> bool:
        """Apply one row, and return whether its tree was rejected.

        The row changes the record of its anchor, or a new one. Then the first line that applies:

        ========  ====================================  =========================================
        record    then                                  effect
        ========  ====================================  =========================================
        existed   TRACK, and it had a task              conflict: both trees are nacked
        any       it has a task and a why               nack, failed
        any       it has a task, and is zero            ack, completed
        new       a task; pending at twice high_water   nack, overflow: the tree is rejected
        new       no task, no why, zero                 nothing
        new       no task; pending at high_water, or    dropped, counted as orphaned
                  the namespace is resharding
        new       otherwise                             put into the newest bucket
        existed   otherwise                             stays; TOUCH, FAIL and refresh may move it
        ========  ====================================  =========================================
        """
        age = next((age for age, bucket in enumerate(self.buckets) if row.anchor in bucket), None)
        record = self.buckets[age][row.anchor] if age is not None else Record(self.now_ms)
        if row.flags & TRACK and record.task:
            self._conflict(row, task, record)
            self._forget(row.anchor)
            return False
        record.checksum ^= row.delta
        record.last_ms = self._last(record.first_ms)
        if row.flags & FAIL:
            record.why = record.why or row.why
        if row.flags & TRACK:
            record.task, record.source_id = task, row.source_id
            self.counters["tracked"] += 1
        if record.task and (record.why is not None or record.checksum == 0):
            self._end(row.anchor, record)
            self._forget(row.anchor)
            return False
        if age is None:
            return self._start(row, record)
        self._stay(row, record, age)
        return False

    def _end(self, anchor: int, record: Record) -> None:
        """End a tree that has failed or is zero; failed has priority."""
        if record.why is not None:
            self.counters["failed"] += 1
            self.unfinished[0] += record.checksum != 0
            self._tell("nack", "failed", anchor, record, record.why)
        else:
            self.counters["acked"] += 1
            self.latency = self.latency.plus(self.now_ms - record.first_ms)
            self._tell("ack", "completed", anchor, record)

    def _start(self, row: TreeRow, record: Record) -> bool:
        """Put a new record into the newest bucket if there is room; return whether to reject it."""
        if record.task:
            if self.pending >= 2 * self.high_water:
                self.counters["overflow"] += 1
                self._tell("nack", "overflow", row.anchor, record)
                return True
            if row.flags & TOUCH:
                self._tell("touch", "reset", row.anchor, record)
        elif record.why is None and record.checksum == 0:
            return False
        elif self.reshard or self.pending >= self.high_water:
            self.counters["orphaned"] += 1
            return False
        self.buckets[0][row.anchor] = record
        return False

    def _stay(self, row: TreeRow, record: Record, age: int) -> None:
        """Restart the clock of a pending record, if the row does: move it to a newer bucket."""
        if not (row.flags & (TOUCH | FAIL) or self.config.refresh == "update"):
            return
        to, record.capped = self._moved_to(age, record.first_ms)
        self._forget(row.anchor)
        self.buckets[to][row.anchor] = record
        if record.task:
            self.names[record.task] = self.ticks
            # If the deadline leaves the record where it is, no clock was restarted.
            if row.flags & TOUCH and not (record.capped and to == age):
                self._tell("touch", "reset", row.anchor, record)

    def _moved_to(self, age: int, first_ms: int) -> tuple[int, bool]:
        """Return the age of the bucket to which a row moves a tree, from the bucket of ``age``.

        It is the newest bucket that expires with the first tick that is not before the deadline, or
        earlier. The second value says whether that is not the newest of all.
        """
        config = self.config
        if not config.deadline_ms:
            return 0, False
        # The next tick that is on time. The clock may have gone back since the last tick.
        next_ms = max(self.ticked_ms + config.tick_ms, self.now_ms)
        next_ms = min(next_ms, self.now_ms + config.tick_ms)
        left = first_ms + config.deadline_ms - next_ms
        ticks = 1 - (-left // config.tick_ms)  # rounded up
        newest = max(0, config.buckets - max(1, ticks))
        return min(age, newest), newest > 0

    def _last(self, first_ms: int) -> int:
        """Return the time of a row as it is stored: in the 49 days from the first row on."""
        return first_ms + min(max(0, self.now_ms - first_ms), MAX_SINCE_MS)

    def _count_odd(self, residual: int) -> None:
        if not self.config.edges:
            return
        edges = [e for e in range(len(self.config.edges)) if residual >> EDGE_BIT + e & 1]
        self.odd.update(edges or [-1])

    def _count_end(self, task: str, ended: int, acked: int, age_ms: int) -> None:
        """Count trees of one age that have ended, and those of them that were acked."""
        if not ended:
            return
        late = bool(self.config.slo_ms and age_ms > self.config.slo_ms)
        self.ended[task] += ended
        self.good[task] += 0 if late else acked
        self.slow += acked if late else 0

    def _conflict(self, row: TreeRow, task: str, record: Record) -> None:
        """Nack two trees under one anchor, or one of their sources would wait for ever."""
        self._tell("nack", "conflict", row.anchor, record)
        self.counters["conflict"] += 1
        if (record.task, record.source_id) != (task, row.source_id):
            second = Record(self.now_ms, task=task, source_id=row.source_id)
            self._tell("nack", "conflict", row.anchor, second)
            self.counters["conflict"] += 1
            self.counters["tracked"] += 1

    def _tell(
        self, verdict: VerdictKind, reason: str, anchor: int, record: Record, why: str = ""
    ) -> None:
        age = max(0, self.now_ms - record.first_ms)
        outcome = Outcome(verdict, reason, anchor, record.source_id, age, why)
        if reason == "expired":
            outcome = replace(
                outcome,
                cause="deadline" if record.capped else "idle",
                residual=record.checksum,
                idle_ms=max(0, self.now_ms - record.last_ms),
                edges=odd_edges(self.config.edges, record.checksum),
            )
        self._told.setdefault((record.task, verdict, reason), []).append(outcome)

    def _deliver(self) -> None:
        """Write the verdicts of one call, one entry per task, verdict and reason."""
        for (task, verdict, _), entry in self._told.items():
            waiting = self.outcomes.setdefault(task, [])
            for outcome in entry:
                self._count_end(task, verdict != "touch", verdict == "ack", outcome.age_ms)
            # A touch is dropped when the backlog is full: the source has its own clock.
            if verdict != "touch" or self.backlog(task) < self.outcomes_limit:
                waiting.extend(entry)
        self._told = {}

    def _repeated(self, fence: Fence) -> int | None:
        """Return the lane's highest number if this fence is a repeat, else None."""
        if fence.producer.startswith("@"):
            last = self.durable.get(fence.producer, (0, "", 0))
        else:
            lanes = [fences for fences in self.fences if fence.producer in fences]
            last = (*lanes[0][fence.producer], 0) if lanes else (0, "", 0)
        seq, digest, _ = last
        if fence.seq > seq:
            return None
        if fence.seq == seq and fence.digest != digest:
            raise ChangedBatchError(f"batch {fence.seq} came back with other content")
        return seq

    def _remember(self, fence: Fence) -> None:
        if fence.producer.startswith("@"):
            self.durable[fence.producer] = (fence.seq, fence.digest, self.now_ms)
            return
        for fences in self.fences:
            fences.pop(fence.producer, None)
        self.fences[0][fence.producer] = (fence.seq, fence.digest)

    def _forget(self, anchor: int) -> None:
        for bucket in self.buckets:
            bucket.pop(anchor, None)
