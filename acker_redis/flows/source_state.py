"""The state of a source, and the shards that its step calls. No I/O.

``source.py`` describes the whole step, and argues why it is safe to leave out shards.
"""

import math
import time
from collections.abc import Callable
from typing import TypeVar

from acker_redis.errors import (
    AckerError,
    FenceFullError,
    RedisRefusedError,
    RedisUnavailableError,
)
from acker_redis.flows.groups import GroupFlows
from acker_redis.flows.namespace import Flows
from acker_redis.flows.reach import Reach
from acker_redis.flows.steps import Flow, Pauses, each_of, may_retry
from acker_redis.protocol.commands import ShardStatus
from acker_redis.protocol.ids import new_anchor
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.status import Status
from acker_redis.trees.pending import Pending
from acker_redis.trees.source_settings import SourceSettings

T = TypeVar("T")

SHARD_ERRORS = (RedisUnavailableError, RedisRefusedError, FenceFullError)
"""Errors of one shard, for which it is left out; after others the step ends."""


REMOVED_PAUSE = 5.0
"""Seconds until a removed shard that has not answered is called again."""


class SourceState:
    """The state that the parts of a step share."""

    def __init__(self, flows: Flows, name: str, settings: SourceSettings) -> None:
        self.name = check_name("source", name)
        self.settings = settings
        self.pending = Pending(
            settings.attempts,
            settings.backoff,
            settings.send is not None,
            settings.max_pending if settings.adaptive else math.inf,
            settings.give_up_after,
        )
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
        self._removed: dict[int, float] = {}
        """When a removed shard with a batch in doubt is called again, if it has not answered."""
        self._after: dict[int, str] = {}
        """The last entry that was read from each shard, since its stream was read from the oldest.
        """

    def anchor(self) -> int:
        """Return a new anchor on a shard that answers, as far as the last step has found."""
        return self._placed(new_anchor(), sorted(self._ready), new_anchor())

    def _placed(self, anchor: int, usable: list[int], more: int) -> int:
        """Return the anchor on one of these shards, chosen by the random number ``more``."""
        if not 0 < len(usable) < self._shards:
            return anchor
        return anchor - anchor % self._shards + usable[more % len(usable)]

    def _fail(self, shard: int, error: AckerError) -> None:
        """Leave a shard out after an error; raise the error if no shard is left."""
        if shard >= self._shards:
            self._removed[shard] = time.monotonic() + REMOVED_PAUSE
            return
        for each in self._reach.failed(shard, error, time.monotonic()):
            self._ready.discard(each)
            self._heard.discard(each)
            self._after.pop(each, None)  # the source may have missed verdicts
            if each == 0:
                self.groups.failed()
        if not self._ready:
            raise error

    def _fail_all(self, errors: dict[int, AckerError]) -> None:
        """Leave shards out after their errors; raise an error that is not one of a shard."""
        for shard, error in errors.items():
            if not isinstance(error, SHARD_ERRORS):
                raise error
            self._fail(shard, error)

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
        if shard < self._shards:
            return shard in self._ready
        # The shard of a batch in doubt may be removed by now; its calls are answered with that.
        return time.monotonic() >= self._removed.get(shard, 0.0)

    @property
    def _without_groups(self) -> bool:
        return self.groups.active and 0 not in self._ready

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

    def _status(self) -> Flow[Status]:
        """Return the status of the namespace, without the shards that are left out."""
        shards = yield from self._statuses()
        first = shards[0]  # else _statuses has raised an error
        if first.shard == 0:
            self._flows.note(first)
        return Status(self._flows.namespace, first.config, tuple(shards))
