"""What a source has under way: its records, their attempts, what each verdict means. No I/O.

A record is queued, then tracked under the anchor of its attempt, then closed: by an ack, or when it
is given up. A nack queues it again, after a while.

Verdicts are worked off one by one, and count when whoever was told of one has come back. An entry
of the stream may be taken when all of its verdicts have counted, and each record that it nacked is
tracked anew: until then the stream alone knows, should this program die, that it is not done.

Only two things take such an entry earlier, because nothing can be tracked otherwise: a move to
fewer shards (:meth:`Pending.settle_all`) and a full backlog (:meth:`Pending.let_go`).
"""

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from acker_redis.errors import ConfigError
from acker_redis.protocol.outcome import Entry, Outcome
from acker_redis.trees.rotating_map import RotatingMap

REMEMBERED = 32_768
"""Closed anchors that are remembered at least: a second verdict of one is passed over."""


@dataclass(slots=True, eq=False)
class Record:
    """What a source emits, and replays until all that follows from it was processed.

    >>> Record("order-1", {"items": 3}).attempt
    0
    """

    source_id: str
    """The source's own name for it, which comes back with the verdict."""
    value: Any = None
    """Whatever the source needs to send it; None if the program that tracked it has ended."""
    edges: int | None = 1
    """First messages; None: as many as turn out while it is sent."""
    attempt: int = 0
    """How often it was tracked. 0 in a verdict on what an earlier program has tracked."""
    owes: "list[_Reading] | None" = field(default=None, repr=False)
    """Entries of the stream that wait until it is tracked anew."""


@dataclass(slots=True)
class Verdict:
    """What became of an attempt.

    >>> Verdict(Record("order-1"), "nack", "expired", "", 90_000, final=False, anchor=7).final
    False
    """

    record: Record
    verdict: Literal["ack", "nack"]
    reason: str
    """completed, failed, expired, overflow, conflict or reset, as in the stream; ``timeout``: the
    source itself has waited for too long, and the acker must have lost the tree."""
    why: str
    """What the bolt said that failed it, or ''."""
    age_ms: int
    """From the tree's first row to the verdict."""
    final: bool
    """An ack, or a nack that is not followed by a replay."""
    anchor: int


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a record waits before its next attempt: 1, 2, 4, .. seconds, 60 at most.

    The waits are random, between half of that and all of it, so that records that failed
    together do not come back together.

    >>> Backoff(first=1.0, most=60.0).ceiling(4)
    8.0
    """

    first: float = 1.0
    """Seconds after the first attempt."""
    most: float = 60.0
    """Seconds after any."""

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.most:
            raise ConfigError(f"a back-off is from 0 seconds up, not {self.first} to {self.most}")

    def ceiling(self, attempt: int) -> float:
        """Seconds to wait at most after so many attempts."""
        return min(self.most, self.first * 2.0 ** min(max(attempt - 1, 0), 60))

    def draw(self, attempt: int) -> float:
        """Seconds to wait after so many attempts."""
        return self.ceiling(attempt) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter


@dataclass(slots=True, eq=False)
class _Reading:
    """How far an entry of the stream was worked off."""

    entry: Entry
    next: int = 0
    """Its first verdict that has not counted yet."""
    read: bool = False
    owed: set[Record] = field(default_factory=set)
    """Records it nacked that are not tracked anew yet."""


class Pending:
    """The records of one source. Times are of any clock, in seconds."""

    def __init__(self, attempts: int, backoff: Backoff, replays: bool) -> None:
        self._attempts, self._backoff, self._replays = attempts, backoff, replays
        self.queue: deque[Record] = deque()
        """Those to be tracked next."""
        self._waiting: list[tuple[float, int, Record]] = []
        """A heap of those to be tracked later."""
        self._numbers = itertools.count()
        self._tracked = RotatingMap[int, Record](3)
        self._timed_out: dict[int, Record] = {}
        self._closed = RotatingMap[int, None](2)
        self._closed_lately = 0
        self._live: dict[str, int] = {}
        """Records per source id that are not closed."""
        self.size = 0
        """Records that are not closed."""
        self._readings: dict[tuple[int, str], _Reading] = {}

    def add(self, record: Record, anchor: int | None = None) -> None:
        """A new record: to be queued, or tracked already under an anchor."""
        self._open(record)
        if anchor is None:
            self.queue.append(record)
        else:
            record.attempt += 1
            self._tracked[anchor] = record

    def next(self, now: float) -> Record | None:
        """The record to be tracked next, replays first; None if none is due."""
        if self._waiting and self._waiting[0][0] <= now:
            return heapq.heappop(self._waiting)[2]
        return self.queue.popleft() if self.queue else None

    def due(self) -> float | None:
        """When the next replay is due; None if none waits."""
        return self._waiting[0][0] if self._waiting else None

    def tracking(self, record: Record, anchor: int) -> None:
        """An attempt is being tracked: its verdict may be heard before the reply is."""
        record.attempt += 1
        self._tracked[anchor] = record

    def tracked(self, record: Record, anchor: int) -> bool:
        """It was tracked; whether it still waits for its verdict."""
        if anchor not in self._tracked:
            return False
        self._settle(record)
        return True

    def untracked(self, record: Record, anchor: int, now: float, after: float = 0.0) -> None:
        """It could not be tracked, or nobody knows: another attempt, which is not counted.

        Whatever is heard of this anchor from now on is passed over.
        """
        if self._drop(anchor):
            record.attempt -= 1
            heapq.heappush(self._waiting, (now + after, next(self._numbers), record))
        self._close(anchor)

    def put_back(self, record: Record) -> None:
        """The next one could not be looked at; it is the next again."""
        self.queue.appendleft(record)

    def withdraw(self, record: Record, anchor: int) -> None:
        """It was added as tracked, and is not, or nobody knows: its caller was told."""
        if self._drop(anchor):
            self._shut(record)
        self._close(anchor)

    def settle_all(self, first: int = 0) -> None:
        """Let the entries be taken whose records are not tracked anew yet, from a shard on."""
        for reading in self._readings.values():
            if reading.entry.shard >= first:
                reading.owed.clear()

    def let_go(self, wanted: Mapping[int, int], now: float) -> bool:
        """Let entries be taken early, so that ``wanted[shard]`` verdicts fewer wait on each shard.

        Only entries of which each nacked record is due are let go: :meth:`next` then returns those
        records first, and the caller tracks them at once. The entries with the fewest such records
        go first, and no more than needed. Returns False, and lets nothing go, while the shards'
        entries do not suffice: records of them still wait for their back-off.
        """
        later = {record for due, _, record in self._waiting if due > now}
        chosen: list[_Reading] = []
        for shard, verdicts in wanted.items():
            ready = [
                reading
                for reading in self._readings.values()
                if reading.entry.shard == shard and reading.read and reading.owed
                and not reading.owed & later
            ]  # fmt: skip
            for reading in sorted(ready, key=lambda each: len(each.owed)):
                if verdicts <= 0:
                    break
                chosen.append(reading)
                verdicts -= sum(1 for _ in reading.entry)
            if verdicts > 0:
                return False
        records = {record for reading in chosen for record in reading.owed}
        self._waiting = [
            (-math.inf if record in records else due, number, record)
            for due, number, record in self._waiting
        ]
        heapq.heapify(self._waiting)
        for reading in chosen:
            reading.owed.clear()
        return True

    def verdicts(self, entry: Entry, now: float) -> Generator[Verdict, None, None]:
        """The verdicts of an entry that count, each once; it counts when the next is asked for."""
        key = entry.shard, entry.id
        reading = self._readings.get(key)
        if reading is None or reading.entry != entry:
            # After a failover an id may be given once more.
            reading = self._readings[key] = _Reading(entry)
        for number, outcome in enumerate(entry):
            if number < reading.next:
                continue
            verdict = self._verdict(outcome)
            if verdict:
                yield verdict
                self._count(verdict, now, reading)
            reading.next = number + 1
        reading.read = True

    def timeouts(self, now: float, anchors: Iterable[int]) -> Generator[Verdict, None, None]:
        """Nacks of these attempts of :meth:`timed_out`; each counts as in ``verdicts``."""
        for anchor in anchors:
            record = self._timed_out.get(anchor)
            if record is None:
                continue  # revived
            verdict = self._nack(record, anchor, "timeout", "no verdict came", 0)
            yield verdict
            del self._timed_out[anchor]
            self._count(verdict, now, None)

    def rotate(self) -> None:
        """Attempts that have been tracked for two to three rotations are given up."""
        self._timed_out.update(self._tracked.rotate())

    def timed_out(self) -> list[int]:
        """Anchors that were given up and not told yet."""
        return list(self._timed_out)

    def revive(self, anchor: int) -> None:
        """An attempt that was given up is pending after all."""
        self._tracked[anchor] = self._timed_out.pop(anchor)

    def settled(self) -> list[Entry]:
        """Entries that may be taken."""
        return [r.entry for r in self._readings.values() if r.read and not r.owed]

    def taken(self, entries: list[Entry]) -> None:
        """They were taken, and will not be read again."""
        for entry in entries:
            del self._readings[entry.shard, entry.id]

    def _verdict(self, outcome: Outcome) -> Verdict | None:
        anchor = outcome.anchor
        record = self._tracked.get(anchor)
        if outcome.verdict == "touch":
            if record:
                self._tracked[anchor] = record  # its clock was set back, and so is ours
            return None
        if record is None:
            if anchor in self._closed or anchor in self._timed_out:
                return None
            if outcome.source_id in self._live:
                return None  # a later attempt is under way, and has a verdict of its own
            record = Record(outcome.source_id)
        if outcome.verdict == "ack":
            return Verdict(record, "ack", outcome.reason, "", outcome.age_ms, True, anchor)
        return self._nack(record, anchor, outcome.reason, outcome.why, outcome.age_ms)

    def _nack(self, record: Record, anchor: int, reason: str, why: str, age_ms: int) -> Verdict:
        counted = record.attempt - _is_free(record, reason)
        final = not self._replays or counted >= self._attempts
        return Verdict(record, "nack", reason, why, age_ms, final, anchor)

    def _count(self, verdict: Verdict, now: float, reading: _Reading | None) -> None:
        record, known = verdict.record, self._tracked.pop(verdict.anchor, None)
        self._close(verdict.anchor)
        known = known or (record if reading is None else None)
        record.attempt -= _is_free(record, verdict.reason)
        if verdict.final:
            self._settle(record)
            if known:
                self._shut(record)
            return
        if not known:
            self._open(record)  # of an earlier program
        if reading:
            self._settle(record)  # it was tracked, whether the reply to that came or not
            reading.owed.add(record)
            record.owes = [reading]
        wait = self._backoff.draw(record.attempt)
        heapq.heappush(self._waiting, (now + wait, next(self._numbers), record))

    def _settle(self, record: Record) -> None:
        for reading in record.owes or ():
            reading.owed.discard(record)
        record.owes = None

    def _drop(self, anchor: int) -> bool:
        """Whether an attempt had no verdict yet; it gets none any more."""
        attempt = self._tracked.pop(anchor, None) or self._timed_out.pop(anchor, None)
        return attempt is not None

    def _open(self, record: Record) -> None:
        self._live[record.source_id] = self._live.get(record.source_id, 0) + 1
        self.size += 1

    def _shut(self, record: Record) -> None:
        left = self._live[record.source_id] - 1
        if left:
            self._live[record.source_id] = left
        else:
            del self._live[record.source_id]
        self.size -= 1

    def _close(self, anchor: int) -> None:
        self._closed[anchor] = None
        self._closed_lately += 1
        if self._closed_lately >= REMEMBERED:
            self._closed.rotate()
            self._closed_lately = 0


def _is_free(record: Record, reason: str) -> bool:
    """Whether the attempt does not count: it was rejected, and never sent."""
    return reason == "overflow" and record.attempt > 0
