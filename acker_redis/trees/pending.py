"""The pending records of a source: their attempts, and the effect of each verdict. No I/O.

A record is queued, then tracked under the anchor of its attempt, then closed: by an ack, or when
the source gives it up. A nack queues the record again, after a back-off. A record is in one state
at a time:

=========  =======================  ===========================================================
state      held in                  leaves it by
=========  =======================  ===========================================================
queued     ``queue``                ``next``: the caller has it
waiting    ``_waiting``             ``next``, when its back-off is over: the caller has it
caller's   the caller               ``tracking`` -> tracked; ``put_back`` -> queued
tracked    ``_tracked[anchor]``     ack, final nack, ``withdraw`` -> closed; any other nack,
                                    ``untracked`` -> waiting; ``rotate`` -> timed out
timed out  ``_timed_out[anchor]``   ``revive`` -> tracked; ``timeouts``, a nack: as above
closed     no record; its anchor    --
           in ``_closed`` a while
=========  =======================  ===========================================================

A verdict on an anchor that is timed out or closed is ignored. One on an unknown anchor is of an
earlier program: it is ignored too if an open record has its source id, which will get its own.

The source processes verdicts one by one. A verdict counts after its callbacks have returned. An
entry of the stream may be taken when all of its verdicts have counted and each record that it
nacked is tracked again. Until then only the stream knows that the record is not done, so the entry
must survive a crash of this program.

Only two cases take such an entry earlier, because otherwise nothing could be tracked: a reshard to
fewer shards (:meth:`Pending.settle_all`) and a full backlog (:meth:`Pending.let_go`).
"""

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from acker_redis.errors import ConfigError
from acker_redis.protocol.outcome import Entry, Outcome
from acker_redis.protocol.why import why_expired
from acker_redis.trees.rotating_map import RotatingMap

if TYPE_CHECKING:
    from acker_redis.trees.group import GroupBlock

REMEMBERED = 32_768
"""Minimum number of remembered closed anchors; a second verdict on one of them is ignored."""


@dataclass(slots=True, eq=False)
class Record:
    """A record that a source emits, and replays until its whole tuple tree was processed.

    >>> Record("order-1", {"items": 3}).attempt
    0
    """

    source_id: str
    """The source's id of the record, which the verdict carries."""
    value: Any = None
    """The data that ``send`` needs; None if the program that tracked the record has ended."""
    messages: int | None = 1
    """Number of first messages; None: unknown until ``send`` has emitted them."""
    attempt: int = 0
    """How often the record was tracked. 0 in a verdict on a record that an earlier program
    tracked."""
    edge: str = ""
    """Name of the edge that the first messages travel on, mostly that of their queue; '' if they
    have none, or if ``send`` names the edge of each."""
    _readings: "list[_Reading] | None" = field(default=None, repr=False)
    """Entries of the stream that cannot be taken until the record is tracked again."""
    _group: "GroupBlock | None" = field(default=None, repr=False)
    """The block of the completion group that emitted the record."""


@dataclass(slots=True)
class Verdict:
    """The verdict on one attempt of a record, as callbacks receive it.

    >>> Verdict(Record("order-1"), "nack", "expired", "", 90_000, final=False, anchor=7).final
    False
    """

    record: Record
    verdict: Literal["ack", "nack"]
    reason: str
    """completed, failed, expired, overflow, conflict or reset, as in the stream. ``timeout``: the
    source received no verdict in time, so the acker must have lost the tree."""
    why: str
    """The reason that the bolt gave when it failed the tree; of an expired tree, where a message is
    missing and since when, such as ``no ack on edge plane; last row 41 s ago, of 90 s``; or ''."""
    age_ms: int
    """Milliseconds from the tree's first row to the verdict."""
    final: bool
    """True for an ack, and for a nack that is not followed by a replay."""
    anchor: int
    """The anchor of the attempt."""
    outcome: Outcome | None = None
    """The verdict as the stream has it, with edges and residual of an expired tree; None if the
    source itself has timed the attempt out."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter before a replay: 1, 2, 4, .. seconds, at most 60.

    Each wait is random between half of that time and all of it, so that records that failed
    together are not replayed together.

    Raises:
        ConfigError: Not ``0 <= first <= most``.

    Examples:
        >>> Backoff(first=1.0, most=60.0).ceiling(4)
        8.0

    """

    first: float = 1.0
    """Maximum seconds of the wait after the first attempt."""
    most: float = 60.0
    """Maximum seconds of any wait."""

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.most:
            raise ConfigError(
                f"a back-off needs 0 <= first <= most seconds, not {self.first} and {self.most}"
            )

    def ceiling(self, attempt: int) -> float:
        """Return the maximum seconds of the wait after this number of attempts."""
        return min(self.most, self.first * 2.0 ** min(max(attempt - 1, 0), 60))

    def draw(self, attempt: int) -> float:
        """Return a random wait in seconds after this number of attempts."""
        return self.ceiling(attempt) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter


@dataclass(slots=True, eq=False)
class _Reading:
    """Progress of the source in an entry of the stream."""

    entry: Entry
    next: int = 0
    """Number of the first verdict that has not counted yet."""
    read: bool = False
    """Whether all verdicts have counted."""
    owed: set[Record] = field(default_factory=set)
    """Records that the entry nacked and that are not tracked again yet."""


class Pending:
    """The pending records of one source. All times are in seconds of any one clock."""

    def __init__(self, attempts: int, backoff: Backoff, replays: bool) -> None:
        self._attempts, self._backoff, self._replays = attempts, backoff, replays
        self.queue: deque[Record] = deque()
        """Records to track next."""
        self._waiting: list[tuple[float, int, Record]] = []
        """Heap of the records to track later: due time, tie-breaker, record."""
        self._numbers = itertools.count()
        self._tracked = RotatingMap[int, Record](3)
        self._timed_out: dict[int, Record] = {}
        self._closed = RotatingMap[int, None](2)
        self._closed_lately = 0
        self._live: dict[str, int] = {}
        """Number of records per source id that are not closed."""
        self.size = 0
        """Number of records that are not closed."""
        self._readings: dict[tuple[int, str], _Reading] = {}

    def add(self, record: Record, anchor: int | None = None) -> None:
        """Add a new record: queue it, or, with ``anchor``, note that it is already tracked."""
        self._open(record)
        if anchor is None:
            self.queue.append(record)
        else:
            record.attempt += 1
            self._tracked[anchor] = record

    def next(self, now: float) -> Record | None:
        """Return and remove the record to track next, replays first; None if none is due."""
        if self._waiting and self._waiting[0][0] <= now:
            return heapq.heappop(self._waiting)[2]
        return self.queue.popleft() if self.queue else None

    def due(self) -> float | None:
        """Return the time when the next replay is due; None if no replay waits."""
        return self._waiting[0][0] if self._waiting else None

    def tracking(self, record: Record, anchor: int) -> None:
        """Note that an attempt is being tracked: its verdict may arrive before the reply."""
        record.attempt += 1
        self._tracked[anchor] = record

    def tracked(self, record: Record, anchor: int) -> bool:
        """Note that an attempt was tracked; return whether it still waits for its verdict."""
        if anchor not in self._tracked:
            return False
        self._settle(record)
        return True

    def untracked(self, record: Record, anchor: int, now: float, after: float = 0.0) -> None:
        """Note that an attempt was not tracked, or that the result is unknown.

        The record is due again ``after`` seconds from ``now``, and this attempt is not counted.
        Later verdicts on this anchor are ignored.
        """
        if self._drop(anchor):
            record.attempt -= 1
            heapq.heappush(self._waiting, (now + after, next(self._numbers), record))
        self._close(anchor)

    def put_back(self, record: Record) -> None:
        """Put a record from :meth:`next` back at the head of the queue."""
        self.queue.appendleft(record)

    def withdraw(self, record: Record, anchor: int) -> None:
        """Remove a record that was added as tracked but was not, or where that is unknown.

        The caller has received the error.
        """
        if self._drop(anchor):
            self._shut(record)
        self._close(anchor)

    def settle_all(self, first: int = 0) -> None:
        """Allow taking entries of shards from ``first`` on whose records are not tracked again."""
        for reading in self._readings.values():
            if reading.entry.shard >= first:
                reading.owed.clear()

    def let_go(self, wanted: Mapping[int, int], now: float) -> bool:
        """Allow taking entries early, so that ``wanted[shard]`` fewer verdicts wait on each shard.

        Only entries whose nacked records are all due are chosen. :meth:`next` then returns those
        records first, and the caller tracks them at once. Entries with the fewest such records are
        chosen first, and no more than needed. Returns False, and chooses none, while the entries
        of a shard do not suffice because their records still wait for the back-off.
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
        """Yield the verdicts of an entry that matter, each once.

        A verdict counts when the caller asks for the next one, so after its callbacks.
        """
        key = entry.shard, entry.id
        reading = self._readings.get(key)
        if reading is None or reading.entry != entry:
            # After a failover Redis may assign a stream id a second time.
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

    def timeouts(
        self, now: float, anchors: Iterable[int], cause: str = ""
    ) -> Generator[Verdict, None, None]:
        """Yield nacks of these attempts of :meth:`timed_out`; each counts as in ``verdicts``.

        ``cause`` says why there is no verdict, if that is known.
        """
        why = f"no verdict came; {cause}" if cause else "no verdict came"
        for anchor in anchors:
            record = self._timed_out.get(anchor)
            if record is None:
                continue  # revived
            verdict = self._nack(record, anchor, "timeout", why, 0)
            yield verdict
            del self._timed_out[anchor]
            self._count(verdict, now, None)

    def rotate(self) -> None:
        """Time out the attempts that were tracked two to three rotations ago."""
        self._timed_out.update(self._tracked.rotate())

    def timed_out(self) -> list[int]:
        """Return the anchors of timed-out attempts whose nack has not counted yet."""
        return list(self._timed_out)

    def revive(self, anchor: int) -> None:
        """Make a timed-out attempt pending again, because its tree is still pending."""
        self._tracked[anchor] = self._timed_out.pop(anchor)

    def live(self, source_id: str) -> int:
        """Return the number of open records with this source id."""
        return self._live.get(source_id, 0)

    def settled(self) -> list[Entry]:
        """Return the entries that may be taken."""
        return [r.entry for r in self._readings.values() if r.read and not r.owed]

    def taken(self, entries: list[Entry]) -> None:
        """Forget entries that were taken; they will not be read again."""
        for entry in entries:
            del self._readings[entry.shard, entry.id]

    def _verdict(self, outcome: Outcome) -> Verdict | None:
        anchor = outcome.anchor
        record = self._tracked.get(anchor)
        if outcome.verdict == "touch":
            if record:
                self._tracked[anchor] = record  # Redis reset the timeout: reset the local one too
            return None
        if record is None:
            if anchor in self._closed or anchor in self._timed_out:
                return None
            if outcome.source_id in self._live:
                return None  # a later attempt is pending and gets its own verdict
            record = Record(outcome.source_id)
        if outcome.verdict == "ack":
            return Verdict(record, "ack", outcome.reason, "", outcome.age_ms, True, anchor, outcome)
        why = outcome.why or why_expired(outcome)
        return self._nack(record, anchor, outcome.reason, why, outcome.age_ms, outcome)

    def _nack(
        self,
        record: Record,
        anchor: int,
        reason: str,
        why: str,
        age_ms: int,
        outcome: Outcome | None = None,
    ) -> Verdict:
        counted = record.attempt - _is_free(record, reason)
        final = not self._replays or counted >= self._attempts
        return Verdict(record, "nack", reason, why, age_ms, final, anchor, outcome)

    def _count(self, verdict: Verdict, now: float, reading: _Reading | None) -> None:
        record, known = verdict.record, self._tracked.pop(verdict.anchor, None)
        self._close(verdict.anchor)
        known = known or (record if reading is None else None)
        if verdict.reason == "overflow":
            record.attempt -= _is_free(record, verdict.reason)
        if verdict.final:
            self._settle(record)
            if known:
                self._shut(record)
            return
        if not known:
            self._open(record)  # an earlier program tracked it
        if reading:
            self._settle(record)  # it was tracked, even if the reply to that was lost
            reading.owed.add(record)
            record._readings = [reading]
        wait = self._backoff.draw(record.attempt)
        heapq.heappush(self._waiting, (now + wait, next(self._numbers), record))

    def _settle(self, record: Record) -> None:
        if record._readings is not None:
            for reading in record._readings:
                reading.owed.discard(record)
            record._readings = None

    def _drop(self, anchor: int) -> bool:
        """Forget an attempt; return whether it had no verdict yet."""
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
    """Return whether the attempt does not count, because it was rejected and never sent."""
    return reason == "overflow" and record.attempt > 0
