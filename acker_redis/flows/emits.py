"""The steps of a source that track trees, send their messages and close them. No I/O.

``source.py`` describes the whole step, and argues why it is safe to leave out shards.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from acker_redis.batching.batch import Batch
from acker_redis.batching.sent import Applied
from acker_redis.errors import (
    AckerError,
    BacklogError,
    ClosedError,
    ConfigError,
    FenceFullError,
    LaneError,
    RedisRefusedError,
    RedisUnavailableError,
)
from acker_redis.flows.groups import GroupFlows
from acker_redis.flows.lane import Lane
from acker_redis.flows.namespace import Flows
from acker_redis.flows.reach import Reach
from acker_redis.flows.steps import Flow, Pauses, Send, each_of, may_retry
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.ids import new_anchor, shard_of
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.rows import FAIL, MAX_ROWS, Row
from acker_redis.protocol.status import Status
from acker_redis.protocol.texts import words
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.pending import Backoff, Pending, Record
from acker_redis.trees.processing import Emitted, OpenTree, emit, in_bulk
from acker_redis.trees.source_settings import SourceSettings, check_ran

log = logging.getLogger(__name__)

T = TypeVar("T")

SHARD_ERRORS = (RedisUnavailableError, RedisRefusedError, FenceFullError)
"""Errors of one shard, for which it is left out; after others the step ends."""


@dataclass(slots=True)
class Attempt:
    """One attempt at a record: its tree is being tracked."""

    record: Record
    tree: Emitted | OpenTree

    @property
    def row(self) -> Row:
        """The row that tracks the tree."""
        return self.tree.opening if isinstance(self.tree, OpenTree) else self.tree.row

    @property
    def sent(self) -> "tuple[MessageId, ...] | OpenTree":
        """What ``send`` gets."""
        if isinstance(self.tree, OpenTree):
            return self.tree if self.record.edges is None else ()
        return self.tree.ids


@dataclass(slots=True)
class Doubt:
    """The batch of a shard that was not answered, or is not sent yet, with its attempts."""

    batch: Batch
    attempts: list[Attempt]


class Emits:
    """The state of a source, and the part of its step that emits."""

    def __init__(self, flows: Flows, name: str, settings: SourceSettings) -> None:
        self.name = check_name("source", name)
        self.settings = settings
        self.pending = Pending(settings.attempts, settings.backoff, settings.send is not None)
        self.given = flows
        """The flows of the client."""
        # No retries here: a call that waits for one shard would delay the others.
        self._flows = Flows(flows.namespace, retry_for=0.0)
        self.groups = GroupFlows(self._flows, self.name, settings.on_group)
        self._reach = Reach(flows.namespace)
        self._shards = 0
        """Number of shards; 0 before the first step."""
        self._ready: set[int] = set()
        """Shards whose calls have not failed in this step; the others are left out."""
        self._heard: set[int] = set()
        """Shards of which this step has read all waiting verdicts."""
        self._after: dict[int, str] = {}
        """The last entry that was read from each shard, since its stream was read from the oldest.
        """
        self._lanes: dict[int, Lane[threading.Lock]] = {}
        """The lane of each shard."""
        self._closing_lanes: dict[int, Lane[threading.Lock]] = {}
        """The lanes of rows that close trees.

        A TRACK in doubt is applied again under its number in ``_lanes``. A closing row in the same
        lane would overtake that number.
        """
        self._doubts: dict[int, Doubt] = {}
        """The batches in doubt, by the shard that they were drawn for."""
        self._sent: deque[tuple[Attempt, Any]] = deque()
        """Attempts that ``send`` was called for, each with its return value or exception."""
        self._work: dict[int, deque[Batch]] = {}
        """Per shard, batches of rows that close or fail trees and are not applied yet."""
        self._full: set[int] = set()
        """Shards whose backlog was full when the source last tracked a batch there."""
        self._resume_at = 0.0
        self._paused = 0
        """Pauses in a row, because too much was pending or because of a reshard."""

    def anchor(self) -> int:
        """Return a new anchor on a shard that answers, as far as the last step has found."""
        return self._placed(new_anchor(), sorted(self._ready), new_anchor())

    def _take(self) -> Flow[None]:
        raise NotImplementedError

    def _fail(self, shard: int, error: AckerError) -> None:
        """Leave a shard out after an error; raise the error if no shard is left."""
        for each in self._reach.failed(shard, error, time.monotonic()):
            self._ready.discard(each)
            self._heard.discard(each)
            self._after.pop(each, None)  # the source may have missed verdicts
            if each == 0:
                self.groups.failed()
        if not self._ready:
            raise error

    def _patiently(self, work: Callable[[], Flow[T]]) -> Flow[T]:
        """Run a part of the step; while no shard is left, repeat it as long as the client may."""
        deadline, pauses, ready = self.given.deadline(), Pauses(), set(self._ready)
        while True:
            try:
                return (yield from work())
            except AckerError as error:
                if self._ready or not may_retry(error):
                    raise
                yield from pauses.after(error, deadline)
                self._ready = set(ready)

    def _may_call(self, shard: int) -> bool:
        # The shard of a batch in doubt may be removed by now; its calls are answered with that.
        return shard in self._ready or shard >= self._shards

    def _statuses(self) -> Flow[list[ShardStatus]]:
        """Return the status of each shard that answers."""
        found: list[ShardStatus] = []
        ready = sorted(self._ready)
        keys = [ShardKeys(self._flows.namespace, shard) for shard in ready]
        replies = yield from each_of([self._flows.shard_status(each) for each in keys])
        for shard, reply in zip(ready, replies, strict=True):
            if isinstance(reply, SHARD_ERRORS):
                self._fail(shard, reply)
            elif isinstance(reply, AckerError):
                raise reply
            else:
                found.append(reply)
        return found

    def _emit(self) -> Flow[int]:
        full: AckerError | None = None
        if (yield from self._may_emit()):
            try:
                self._draw((yield from self._usable()))
            except BacklogError as error:
                full = error  # batches in doubt are applied first
        tried = {
            shard: doubt
            for shard, doubt in self._doubts.items()
            if self._may_call(shard) and not (self._without_groups and _joins(doubt))
        }
        sent = (yield from self._track(tried)) if tried else 0
        if full:
            raise full
        return sent

    @property
    def _without_groups(self) -> bool:
        return self.groups.active and 0 not in self._ready

    def _usable(self) -> Flow[list[int]]:
        """Return the shards for which attempts may be drawn.

        Raises BacklogError if there are none because their backlogs are full.
        """
        if self._without_groups:
            return []
        free = self._ready - self._doubts.keys()
        if free and free <= self._full:
            if not free <= self._heard:
                return []  # verdicts that are not read yet may make room
            yield from self._make_room(free)
        return sorted(free & self._ready - self._full)

    def _track(self, tried: dict[int, Doubt]) -> Flow[int]:
        """Apply batches side by side, and send the messages of those that are applied."""
        try:
            yield from self.groups.join(
                attempt.record for doubt in tried.values() for attempt in doubt.attempts
            )
        except RedisUnavailableError as error:
            self._fail(0, error)
            return 0
        replies = yield from each_of(
            [
                self._flows.apply(doubt.batch, self._lane(self._lanes, shard))
                for shard, doubt in tried.items()
            ]
        )
        applied: dict[int, Applied] = {}
        errors: dict[int, AckerError] = {}
        for (shard, doubt), reply in zip(tried.items(), replies, strict=True):
            if isinstance(reply, Applied):
                applied[shard] = reply
                continue
            errors[shard] = reply
            if not may_retry(reply):
                del self._doubts[shard]  # else it is applied again
                self._not_tracked(doubt.attempts, reply)
        sent = (yield from self._tracked(applied)) if applied else 0
        yield from self._refused(errors)
        return sent

    def _lane(self, lanes: "dict[int, Lane[threading.Lock]]", shard: int) -> "Lane[threading.Lock]":
        lane = lanes.get(shard)
        if lane is None:
            lane = lanes[shard] = Lane(threading.Lock)
        return lane

    def _tracked(self, applied: dict[int, Applied]) -> Flow[int]:
        """Send the messages of batches that were applied; return the number of attempts."""
        waiting = {
            shard: [
                attempt
                for attempt in self._doubts[shard].attempts
                if self.pending.tracked(attempt.record, attempt.row.anchor)
            ]
            for shard in applied
        }
        self._full -= applied.keys()
        self._notice(applied.values())
        yield from self._take()
        accepted: list[Attempt] = []
        sent = 0
        for shard, reply in applied.items():
            try:
                accepted += yield from self._accepted(waiting[shard], reply)
            except SHARD_ERRORS as error:
                self._fail(shard, error)
                continue
            # After an error before this line, the next step applies and sends the batch.
            sent += len(self._doubts.pop(shard).attempts)
        yield from self._send(accepted)
        yield from self._say()
        return sent

    def _refused(self, errors: dict[int, AckerError]) -> Flow[None]:
        """Process the errors of batches, by shard; raise one that ends the step."""
        for shard, error in errors.items():
            if isinstance(error, SHARD_ERRORS):
                self._fail(shard, error)
            elif not isinstance(error, BacklogError):
                raise error
        full = {s: error for s, error in errors.items() if isinstance(error, BacklogError)}
        if not full:
            return
        if 0 in self._ready:
            yield from self._flows.read_config(patient=False)
        if self._flows.reshard:
            yield from self._leave_shards()
            self._pause("the namespace is resharding")
            return
        self._full |= full.keys()
        if self._ready <= self._full:
            raise next(iter(full.values()))

    def _make_room(self, shards: set[int]) -> Flow[None]:
        """Take entries of nacks from full backlogs, as a last resort, when their replays are due.

        Raises BacklogError if all of these shards stay full.

        The problem: the entry of a nack stays in the stream until its record is tracked again, and
        full backlogs let no record be tracked. So the source takes such entries early, under these
        conditions:

        1. The backlogs of all shards that answer, and are not in doubt, are full.
        2. All settled entries were taken, and all waiting verdicts were read.
        3. All records of a taken entry are due, so the next batch, which is applied at once, tracks
           them.
        4. No more entries are taken than make room.
        """
        yield from self._take()
        full: dict[int, int] = {}
        for status in (yield from self._statuses()):
            if status.shard not in shards:
                continue
            count, most = status.backlog.get(self.name, 0), status.config.backlog_share
            wanted = {status.shard: count - most + 1}
            if count < most or self.pending.let_go(wanted, time.monotonic()):
                self._full.discard(status.shard)
            else:
                full[status.shard] = count
        if full and not shards & self._ready - self._full:
            shard = min(full)
            raise BacklogError(
                f"source {self.name} has {full[shard]} verdicts waiting to be taken on shard "
                f"{shard}; its source must read and take its outcomes"
            )
        yield from self._take()

    def _draw(self, usable: list[int]) -> None:
        """Draw attempts for due records, with anchors on these shards."""
        now, record, ids = time.monotonic(), None, self._flows.ids
        attempts, draw = list[Attempt](), in_bulk(lambda a, more: self._placed(a, usable, more))
        doubts: dict[int, Doubt] = {}
        try:
            while usable and len(attempts) < MAX_ROWS and (record := self.pending.next(now)):
                # A record without messages stays open, too, until send() has returned.
                tree = (
                    emit(record.source_id, record.edges, edge=record.edge, ids=ids, draw=draw)
                    if record.edges
                    else OpenTree(record.source_id, ids=ids, anchor=draw(1)[0] >> 1)
                )
                attempt = Attempt(record, tree)
                anchor = attempt.row.anchor
                shard = shard_of(anchor, self._shards)
                doubt = doubts.get(shard)
                if doubt is None:
                    doubt = doubts[shard] = Doubt(Batch(self.name), [])
                doubt.batch.fold(attempt.row, record.source_id.encode())
                self.pending.tracking(record, anchor)
                doubt.attempts.append(attempt)
                attempts.append(attempt)
                if doubt.batch.full:
                    usable = [each for each in usable if each != shard]
        except BaseException as error:
            if record and (not attempts or attempts[-1].record is not record):
                self.pending.put_back(record)
            self._not_tracked(attempts, error)
            raise
        self._doubts |= doubts

    def _placed(self, anchor: int, usable: list[int], more: int) -> int:
        """Return the anchor on one of these shards, chosen by the random number ``more``."""
        if not 0 < len(usable) < self._shards:
            return anchor
        return anchor - anchor % self._shards + usable[more % len(usable)]

    def _not_tracked(self, attempts: list[Attempt], error: BaseException) -> None:
        """Queue the records for another attempt.

        Some of their trees may exist all the same; these expire, and their verdicts are ignored.
        """
        now = time.monotonic()
        # With a full backlog the records of an entry must be due together: see _make_room.
        at_once = isinstance(error, LaneError | BacklogError)
        after = 0.0 if at_once else self.settings.backoff.draw(1)
        for attempt in attempts:
            self.pending.untracked(attempt.record, attempt.row.anchor, now, after)

    def _accepted(self, attempts: list[Attempt], applied: Applied) -> Flow[list[Attempt]]:
        """Return the attempts whose messages may be sent."""
        rejected = set(applied.rejected)
        if applied.repeated:
            # The first reply, which names the rejected trees, was lost: look each tree up.
            for attempt in attempts:
                anchor = attempt.row.anchor
                if anchor not in rejected and not (yield from self._flows.show(anchor)):
                    rejected.add(anchor)
        return [each for each in attempts if each.row.anchor not in rejected]

    def _send(self, attempts: list[Attempt]) -> Flow[None]:
        if not attempts or self.settings.send is None:
            return
        calls = tuple((attempt.record, attempt.sent) for attempt in attempts)

        def on_result(number: int, result: Any) -> None:
            self._sent.append((attempts[number], result))

        yield Send(self.settings.send, calls, on_result)

    def _rows(self, attempt: Attempt, result: Any) -> list[Row]:
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
            work = self._work.setdefault(shard_of(row.anchor, self._shards), deque())
            if not work or work[-1].sent or not work[-1].add(row):
                work.append(Batch())
                work[-1].add(row)

    def _say(self) -> Flow[None]:
        """Close or fail the trees whose messages were sent."""
        while self._sent:
            self._later(self._rows(*self._sent[0]))
            self._sent.popleft()
        while work := {s: its for s, its in self._work.items() if self._may_call(s)}:
            replies = yield from each_of(
                [
                    self._flows.apply(its[0], self._lane(self._closing_lanes, shard))
                    for shard, its in work.items()
                ]
            )
            away: dict[int, AckerError] = {}
            for (shard, its), reply in zip(work.items(), replies, strict=True):
                if isinstance(reply, AckerError) and may_retry(reply):
                    away[shard] = reply
                    continue
                if isinstance(reply, AckerError):
                    log.warning(
                        "source %s: %d trees will expire unclosed: %s",
                        self.name, len(its[0]), reply,
                    )  # fmt: skip
                its.popleft()
                if not its:
                    del self._work[shard]
            for shard, error in away.items():
                if shard >= self._shards:
                    raise error
                self._fail(shard, error)

    def _notice(self, applied: Iterable[Applied]) -> None:
        pending = high_water = 0
        for each in applied:
            pending, high_water = pending + each.pending, high_water + each.high_water
        if high_water and pending >= high_water:
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
            status = yield from self._status()
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

    def _status(self) -> Flow[Status]:
        """Return the status of the namespace, without the shards that are left out."""
        shards = yield from self._statuses()
        first = shards[0]  # else _statuses has raised an error
        if first.shard == 0:
            self._flows.note(first)
        return Status(self._flows.namespace, first.config, tuple(shards))

    def _leave_shards(self) -> Flow[None]:
        """Let a reshard to fewer shards end: take the entries on removed shards."""
        if self._flows.reshard and self._flows.reshard.target < self._flows.reshard.source:
            self._leave((yield from self._status()))

    def _leave(self, status: Status) -> None:
        # A reshard to fewer shards ends when the verdicts on removed shards are taken. Until it has
        # ended, no record can be tracked again. So entries on removed shards are taken before the
        # records that they nacked are tracked again. The source waits with that until no tree is
        # pending: until then these entries alone show, if the program dies, that the records are
        # not done.
        if len(status.shards) < status.config.shards:
            return  # trees may be pending on the shards that are left out
        if status.reshard and not any(sum(s.pending) + s.expiring for s in status.shards):
            self.pending.settle_all(status.reshard.target)

    def _pause(self, why: str, most: float = 5.0) -> None:
        self._paused += 1
        wait = Backoff(0.1, most).draw(self._paused)
        self._resume_at = time.monotonic() + wait
        if self._paused == 1:
            log.warning("source %s has paused emitting: %s", self.name, why)


def _joins(doubt: Doubt) -> bool:
    """Return whether a record of the batch is not a member of its group yet."""
    records = (attempt.record for attempt in doubt.attempts)
    return any(each.joins is not None and each.source_id in each.joins.waiting for each in records)
