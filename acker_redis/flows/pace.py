"""When a source may emit: the high-water mark, full backlogs, and reshards. No I/O.

``source.py`` describes the whole step.
"""

import logging
import time
from collections.abc import Iterable

from acker_redis.batching.sent import Applied
from acker_redis.errors import BacklogError
from acker_redis.flows.namespace import Flows
from acker_redis.flows.source_state import SourceState
from acker_redis.flows.steps import Flow
from acker_redis.protocol.status import Status
from acker_redis.trees.record import Backoff
from acker_redis.trees.source_settings import SourceSettings

log = logging.getLogger(__name__)


class Paces(SourceState):
    """The part of a step that decides whether, and where, the source may emit."""

    def __init__(self, flows: Flows, name: str, settings: SourceSettings) -> None:
        super().__init__(flows, name, settings)
        self._full: set[int] = set()
        """Shards whose backlog was full when the source last tracked a batch there."""
        self._resume_at = 0.0
        self._paused = 0
        """Pauses in a row, because too much was pending or because of a reshard."""

    def _take(self) -> Flow[None]:
        raise NotImplementedError

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
