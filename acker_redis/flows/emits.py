"""The steps of a source that track trees, send their messages and close them. No I/O.

``source.py`` describes the whole step, and argues why it is safe to leave out shards.
"""

import logging
import threading
import time
from collections import deque
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
)
from acker_redis.flows.lane import Lane
from acker_redis.flows.namespace import Flows
from acker_redis.flows.pace import Paces
from acker_redis.flows.source_state import SHARD_ERRORS
from acker_redis.flows.steps import Flow, Send, each_of, may_retry
from acker_redis.protocol.ids import shard_of
from acker_redis.protocol.rows import FAIL, MAX_ROWS, TRACK, Row
from acker_redis.protocol.texts import words
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.processing import OpenTree, first_messages, in_bulk
from acker_redis.trees.record import Record
from acker_redis.trees.source_settings import SourceSettings, check_ran

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Attempt:
    """One attempt at a record: its tree is being tracked."""

    record: Record
    anchor: int
    sent: "tuple[MessageId, ...] | OpenTree"
    """What ``send`` gets."""
    tree: OpenTree | None = None
    """The tree, if it is closed after ``send``."""


@dataclass(slots=True)
class Doubt:
    """The batch of a shard that was not answered, or is not sent yet, with its attempts."""

    batch: Batch
    attempts: list[Attempt]


class Emits(Paces):
    """The part of a step that emits."""

    def __init__(self, flows: Flows, name: str, settings: SourceSettings) -> None:
        super().__init__(flows, name, settings)
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
        except SHARD_ERRORS as error:
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
                if self.pending.tracked(attempt.record, attempt.anchor)
            ]
            for shard in applied
        }
        self._full -= applied.keys()
        self._notice(applied.values())
        yield from self._take()
        accepted: dict[int, list[Attempt]] = {}
        errors: dict[int, AckerError] = {}
        for shard, reply in applied.items():
            try:
                accepted[shard] = yield from self._accepted(waiting[shard], reply)
            except AckerError as error:
                errors[shard] = error
        # After an error before this line, the next step applies and sends the batches.
        sent = sum(len(self._doubts.pop(shard).attempts) for shard in accepted)
        yield from self._send([attempt for some in accepted.values() for attempt in some])
        self._fail_all(errors)
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
        try:
            if 0 in self._ready:
                yield from self._flows.read_config(patient=False)
        except SHARD_ERRORS as error:
            self._fail(0, error)
        if self._flows.reshard:
            yield from self._leave_shards()
            self._pause("the namespace is resharding")
            return
        self._full |= full.keys()
        if self._ready <= self._full:
            raise next(iter(full.values()))

    def _draw(self, usable: list[int]) -> None:
        """Draw attempts for due records, with anchors on these shards."""
        now, record, ids = time.monotonic(), None, self._flows.ids
        place = (lambda a, more: self._placed(a, usable, more)) if self._shards > 1 else None
        attempts, draw = list[Attempt](), in_bulk(place)
        doubts: dict[int, Doubt] = {}
        try:
            while usable and len(attempts) < MAX_ROWS and (record := self.pending.next(now)):
                if record.messages:
                    anchor, delta, sent = first_messages(record.messages, record.edge, ids, draw)
                    attempt = Attempt(record, anchor, sent)
                else:  # a record without messages stays open, too, until send() has returned
                    tree = OpenTree(record.source_id, ids=ids, anchor=draw(1)[0] >> 1)
                    anchor, delta = tree.anchor, tree.opening.delta
                    attempt = Attempt(record, anchor, () if record.messages == 0 else tree, tree)
                shard = shard_of(anchor, self._shards)
                doubt = doubts.get(shard)
                if doubt is None:
                    doubt = doubts[shard] = Doubt(Batch(self.name), [])
                doubt.batch.fold(anchor, delta, TRACK, record.source_id.encode())
                self.pending.tracking(record, anchor, now)
                doubt.attempts.append(attempt)
                attempts.append(attempt)
                if doubt.batch.full:
                    usable = [each for each in usable if each != shard]
        except BaseException as error:
            if record and (not attempts or attempts[-1].record is not record):
                self.pending.put_back(record)
            self._not_tracked(attempts, error)
            raise
        if usable or attempts:
            self.pending.drawn(full=record is not None)
        self._doubts |= doubts

    def _not_tracked(self, attempts: list[Attempt], error: BaseException) -> None:
        """Queue the records for another attempt.

        Some of their trees may exist all the same; these expire, and their verdicts are ignored.
        """
        now = time.monotonic()
        # With a full backlog the records of an entry must be due together: see _make_room.
        at_once = isinstance(error, LaneError | BacklogError)
        after = 0.0 if at_once else self.settings.backoff.draw(1)
        for attempt in attempts:
            self.pending.untracked(attempt.record, attempt.anchor, now, after)

    def _accepted(self, attempts: list[Attempt], applied: Applied) -> Flow[list[Attempt]]:
        """Return the attempts whose messages may be sent."""
        if not applied.rejected and not applied.repeated:
            return attempts
        rejected = set(applied.rejected)
        if applied.repeated:
            # The first reply, which names the rejected trees, was lost: look each tree up.
            for attempt in attempts:
                anchor = attempt.anchor
                if anchor not in rejected and not (yield from self._flows.show(anchor)):
                    rejected.add(anchor)
        return [each for each in attempts if each.anchor not in rejected]

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
            self.pending.unsent(attempt.anchor)
        if tree is not None:
            try:
                return tree.fail(result) if failed else tree.close()
            except ClosedError:
                result = "send() has closed its tree, but the source closes it after send()"
        elif not failed:
            return []
        why = words(result) if isinstance(result, BaseException) else result
        return [Row(attempt.anchor, 0, FAIL, why)]

    def _later(self, rows: list[Row]) -> None:
        for row in rows:
            work = self._work.setdefault(shard_of(row.anchor, self._shards), deque())
            if not work or work[-1].sent or not work[-1].add(row):
                work.append(Batch())
                work[-1].add(row)

    def _say(self) -> Flow[None]:
        """Close or fail the trees whose messages were sent."""
        while self._sent:
            attempt, result = self._sent[0]
            if result is not None or attempt.tree:
                self._later(self._rows(attempt, result))
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
                self._fail(shard, error)


def _joins(doubt: Doubt) -> bool:
    """Return whether a record of the batch is not a member of its group yet."""
    records = (attempt.record for attempt in doubt.attempts)
    return any(
        each._group is not None and each.source_id in each._group.waiting for each in records
    )
