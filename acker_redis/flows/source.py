"""What a source does in one step: hear, give up, emit. No I/O: see :mod:`acker_redis.flows.steps`.

One step at a time, by one thread or task. Whatever error ends a step, the next one goes on where
it ended: a verdict that was not confirmed is read again, a batch in doubt is applied again.
"""

import logging
import threading
import time
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
    RedisUnavailableError,
    WrongShardError,
)
from acker_redis.flows.lane import Lane
from acker_redis.flows.namespace import Flows
from acker_redis.flows.outcomes import OutcomeFlows
from acker_redis.flows.steps import Flow, Hand, Send, Tell
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
"""Entries of the stream that are read at once, per shard."""
FROM_THE_OLDEST = 10.0
"""Seconds after which the configuration is read anew, for the shards may be others, and the stream
from its oldest entry: after a failover new entries may have smaller ids than those read before."""
GRACE = 5.0
"""Seconds after an error in which nothing times out for want of a verdict."""
MAX_REVIVED = 256
"""Attempts of which it is asked, in one step, whether they are pending after all."""


@dataclass(slots=True)
class _Attempt:
    """A record that is being tracked."""

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

    def __init__(self, flows: Flows, task: str, settings: SourceSettings) -> None:
        self.task = check_name("task", task)
        self.settings = settings
        self.pending = Pending(settings.attempts, settings.backoff, settings.send is not None)
        self.inbox: deque[tuple[Record, int | None]] = deque()
        """New records, and the anchor of those that are tracked already; from any thread."""
        self.withdrawn: deque[tuple[Record, int]] = deque()
        """Those of them that could not be tracked, or nobody knows; from any thread."""
        self._flows = flows
        self._lane = Lane(threading.Lock)
        self._closing_lane = Lane(threading.Lock)
        """A TRACK in doubt is applied again under its number, which no closing may overtake."""
        self._outcomes: OutcomeFlows | None = None
        self._shards = 0
        self._after: dict[int, str] = {}
        self._oldest_at = 0.0
        self._all_heard = False
        """Whether the last step read all verdicts that waited."""
        self._rotate_at = 0.0
        """When attempts get older next; 0 before the first step."""
        self._waits = 0.0
        """Seconds for which an attempt is waited for; 0 before the first step."""
        self._doubt: tuple[Batch, list[_Attempt]] | None = None
        """What was sent and not answered."""
        self._sent: deque[tuple[_Attempt, Any]] = deque()
        """What became of those that were to be sent: what ``send`` returned, or its exception."""
        self._work: deque[Batch] = deque()
        """What is still to be said of what was sent."""
        self._full = False
        """Whether the backlog was full when a batch was last to be tracked."""
        self._resume_at = 0.0
        self._paused = 0
        """How often in a row it was paused, as too much was pending, or the namespace moves."""

    def live(self) -> int:
        """Records that are not closed."""
        # In this order: while a record moves from one to the other it counts twice, and never not.
        return len(self.inbox) + self.pending.size

    def step(self) -> Flow[float]:
        """Hear the verdicts, give up what waited for too long, emit; seconds until the next step.

        Yields ``Hand(Verdict)`` for each verdict. Raises RedisUnavailableError and its like; the
        next step goes on.
        """
        self._take_in()
        try:
            heard = yield from self._hear()
            if self._all_heard:
                yield from self._give_up()
            yield from self._say()
            if self._full and heard and not self._all_heard:
                return 0.0  # what waits to be heard may make room
            emitted = yield from self._emit()
        except AckerError as error:
            if isinstance(error, WrongShardError | NamespaceNotFoundError):
                # It was moved to other shards, or created anew: whoever asks next asks Redis.
                self._flows.known = None
            # Verdicts may have been missed meanwhile: what there is is read from its beginning, and
            # the bolts, too, get some time for what they could not say.
            self._rotate_at = max(self._rotate_at, time.monotonic() + GRACE)
            self._outcomes = None
            raise
        return 0.0 if heard or emitted else self._idle()

    def _take_in(self) -> None:
        withdrawn = len(self.withdrawn)  # of records that are in the inbox by now, or were
        while self.inbox:
            self.pending.add(*self.inbox[0])
            self.inbox.popleft()
        for _ in range(withdrawn):
            self.pending.withdraw(*self.withdrawn.popleft())

    def finish(self) -> Flow[None]:
        """Say the last words of what was sent; behind the last step."""
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
            self._oldest_at = now + FROM_THE_OLDEST
        else:
            config = yield from self._flows.config()
        if self._outcomes is None or config.shards != self._shards:
            # At first, after an error, or when it was moved to other shards or created anew.
            self._shards = config.shards
            self._outcomes = OutcomeFlows(self._flows.shards(config), self.task)
            self._after.clear()
        try:
            entries = yield from self._outcomes.read(ENTRIES, self._after)
            if self._outcomes.shards != self._shards:
                self._shards, self._flows.known = self._outcomes.shards, None
            self._take_in()  # a record that was tracked meanwhile may have its verdict in there
            for entry in entries:
                self._after[entry.shard] = entry.id
                yield from self._tell(self.pending.verdicts(entry, now))
            yield from self._take()
        except BaseException:
            self._after.clear()  # what did not count is read again
            raise
        per_shard = Counter(entry.shard for entry in entries)
        self._all_heard = not per_shard or max(per_shard.values()) < ENTRIES
        return len(entries)

    def _take(self) -> Flow[None]:
        settled = self.pending.settled()
        if settled and self._outcomes:
            yield from self._outcomes.take(settled)
            self.pending.taken(settled)

    def _tell(self, verdicts: Iterable[Verdict]) -> Flow[None]:
        for verdict in verdicts:
            if verdict.verdict == "nack" and not verdict.final and not verdict.record.attempt:
                verdict.final = not (yield from self._reloaded(verdict.record))
            yield Hand(verdict)

    def _reloaded(self, record: Record) -> Flow[bool]:
        """Find out what an earlier program has tracked; whether it can be replayed."""
        if self.settings.reload is None:
            return False
        (found,) = yield Tell(self.settings.reload, ((record.source_id,),))
        if found is None:
            return False
        if isinstance(found, BaseException):
            raise found
        if not isinstance(found, Record):
            raise ConfigError(
                f"reload gives Record(source_id, value, edges) or None, not {found!r}"
            )
        check_record(found)
        record.value, record.edges = found.value, found.edges
        return True

    def _give_up(self) -> Flow[None]:
        now = time.monotonic()
        if now >= self._rotate_at:
            # As it is now: before anything is given up, trees may have been made to live longer.
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
            # Each row of a tree starts its clock anew, and nobody tells us.
            timed_out = timed_out[:MAX_REVIVED]  # the others the next time
            for anchor in timed_out:
                if (yield from self._flows.show(anchor)) is not None:
                    self.pending.revive(anchor)
        yield from self._tell(self.pending.timeouts(now, timed_out))

    def _timeout(self, config: AckerConfig) -> float:
        """Seconds for which an attempt is waited for at least."""
        least = config.timeout_ms / 1000
        timeout = self.settings.timeout
        if timeout is None:
            return 1.5 * least + 5.0
        if timeout <= least:
            log.warning(
                "%s: trees live for up to %.1f s, and timeout= must be more; %.1f will not do",
                self.task, least, timeout,
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
            applied = yield from self._flows.apply(batch, self._lane)
        except AckerError as error:
            if not isinstance(error, RedisUnavailableError):
                self._doubt = None  # else the same batch again, the next time
                self._not_tracked(attempts, error)
            if isinstance(error, BacklogError):
                yield from self._flows.read_config(patient=False)
                if self._flows.reshard:
                    yield from self._leave_shards()
                    self._pause("the namespace moves to other shards")
                    return 0
                self._full = True
            raise
        self._full = False
        waiting = [a for a in attempts if self.pending.tracked(a.record, a.row.anchor)]
        self._notice(applied)
        yield from self._take()
        accepted = yield from self._accepted(waiting, applied)
        self._doubt = None  # after an error up to here it is gone through again, and then sent
        yield from self._send(accepted)
        yield from self._say()
        return len(attempts)

    def _make_room(self) -> Flow[None]:
        """Take nacks from a full backlog, if nothing else is left and their replays are due.

        Raises BacklogError where that leaves a shard full. Nothing is to be tracked then: other
        shards would apply their part, and the trees there would expire.

        A nack stays in the stream until its record is tracked again, and a full backlog lets
        nothing be tracked. So entries are taken just before the batch of their replays is applied,
        after all settled ones were taken and all verdicts were heard, and no more than makes room.
        """
        yield from self._take()
        status = yield from self._flows.status()
        most = status.config.backlog_share
        waits = {shard: each.backlog.get(self.task, 0) for shard, each in enumerate(status.shards)}
        wanted = {shard: count - most + 1 for shard, count in waits.items() if count >= most}
        if not wanted:
            return
        if not self._all_heard or not self.pending.let_go(wanted, time.monotonic()):
            shard = min(wanted)
            raise BacklogError(
                f"task {self.task} has {waits[shard]} verdicts waiting to be taken on shard "
                f"{shard}; its source must read and take its outcomes"
            )
        yield from self._take()

    def _next_batch(self) -> tuple[Batch, list[_Attempt]] | None:
        now, record = time.monotonic(), None
        batch, attempts, draw = Batch(self.task), list[_Attempt](), in_bulk()
        try:
            while not batch.full and (record := self.pending.next(now)):
                # One without messages stays open, too, until it is known that send() did not fail.
                tree = (
                    emit(record.source_id, record.edges, draw=draw)
                    if record.edges
                    else OpenTree(record.source_id)
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
        """Put the records back; some of their trees may be there, and then expire unheard."""
        now = time.monotonic()
        # Of a full backlog, the records of an entry have to be due together: see _make_room.
        at_once = isinstance(error, LaneError | BacklogError)
        after = 0.0 if at_once else self.settings.backoff.draw(1)
        for attempt in attempts:
            self.pending.untracked(attempt.record, attempt.row.anchor, now, after)

    def _accepted(self, attempts: list[_Attempt], applied: Applied) -> Flow[list[_Attempt]]:
        """Those whose messages may be sent."""
        rejected = set(applied.rejected)
        if applied.repeated:
            # The reply was lost, and with it which were rejected: ask for each.
            for attempt in attempts:
                anchor = attempt.row.anchor
                if anchor not in rejected and not (yield from self._flows.show(anchor)):
                    rejected.add(anchor)
        return [each for each in attempts if each.row.anchor not in rejected]

    def _send(self, attempts: list[_Attempt]) -> Flow[None]:
        if not attempts or self.settings.send is None:
            return
        calls = tuple((attempt.record, attempt.sent) for attempt in attempts)

        def told(number: int, result: Any) -> None:
            self._sent.append((attempts[number], result))

        yield Send(self.settings.send, calls, told)

    def _rows(self, attempt: _Attempt, result: Any) -> list[Row]:
        """What is to be said of an attempt that was sent, or not: a nack queues it again."""
        try:
            check_ran(self.settings.send or words, result)
        except ConfigError as error:
            result = error  # nothing of it was sent
        tree, failed = attempt.tree, isinstance(result, BaseException)
        if failed:
            # Whoever has on_fail hears of it by the verdict.
            level = logging.DEBUG if self.settings.on_fail else logging.WARNING
            log.log(level, "cannot send %r: %r", attempt.record.source_id, result)
        if isinstance(tree, OpenTree):
            try:
                return tree.fail(result) if failed else tree.close()
            except ClosedError:
                result = "send() has closed its tree, which is for the source to do"
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
        """Close or fail the trees of what was sent."""
        while self._sent:
            self._later(self._rows(*self._sent[0]))
            self._sent.popleft()
        while self._work:
            try:
                yield from self._flows.apply(self._work[0], self._closing_lane)
            except RedisUnavailableError:
                raise
            except AckerError as error:
                log.warning("%d trees will expire: %s", len(self._work[0]), error)
            self._work.popleft()

    def _notice(self, applied: Applied) -> None:
        if applied.high_water and applied.pending >= applied.high_water:
            self._pause("too much is pending")

    def _may_emit(self) -> Flow[bool]:
        """Whether there is room below the high-water mark, as far as is known."""
        now = time.monotonic()
        if now < self._resume_at:
            return False
        if self._paused:
            status = yield from self._flows.status()
            if status.reshard:
                self._leave(status)
                self._pause("the namespace moves to other shards", most=1.0)
                return False
            if status.high_water != "ok":
                self._pause("too much is pending")
                return False
            self._paused = 0
            log.info("%s emits again", self.task)
        return True

    def _leave_shards(self) -> Flow[None]:
        """See to it that a move to fewer shards can end."""
        if self._flows.reshard and self._flows.reshard.target < self._flows.reshard.source:
            self._leave((yield from self._flows.status()))

    def _leave(self, status: Status) -> None:
        # It ends when the verdicts on shards that go were taken, and nothing is tracked anew before
        # that. Until it waits for nothing else they stay: should this program die, only they know.
        if status.reshard and not any(sum(s.pending) + s.expiring for s in status.shards):
            self.pending.settle_all(status.reshard.target)

    def _pause(self, why: str, most: float = 5.0) -> None:
        self._paused += 1
        wait = Backoff(0.1, most).draw(self._paused)
        self._resume_at = time.monotonic() + wait
        if self._paused == 1:
            log.warning("%s emits nothing for a while: %s", self.task, why)
