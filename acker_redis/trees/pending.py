"""The pending records of a source: their attempts, and the effect of each verdict. No I/O.

A record is queued, then tracked under the anchor of its attempt, then closed: by an ack, or when
the source gives it up. A nack queues the record again, after a back-off. A record is in one state
at a time:

=========  =======================  ===========================================================
state      held in                  leaves it by
=========  =======================  ===========================================================
queued     its edge's ``queue``     ``next``: the caller has it
waiting    ``_waiting``, then its   ``next``, when its back-off is over: the caller has it
           edge's ``due``, or
           ``_urgent``
caller's   the caller               ``tracking`` -> tracked; ``put_back`` -> waiting
tracked    ``_tracked[anchor]``     ack, final nack, ``withdraw`` -> closed; any other nack,
                                    ``untracked`` -> waiting; ``rotate`` -> timed out
timed out  ``_timed_out[anchor]``   ``revive`` -> tracked; ``timeouts``, a nack: as above
closed     no record; its anchor    --
           in ``_closed`` a while
=========  =======================  ===========================================================

``next`` returns a record only while the window of its edge has room (``window.py``), except those
of ``_urgent``: their entries were taken early, or ``next`` has returned them before.

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
from collections import deque
from collections.abc import Generator, Iterable, Mapping

from acker_redis.protocol.outcome import Entry, Outcome
from acker_redis.protocol.why import why_expired
from acker_redis.trees.record import Backoff, Edge, Reading, Record, Verdict
from acker_redis.trees.rotating_map import RotatingMap
from acker_redis.trees.window import Window

REMEMBERED = 32_768
"""Minimum number of remembered closed anchors; a second verdict on one of them is ignored."""


class Pending:
    """The pending records of one source. All times are in seconds of any one clock."""

    def __init__(
        self,
        attempts: int,
        backoff: Backoff,
        replays: bool,
        most: float = math.inf,
        give_up_after: float = math.inf,
    ) -> None:
        """Begin without records; ``most`` is the largest window of an edge."""
        self._attempts, self._backoff, self._replays = attempts, backoff, replays
        self._most, self._give_up_after = most, give_up_after
        self._lifetime, self._begun, self._careful = math.inf, False, False
        self.edges: dict[str, Edge] = {}
        """The records by the edge of their first messages."""
        self._order: deque[Edge] = deque()
        """The edges in the order in which :meth:`next` asks them."""
        self._urgent: deque[Record] = deque()
        """Records to track at once, regardless of windows."""
        self._rooms_at: float | None = None
        """When the room of the edges was found; None: find it again."""
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
        self._readings: dict[tuple[int, str], Reading] = {}

    def add(self, record: Record, anchor: int | None = None, now: float = 0.0) -> None:
        """Add a new record: queue it, or, with ``anchor``, note that it is already tracked."""
        edge = self._open(record)
        edge.added += 1
        if anchor is None:
            edge.queue.append(record)
            self._rooms_at = None
        else:
            self.tracking(record, anchor, now)

    def next(self, now: float) -> Record | None:
        """Return and remove the record to track next, replays first.

        None if none is due, or the windows have no room for one.
        """
        if self._urgent:
            return self._urgent.popleft()
        if now != self._rooms_at:
            self._find_rooms(now)
        for edge in self._order:
            if edge.room >= 1 and (waiting := edge.due or edge.queue):
                edge.room -= 1
                return waiting.popleft() if edge.window.down_since is None else edge.probe()
        return None

    def _find_rooms(self, now: float) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            record = heapq.heappop(waiting)[2]
            self._edge_of(record).due.append(record)
        for edge in self.edges.values():
            edge.room = edge.window.room(now)
        self._rooms_at = now

    def drawn(self, full: bool) -> None:
        """Note the end of a batch: where no room is left, records that are due wait for windows.

        After a full batch another edge is asked first, because this one may need all of the next.
        """
        for edge in self.edges.values():
            if edge.room < 1 and (edge.due or edge.queue):
                edge.window.waits()
        if full:
            self._order.rotate(-1)

    def due(self) -> float | None:
        """Return the time when the next replay is due; None if no replay waits."""
        return self._waiting[0][0] if self._waiting else None

    def tracking(self, record: Record, anchor: int, now: float = 0.0) -> None:
        """Note that an attempt is being tracked: its verdict may arrive before the reply."""
        record.attempt += 1
        record._sent = self._begun = True
        if record._first_at is None:
            record._first_at = now
        window = self._edge_of(record).window
        record._probe = window.down_since is not None
        window.sent(now)
        self._tracked[anchor] = record

    def unsent(self, anchor: int) -> None:
        """Note that the messages of an attempt were not sent: its verdict is no answer."""
        record = self._tracked.get(anchor) or self._timed_out.get(anchor)
        if record is not None:
            self._withdraw(record)

    def live_for(self, lifetime: float) -> None:
        """Note for how many seconds trees live at least."""
        if lifetime != self._lifetime:
            self._lifetime = lifetime
            for edge in self.edges.values():
                edge.window.lifetime = lifetime

    def pardon(self, now: float) -> None:
        """Note that answers could not be heard until now."""
        for edge in self.edges.values():
            edge.window.pardon(now)

    def _edge_of(self, record: Record) -> Edge:
        """Return the edge of a record that is not in flight; a callback may have changed it."""
        before = record._edge
        if before is not None and before.name == record.edge:
            return before
        edge = self.edges.get(record.edge)
        if edge is None:
            window = Window(self._most, self._lifetime)
            if self._careful:
                window.begin_carefully()
            edge = self.edges[record.edge] = Edge(record.edge, window)
            self._order.append(edge)
        if before is not None:
            before.open -= 1
            edge.open += 1
        record._edge = edge
        return edge

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
        if self._drop(anchor) is not None:
            record.attempt -= 1
            heapq.heappush(self._waiting, (now + after, next(self._numbers), record))
            self._rooms_at = None
        self._close(anchor)

    def put_back(self, record: Record) -> None:
        """Put a record from :meth:`next` back: it is the next one again, regardless of windows."""
        self._urgent.appendleft(record)

    def withdraw(self, record: Record, anchor: int) -> None:
        """Remove a record that was added as tracked but was not, or where that is unknown.

        The caller has received the error.
        """
        dropped = self._drop(anchor)  # a traced record is a copy
        if dropped is not None:
            self._shut(dropped)
        self._close(anchor)

    def settle_all(self, first: int = 0) -> None:
        """Allow taking entries of shards from ``first`` on whose records are not tracked again."""
        for reading in self._readings.values():
            if reading.entry.shard >= first:
                reading.owed.clear()

    def let_go(self, wanted: Mapping[int, int], now: float) -> bool:
        """Allow taking entries early, so that ``wanted[shard]`` fewer verdicts wait on each shard.

        Only entries whose nacked records are all due are chosen. :meth:`next` then returns those
        records first, regardless of windows, and the caller tracks them at once. Entries with
        the fewest such records are chosen first, and no more than needed. Returns False, and
        chooses none, while the entries of a shard do not suffice because their records still wait
        for the back-off.
        """
        later = {record for due, _, record in self._waiting if due > now}
        chosen: list[Reading] = []
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
        self._urgent.extend(sorted(records, key=lambda each: each.source_id))
        self._waiting = [each for each in self._waiting if each[2] not in records]
        heapq.heapify(self._waiting)
        for edge in self.edges.values():
            edge.due = deque(record for record in edge.due if record not in records)
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
            reading = self._readings[key] = Reading(entry)
        for number, outcome in enumerate(entry):
            if number < reading.next:
                continue
            verdict = self._verdict(outcome, now)
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
            yield (verdict := self._nack(record, anchor, "timeout", why, 0, now))
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

    def _verdict(self, outcome: Outcome, now: float) -> Verdict | None:
        anchor = outcome.anchor
        record = self._tracked.get(anchor)
        if outcome.verdict == "touch":
            if record:
                self._tracked[anchor] = record  # Redis reset the timeout: reset the local one too
                if record._edge is not None:
                    record._edge.window.pardon(now)  # a consumer is at work
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
        return self._nack(record, anchor, outcome.reason, why, outcome.age_ms, now, outcome)

    def _nack(
        self,
        record: Record,
        anchor: int,
        reason: str,
        why: str,
        age_ms: int,
        now: float,
        outcome: Outcome | None = None,
    ) -> Verdict:
        free, since = _is_free(record, reason, outcome), record._first_at
        final = not self._replays or record.attempt - free >= self._attempts
        if free and not final and reason != "overflow" and since is not None:
            away = now - since
            if away >= self._give_up_after:
                final, reason, why = True, "outage", f"no answer for {away:.0f} s; {why}"
        return Verdict(record, "nack", reason, why, age_ms, final, anchor, outcome)

    def _count(self, verdict: Verdict, now: float, reading: Reading | None) -> None:
        record, known = verdict.record, self._tracked.pop(verdict.anchor, None)
        self._close(verdict.anchor)
        known = known or (record if reading is None else None)
        if known:
            self._landed(verdict, now)
        elif verdict.reason == "expired" and not self._careful and not self._begun:
            # Trees of an earlier program expired, so its consumers may be away.
            self._careful = True
            for edge in self.edges.values():
                edge.window.begin_carefully()
        if verdict.verdict == "nack" and _is_free(record, verdict.reason, verdict.outcome):
            record.attempt -= 1
            record.free += verdict.reason != "overflow"
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
        self._rooms_at = None

    def _landed(self, verdict: Verdict, now: float) -> None:
        """Tell the window of the edge how an attempt in flight has ended."""
        record, edge = verdict.record, verdict.record._edge
        if not record._sent or edge is None:
            return
        self._rooms_at = None
        if verdict.reason in ("completed", "failed"):
            record._sent = False
            edge.window.answered(now, verdict.age_ms / 1000)
        elif verdict.reason in ("expired", "timeout", "outage"):
            record._sent = False
            edge.window.expired(now)
        else:
            self._withdraw(record)

    def _withdraw(self, record: Record) -> None:
        if record._sent and record._edge is not None:
            record._sent, self._rooms_at = False, None
            record._edge.window.withdrawn()

    def _settle(self, record: Record) -> None:
        if record._readings is not None:
            for reading in record._readings:
                reading.owed.discard(record)
            record._readings = None

    def _drop(self, anchor: int) -> Record | None:
        """Forget an attempt; return its record, None if it had a verdict already."""
        record = self._tracked.pop(anchor, None) or self._timed_out.pop(anchor, None)
        if record is not None:
            self._withdraw(record)
        return record

    def _open(self, record: Record) -> Edge:
        self._live[record.source_id] = self._live.get(record.source_id, 0) + 1
        self.size += 1
        edge = self._edge_of(record)
        edge.open += 1
        return edge

    def _shut(self, record: Record) -> None:
        left = self._live[record.source_id] - 1
        if left:
            self._live[record.source_id] = left
        else:
            del self._live[record.source_id]
        self.size -= 1
        if record._edge is not None:
            record._edge.open -= 1

    def _close(self, anchor: int) -> None:
        self._closed[anchor] = None
        self._closed_lately += 1
        if self._closed_lately >= REMEMBERED:
            self._closed.rotate()
            self._closed_lately = 0


def _is_free(record: Record, reason: str, outcome: Outcome | None) -> bool:
    """Return whether the attempt does not count.

    It was rejected and never sent. Or it was a probe of an edge that was down, and no consumer has
    touched its tree: its last row is about as old as the tree.
    """
    if not record.attempt:
        return False
    if reason == "overflow":
        return True
    if not record._probe or reason not in ("expired", "timeout", "outage"):
        return False
    return outcome is None or 10 * (outcome.age_ms - outcome.idle_ms) <= outcome.age_ms
