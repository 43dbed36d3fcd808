"""Rotate one shard, call by call: look, tick, drain records, drain blocks. No I/O.

:class:`ShardRotation` is a state machine with three states:

1. *Look.* Call ``rotate``, which ticks if a tick is due. If the expired bucket still holds records
   or blocks, go to state 2; else the round ends.
2. *Drain records.* Call ``expire`` until no record is left, then go to state 3.
3. *Drain blocks.* Call ``expire_blocks`` until no block is left; then the round ends.

Every call is safe to repeat: the script decides by Redis's clock and by the records and blocks
that are left. So a call without a reply is sent again, and any number of rotators may rotate one
shard at the same time. A rotator may stop in any state; another rotator, or the same one later,
continues the drain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from acker_redis.protocol import commands
from acker_redis.protocol.commands import Call
from acker_redis.protocol.keys import ShardKeys

DRAIN_RECORDS = 1000
"""Records per call of a drain: a call takes about 5 ms, and producers get their turn after it."""
DRAIN_BLOCKS = 64
"""Blocks per call of a drain; the script returns earlier for large blocks."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round: one look at a shard, and the drain that followed."""

    ticked: bool
    late_ms: int
    """Milliseconds from the due time to the tick; 0 if this round did not tick."""
    expired: int
    acked: int
    """Complete trees of blocks, which get their verdict only when their block ends."""
    orphaned: int
    drain_ms: int
    """Milliseconds from the first call to the last reply of the drain, with other shards' turns."""
    calls: int
    """Calls of the drain by this rotator, not by other rotators that drained the same bucket."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to do after a reply."""

    more: bool
    """Whether to send ``call()`` at once."""
    due: float = 0.0
    """Seconds from now until the next tick is due, if ``more`` is False."""
    round: Round | None = None
    """The round that ended with this reply, if one did."""


class ShardRotation:
    """The state machine of one shard: it ticks when a tick is due, and drains the expired bucket.

    ``call()`` returns the next call, and ``reply()`` takes its reply. If no reply comes, send
    ``call()`` again at any time: every call is safe to repeat. With ``force`` the first round ticks
    once, whether a tick is due or not.
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
        """Whether the next call drains the expired bucket, rather than looks for a tick."""
        return bool(self._draining)

    def stop(self, now: float) -> Round:
        """Stop in the middle of a drain; return the round so far.

        Another rotator continues the drain.
        """
        self._draining = 0
        return self._so_far(round((now - self._began) * 1000))

    def call(self) -> Call:
        """Return the next call to send."""
        return self._drains[self._draining - 1] if self._draining else self._look

    def reply(self, reply: Sequence[Any], now: float) -> Step:
        """Take the reply to ``call()``, and return what to do next.

        ``now`` is in seconds, on a clock that does not go back.
        """
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
            # The tick was not due, and the bucket that expired before is drained: tick now.
            self._look = commands.rotate(self.keys, force=True)
            return Step(more=True, round=done)
        return Step(more=False, due=max(0.0, self._due_at - now), round=done)

    def _begin(self, now: float) -> None:
        self._began = now
        self._ticked, self._late_ms = False, 0
        self._expired = self._acked = self._orphaned = self._calls = 0
