"""What a rotator does with one shard, call by call: look, drain records, drain blocks. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call
from acker_redis.protocol.keys import ShardKeys

DRAIN_RECORDS = 1000
"""Records per call while draining: some 5 ms at most, behind which producers get their turn."""
DRAIN_BLOCKS = 64
"""Blocks per call; the script stops early where they are large."""


@dataclass(frozen=True, slots=True)
class Round:
    """What came of one look at a shard, and of the drain that followed."""

    ticked: bool
    late_ms: int
    """How long after it was due the tick came; 0 if there was none."""
    expired: int
    acked: int
    """Trees of blocks that were complete, and are told only as their block ends."""
    orphaned: int
    drain_ms: int
    """From the first call of the drain to the last reply, in ms, the turns of others included."""
    calls: int
    """Calls of the drain; those of other rotators that drained the same are not among them."""


@dataclass(frozen=True, slots=True)
class Step:
    """What comes after a reply."""

    more: bool
    """Whether there is another call to make at once."""
    due: float = 0.0
    """Seconds from now until the next tick is due, if there is not."""
    round: Round | None = None
    """The round that has ended by this reply."""


class ShardRotation:
    """Ticks one shard when a tick is due, and drains what has expired.

    ``call()`` says what to send, ``reply()`` takes what came; whoever has no reply sends the call
    again, at any time: each of them may run any number of times. ``force`` ticks once in the first
    round, due or not.
    """

    def __init__(
        self,
        keys: ShardKeys,
        records: int = DRAIN_RECORDS,
        blocks: int = DRAIN_BLOCKS,
        force: bool = False,
    ) -> None:
        self.keys = keys
        self._look = commands.rotate(keys, force=False)
        self._drains = (commands.expire(keys, records), commands.expire_blocks(keys, blocks))
        self._draining = 0  # 0: not; 1: records; 2: blocks
        self._wanted = force
        self._due_at = 0.0
        self._begin(0.0)

    @property
    def draining(self) -> bool:
        """Whether the next call drains, and does not look."""
        return bool(self._draining)

    def stop(self, now: float) -> Round:
        """Stop in the middle of a drain, which others go on with; what came of it so far."""
        self._draining = 0
        return self._so_far(round((now - self._began) * 1000))

    def call(self) -> Call:
        """What is to be sent next."""
        return self._drains[self._draining - 1] if self._draining else self._look

    def reply(self, reply: Sequence[Any], now: float) -> Step:
        """Take the reply to ``call()``; ``now`` is in seconds, of a clock that does not go back."""
        if not self._draining:
            return self._looked(commands.parse_rotate(reply), now)
        self._calls += 1
        if self._draining == 1:
            drained = commands.parse_expire(reply)
            self._expired += drained.nacked
            self._orphaned += drained.orphaned
            left = drained.left
        else:
            acked, nacked, left = map(int, reply)
            self._acked += acked
            self._expired += nacked
        if left:
            return Step(more=True)
        if self._draining == 1:
            self._draining = 2
            return Step(more=True)
        self._draining = 0
        return self._end(now, round((now - self._began) * 1000))

    def _looked(self, rotated: commands.Rotated, now: float) -> Step:
        self._begin(now)
        if rotated.rotated:
            self._ticked, self._wanted = True, False
            self._late_ms = rotated.late_ms
            self._look = commands.rotate(self.keys, force=False)
        self._due_at = now + rotated.due_ms / 1000
        if rotated.left:
            self._draining = 1
            return Step(more=True)
        return self._end(now, 0)

    def _so_far(self, drain_ms: int) -> Round:
        return Round(
            ticked=self._ticked,
            late_ms=self._late_ms,
            expired=self._expired,
            acked=self._acked,
            orphaned=self._orphaned,
            drain_ms=drain_ms,
            calls=self._calls,
        )

    def _end(self, now: float, drain_ms: int) -> Step:
        done = self._so_far(drain_ms)
        if self._wanted:
            # It was not due, and what had expired before is drained.
            self._look = commands.rotate(self.keys, force=True)
            return Step(more=True, round=done)
        return Step(more=False, due=max(0.0, self._due_at - now), round=done)

    def _begin(self, now: float) -> None:
        self._began = now
        self._ticked, self._late_ms = False, 0
        self._expired = self._acked = self._orphaned = self._calls = 0
