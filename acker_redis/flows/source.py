"""One step of a source: read verdicts, time attempts out, emit. No I/O: see ``flows/steps.py``.

Vocabulary
----------
* A *record* is what the user emits. An *attempt* is one tree of a record, under its own anchor.
* An *entry* of the stream holds outcomes. A verdict *counts* when the user's callback has returned.
* An entry is *settled* when all its verdicts count, and each record that it nacked is tracked
  again. Only settled entries are taken: until then the entry alone shows, if the program dies, that
  these records are not done. Two cases take an entry earlier: a full backlog (``_make_room``) and a
  reshard to fewer shards (``_leave``).

The step
--------
1. *Take in.* Move new records from the inbox to the queue.
2. *Hear.* Read entries of the stream, hand out their verdicts, and take the settled entries.
3. *Give up.* Only after all waiting verdicts were read: nack attempts that got no verdict in time
   (reason ``timeout``). Redis must have lost their trees.
4. *Say.* Close the trees whose messages were sent, and fail those whose ``send`` failed.
5. *Emit.* Track a batch of due records, and send their messages once the batch is applied. So a
   message is sent only when its tree is tracked. A tree that the acker rejected is not sent.
6. *Report.* Call back for completion groups of which each record has its verdict (``groups.py``).

Failures
--------
One thread or task runs one step at a time. An error may end a step anywhere, and the next step
continues where it ended:

* A verdict that does not count yet is read again.
* A batch in doubt (sent, no reply) is applied again under its number. The fence makes this
  idempotent.
* A batch that Redis refused is not in doubt. Its records are queued for another attempt. Some of
  its trees may be tracked all the same: these expire, and their verdicts are ignored.
* After any error the stream is read from its oldest entry, and no attempt times out for ``GRACE``
  seconds, because verdicts may have been missed.
"""

import logging
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from acker_redis.batching.batch import Batch
from acker_redis.batching.sent import Applied
from acker_redis.errors import (
    AckerError,
    BacklogError,
    ClosedError,
    ConfigError,
    LaneError,
    NamespaceNotFoundError,
    WrongShardError,
)
from acker_redis.flows.groups import GroupFlows
from acker_redis.flows.lane import Lane
from acker_redis.flows.namespace import Flows
from acker_redis.flows.outcomes import OutcomeFlows
from acker_redis.flows.steps import Flow, Hand, Send, Tell, may_retry
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import check_name
from acker_redis.protocol.rows import FAIL, Row
from acker_redis.protocol.status import Status
from acker_redis.protocol.texts import words
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.pending import Backoff, Pending, Record, Verdict
from acker_redis.trees.processing import Emitted, OpenTree, emit, in_bulk
from acker_redis.trees.source_settings import SourceSettings, check_ran, check_record

log = logging.getLogger(__name__)

ENTRIES = 16
"""Entries of the stream that one read returns at most, per shard."""
FROM_THE_OLDEST = 10.0
"""Seconds after which the configuration and the stream are read again from the beginning.

A reshard may have changed the shards. After a failover new entries may have smaller ids than those
read before.
"""
GRACE = 5.0
"""Seconds after an error in which no attempt times out."""
MAX_REVIVED = 256
"""Timed-out attempts per step for which the source checks whether they are still pending."""


@dataclass(slots=True)
class _Attempt:
    """One attempt at a record: its tree is being tracked."""

    record: Record
    tree: Emitted | OpenTree

    @property
    def row(self) -> Row:
        return self.tree.opening if isinstance(self.tree, OpenTree) else self.tree.row

    @property
    def sent(self) -> "tuple[MessageId, ...] | OpenTree":
        if isinstance(self.tree, OpenTree):
            return self.tree if self.record.edges is None else ()
        return self.tree.ids


class SourceFlows:
    """The steps of one source; ``Source`` and ``AsyncSource`` run them."""

    def __init__(self, flows: Flows, name: str, settings: SourceSettings) -> None:
        self.name = check_name("source", name)
        self.settings = settings
        self.pending = Pending(settings.attempts, settings.backoff, settings.send is not None)
        self.inbox: deque[tuple[Record, int | None]] = deque()
        """New records, with the anchor of those that are tracked already; any thread may append."""
        self.withdrawn: deque[tuple[Record, int]] = deque()
        """Records of the inbox whose TRACK failed or is in doubt; any thread may append."""
        self.groups = GroupFlows(flows, self.name, settings.on_group)
        self._flows = flows
        self._lane = Lane(threading.Lock)
        self._closing_lane = Lane(threading.Lock)
        """The lane of rows that close trees.

        A TRACK in doubt is applied again under its number in ``_lane``. A closing row in the same
        lane would overtake that number.
        """
        self._outcomes: OutcomeFlows | None = None
        self._shards = 0
        self._after: dict[int, str] = {}
        self._oldest_at = 0.0
        self._all_heard = False
        """Whether the last step read all waiting verdicts."""
        self._rotate_at = 0.0
        """When the attempts are rotated next; 0 before the first step."""
        self._waits = 0.0
        self._warned = 0.0
        """The lifetime of trees in seconds for which the timeout was called too short."""
        """Seconds for which the source waits for a verdict; 0 before the first step."""
        self._doubt: tuple[Batch, list[_Attempt]] | None = None
        """The batch that was sent and not answered, with its attempts."""
        self._sent: deque[tuple[_Attempt, Any]] = deque()
        """Attempts that ``send`` was called for, each with its return value or exception."""
        self._work: deque[Batch] = deque()
        """Batches of rows that close or fail trees and are not applied yet."""
        self._full = False
        """Whether the backlog was full when the source last tracked a batch."""
        self._resume_at = 0.0
        self._paused = 0
        """Pauses in a row, because too much was pending or because of a reshard."""

    def fresh(self) -> "SourceFlows":
        """Return the flows of the same source without records."""
        return SourceFlows(self._flows, self.name, self.settings)

    @staticmethod
    def pause_after(failures: int) -> float:
        """Return the seconds to wait after this number of failed steps in a row."""
        return min(0.1 * 2.0 ** min(failures, 6), 5.0)

    @property
    def begun(self) -> bool:
        """Whether it has run a step, or has records or groups."""
        return bool(self._oldest_at or self.live() or self.groups.begun)

    def live(self) -> int:
        """Return the number of records that are not closed."""
        # In this order: a record that goes from the inbox to pending may count twice, never zero
        # times.
        return len(self.inbox) + self.pending.size

    def step(self) -> Flow[float]:
        """Run one step; return the seconds until the next step is due.

        Yields ``Hand(Verdict)`` for each verdict. Raises RedisUnavailableError and other
        AckerErrors; the next step continues.
        """
        self._take_in()
        try:
            yield from self.groups.work()
            heard = yield from self._hear()
            if self._all_heard:
                yield from self._give_up()
            yield from self._say()
            if self._full and heard and not self._all_heard:
                return 0.0  # verdicts that are not read yet may make room
            emitted = yield from self._emit()
            if self.groups.active and self._all_heard:
                yield from self.groups.report()
        except AckerError as error:
            self.groups.failed()
            if isinstance(error, WrongShardError | NamespaceNotFoundError):
                # A reshard changed the shards, or the namespace was created again: the next flow
                # reads the configuration.
                self._flows.known = None
            # The source may have missed verdicts: it reads the stream from its beginning. The
            # bolts, too, get time to send the rows that they could not send.
            self._rotate_at = max(self._rotate_at, time.monotonic() + GRACE)
            self._outcomes = None
            raise
        return 0.0 if heard or emitted else self._idle()

    def _take_in(self) -> None:
        withdrawn = len(self.withdrawn)  # their records have been in the inbox before
        while self.inbox:
            self.pending.add(*self.inbox[0])
            self.inbox.popleft()
        for _ in range(withdrawn):
            self.pending.withdraw(*self.withdrawn.popleft())

    def finish(self) -> Flow[None]:
        """Close or fail the trees whose messages were sent; call it after the last step."""
        yield from self._say()

    def _idle(self) -> float:
        if self._sent:
            return 0.0
        now, due = time.monotonic(), self.pending.due()
        times = [self._rotate_at, *([due] if due is not None else [])]
        wait = min(times) - now
        if self._resume_at > now:
            wait = min(self._rotate_at, self._resume_at) - now
        return max(0.0, wait)

    def _hear(self) -> Flow[int]:
        now = time.monotonic()
        if now >= self._oldest_at:
            config = yield from self._flows.read_config(patient=False)
            if self._flows.reshard:
                yield from self._leave_shards()
            self._after.clear()
            self.groups.refresh()
            self._oldest_at = now + FROM_THE_OLDEST
        else:
            config = yield from self._flows.config()
        if self._outcomes is None or config.shards != self._shards:
            # First step, after an error, after a reshard, or the namespace was created again.
            self._shards = config.shards
            self._outcomes = OutcomeFlows(self._flows.shards(config), self.name, config.edges)
            self._after.clear()
        try:
            entries = yield from self._outcomes.read(ENTRIES, self._after)
            if self._outcomes.shards != self._shards:
                self._shards, self._flows.known = self._outcomes.shards, None
            self._take_in()  # an entry may hold the verdict of a record tracked since
            for entry in entries:
                self._after[entry.shard] = entry.id
                yield from self._tell(self.pending.verdicts(entry, now))
            yield from self._take()
        except BaseException:
            self._after.clear()  # verdicts that do not count yet are read again
            raise
        per_shard = Counter(entry.shard for entry in entries)
        self._all_heard = not per_shard or max(per_shard.values()) < ENTRIES
        return len(entries)

    def _take(self) -> Flow[None]:
        yield from self.groups.count()  # if the program dies here, the entries come again
        settled = self.pending.settled()
        if settled and self._outcomes:
            yield from self._outcomes.take(settled)
            self.pending.taken(settled)

    def _tell(self, verdicts: Iterable[Verdict]) -> Flow[None]:
        for verdict in verdicts:
            if verdict.verdict == "nack" and not verdict.final and not verdict.record.attempt:
                verdict.final = not (yield from self._reloaded(verdict.record))
            yield Hand(verdict)
            self.groups.heard(verdict, self.pending.live(verdict.record.source_id))

    def _reloaded(self, record: Record) -> Flow[bool]:
        """Load a record that an earlier program tracked; return whether it can be replayed."""
        if self.settings.reload is None:
            return False
        (found,) = yield Tell(self.settings.reload, ((record.source_id,),))
        if found is None:
            return False
        if isinstance(found, BaseException):
            raise found
        if not isinstance(found, Record):
            raise ConfigError(
                f"reload must return Record(source_id, value, edges) or None, not {found!r}"
            )
        check_record(found)
        record.value, record.edges, record.edge = found.value, found.edges, found.edge
        return True

    def _give_up(self) -> Flow[None]:
        now = time.monotonic()
        if now >= self._rotate_at:
            # Read it again: trees may live longer now, and then their attempts must not time out.
            config = yield from self._flows.read_config(patient=False)
            before, self._waits = self._waits, self._timeout(config)
            if before and self._waits > before:
                self._rotate_at = now + self._waits
                return
            if before:
                self.pending.rotate()
            self._rotate_at = now + self._waits / 2
        timed_out = self.pending.timed_out()
        if not timed_out:
            return
        config = yield from self._flows.config()
        if config.refresh == "update":
            # Each row of a tree restarts its timeout, and the source does not see these rows.
            timed_out = timed_out[:MAX_REVIVED]  # the others in the next step
            for anchor in timed_out:
                if (yield from self._flows.show(anchor)) is not None:
                    self.pending.revive(anchor)
        yield from self._tell(self.pending.timeouts(now, timed_out))

    def _timeout(self, config: AckerConfig) -> float:
        """Return the seconds for which the source waits for a verdict, at least."""
        # A tree that still gets rows lives longer, up to its deadline: _give_up looks it up.
        least, lifetime = config.timeout_ms / 1000, config.lifetime_ms / 1000
        timeout = self.settings.timeout
        if timeout is None:
            return 1.5 * least + 5.0
        if timeout <= lifetime and lifetime != self._warned:
            self._warned = lifetime
            log.warning(
                "source %s: trees live for up to %.1f s; timeout=%.1f is too short, set more",
                self.name, lifetime, timeout,
            )  # fmt: skip
        return max(timeout, 1.1 * least)

    def _emit(self) -> Flow[int]:
        if self._doubt is None:
            if not (yield from self._may_emit()):
                return 0
            if self._full:
                yield from self._make_room()
            self._doubt = self._next_batch()
        if self._doubt is None:
            return 0
        batch, attempts = self._doubt
        try:
            yield from self.groups.join(attempt.record for attempt in attempts)
            applied = yield from self._flows.apply(batch, self._lane)
        except AckerError as error:
            if not may_retry(error):
                self._doubt = None  # else the next step applies the same batch again
                self._not_tracked(attempts, error)
            if isinstance(error, BacklogError):
                yield from self._flows.read_config(patient=False)
                if self._flows.reshard:
                    yield from self._leave_shards()
                    self._pause("the namespace is resharding")
                    return 0
                self._full = True
            raise
        self._full = False
        waiting = [a for a in attempts if self.pending.tracked(a.record, a.row.anchor)]
        self._notice(applied)
        yield from self._take()
        accepted = yield from self._accepted(waiting, applied)
        self._doubt = None  # after an error before this line, the next step applies and sends it
        yield from self._send(accepted)
        yield from self._say()
        return len(attempts)

    def _make_room(self) -> Flow[None]:
        """Take entries of nacks from a full backlog, as a last resort, when their replays are due.

        Raises BacklogError if a shard stays full. The caller must track nothing then: other shards
        would apply their part of the batch, and the trees there would expire.

        The problem: the entry of a nack stays in the stream until its record is tracked again, and
        a full backlog lets no record be tracked. So the source takes such entries early, under
        these conditions:

        1. All settled entries were taken, and all waiting verdicts were read.
        2. All records of a taken entry are due, so the next batch, which is applied at once, tracks
           them.
        3. No more entries are taken than make room.
        """
        yield from self._take()
        status = yield from self._flows.status()
        most = status.config.backlog_share
        waits = {shard: each.backlog.get(self.name, 0) for shard, each in enumerate(status.shards)}
        wanted = {shard: count - most + 1 for shard, count in waits.items() if count >= most}
        if not wanted:
            return
        if not self._all_heard or not self.pending.let_go(wanted, time.monotonic()):
            shard = min(wanted)
            raise BacklogError(
                f"source {self.name} has {waits[shard]} verdicts waiting to be taken on shard "
                f"{shard}; its source must read and take its outcomes"
            )
        yield from self._take()

    def _next_batch(self) -> tuple[Batch, list[_Attempt]] | None:
        now, record, ids = time.monotonic(), None, self._flows.ids
        batch, attempts, draw = Batch(self.name), list[_Attempt](), in_bulk()
        try:
            while not batch.full and (record := self.pending.next(now)):
                # A record without messages stays open, too, until send() has returned.
                tree = (
                    emit(record.source_id, record.edges, edge=record.edge, ids=ids, draw=draw)
                    if record.edges
                    else OpenTree(record.source_id, ids=ids)
                )
                attempt = _Attempt(record, tree)
                batch.fold(attempt.row, record.source_id.encode())
                self.pending.tracking(record, attempt.row.anchor)
                attempts.append(attempt)
        except BaseException as error:
            if record and (not attempts or attempts[-1].record is not record):
                self.pending.put_back(record)
            self._not_tracked(attempts, error)
            raise
        return (batch, attempts) if attempts else None

    def _not_tracked(self, attempts: list[_Attempt], error: BaseException) -> None:
        """Queue the records for another attempt.

        Some of their trees may exist all the same; these expire, and their verdicts are ignored.
        """
        now = time.monotonic()
        # With a full backlog the records of an entry must be due together: see _make_room.
        at_once = isinstance(error, LaneError | BacklogError)
        after = 0.0 if at_once else self.settings.backoff.draw(1)
        for attempt in attempts:
            self.pending.untracked(attempt.record, attempt.row.anchor, now, after)

    def _accepted(self, attempts: list[_Attempt], applied: Applied) -> Flow[list[_Attempt]]:
        """Return the attempts whose messages may be sent."""
        rejected = set(applied.rejected)
        if applied.repeated:
            # The first reply, which names the rejected trees, was lost: look each tree up.
            for attempt in attempts:
                anchor = attempt.row.anchor
                if anchor not in rejected and not (yield from self._flows.show(anchor)):
                    rejected.add(anchor)
        return [each for each in attempts if each.row.anchor not in rejected]

    def _send(self, attempts: list[_Attempt]) -> Flow[None]:
        if not attempts or self.settings.send is None:
            return
        calls = tuple((attempt.record, attempt.sent) for attempt in attempts)

        def on_result(number: int, result: Any) -> None:
            self._sent.append((attempts[number], result))

        yield Send(self.settings.send, calls, on_result)

    def _rows(self, attempt: _Attempt, result: Any) -> list[Row]:
        """Return the rows that close or fail the tree of an attempt after ``send``."""
        try:
            check_ran(self.settings.send or words, result)
        except ConfigError as error:
            result = error  # the function did not run, so it sent nothing
        tree, failed = attempt.tree, isinstance(result, BaseException)
        if failed:
            # A user with on_fail gets the verdict as well.
            level = logging.WARNING if self.settings.on_fail is None else logging.DEBUG
            log.log(level, "cannot send %r: %r", attempt.record.source_id, result)
        if isinstance(tree, OpenTree):
            try:
                return tree.fail(result) if failed else tree.close()
            except ClosedError:
                result = "send() has closed its tree, but the source closes it after send()"
        elif not failed:
            return []
        why = words(result) if isinstance(result, BaseException) else result
        return [Row(attempt.row.anchor, 0, FAIL, why)]

    def _later(self, rows: list[Row]) -> None:
        for row in rows:
            if not self._work or self._work[-1].sent or not self._work[-1].add(row):
                self._work.append(Batch())
                self._work[-1].add(row)

    def _say(self) -> Flow[None]:
        """Close or fail the trees whose messages were sent."""
        while self._sent:
            self._later(self._rows(*self._sent[0]))
            self._sent.popleft()
        while self._work:
            try:
                yield from self._flows.apply(self._work[0], self._closing_lane)
            except AckerError as error:
                if may_retry(error):
                    raise
                log.warning(
                    "source %s: %d trees will expire unclosed: %s",
                    self.name, len(self._work[0]), error,
                )  # fmt: skip
            self._work.popleft()

    def _notice(self, applied: Applied) -> None:
        if applied.high_water and applied.pending >= applied.high_water:
            self._pause("too much is pending")

    def _may_emit(self) -> Flow[bool]:
        """Return whether the source may emit.

        It may when the namespace is not resharding, and was below the high-water mark when last
        read.
        """
        now = time.monotonic()
        if now < self._resume_at:
            return False
        if self._paused:
            status = yield from self._flows.status()
            if status.reshard:
                self._leave(status)
                self._pause("the namespace is resharding", most=1.0)
                return False
            if status.high_water != "ok":
                self._pause("too much is pending")
                return False
            self._paused = 0
            log.info("source %s emits again", self.name)
        return True

    def _leave_shards(self) -> Flow[None]:
        """Let a reshard to fewer shards end: take the entries on removed shards."""
        if self._flows.reshard and self._flows.reshard.target < self._flows.reshard.source:
            self._leave((yield from self._flows.status()))

    def _leave(self, status: Status) -> None:
        # A reshard to fewer shards ends when the verdicts on removed shards are taken. Until it has
        # ended, no record can be tracked again. So entries on removed shards are taken before the
        # records that they nacked are tracked again. The source waits with that until no tree is
        # pending: until then these entries alone show, if the program dies, that the records are
        # not done.
        if status.reshard and not any(sum(s.pending) + s.expiring for s in status.shards):
            self.pending.settle_all(status.reshard.target)

    def _pause(self, why: str, most: float = 5.0) -> None:
        self._paused += 1
        wait = Backoff(0.1, most).draw(self._paused)
        self._resume_at = time.monotonic() + wait
        if self._paused == 1:
            log.warning("source %s has paused emitting: %s", self.name, why)


def waits_for_itself(name: str, method: str) -> AckerError:
    """Return the error of a callback that waits for the end of the step that calls it."""
    return AckerError(
        f"{method}() inside a callback of source {name} would wait for itself: the step that calls "
        "the callback ends after it; return from the callback first (or leave the loop over "
        "verdicts())"
    )


def was_stopped(name: str) -> ClosedError:
    """Return the error of an ``emit`` to a source that was stopped."""
    return ClosedError(
        f"source {name} was stopped: call start(), run() or step() before it takes more records"
    )


def report_when_forgotten(source: object, flows: SourceFlows) -> "weakref.finalize[..., object]":
    """Log a warning when a source is deleted, or the program ends, with records in its inbox."""
    # It must hold neither the source nor its callbacks, which may hold the source.
    return weakref.finalize(source, _report_forgotten, flows.name, flows.inbox)


def _report_forgotten(name: str, inbox: "deque[tuple[Record, int | None]]") -> None:
    if inbox:
        log.warning(
            "%d records were emitted and not tracked, because nothing ran source %s after that: "
            "use a with block, or call start(), run() or step(); join() waits for their verdicts",
            len(inbox), name,
        )  # fmt: skip
