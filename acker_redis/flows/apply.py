"""How a batch is sent, retried and fenced. No I/O.

**Invariant: as long as the shard keeps its fence, no part of a batch is applied twice.** A *part*
is one call of a script on one shard: all or nothing.

1. *Seal.* When a batch is first sent, :meth:`ApplyFlows._seal` fixes its parts, its lane, and one
   number in the lane per part. No row can be added afterwards. A retry sends the same parts under
   the same numbers.
2. *Send.* Parts of one shard are sent one after another, in the order of their numbers. The shards
   are served side by side.
3. *Retry.* A part without a reply is in doubt. It is sent again with its number and digest. If the
   shard has applied this number before, its fence makes the retry a no-op.
4. *Horizon.* A shard keeps a fence for at least ``fence_ms``. A part is never sent again later than
   ``fence_ms`` after it was first sent (LaneError), by the clock ``time.monotonic``: the fence may
   be deleted then, and the part would be applied again. ``fence_ms`` is the shortest value that the
   client has known since the batch was sealed. It is read again, from the shard of the part, before
   each retry of a part in doubt.
5. *Refused.* A shard that refuses a part with WrongShardError, NamespaceNotFoundError or
   BacklogError has changed nothing. So a part that was refused on each attempt is not in doubt.
   The same holds for a RedisRefusedError that ``may_pass`` (``protocol/codes.py``): the part is
   sent again as after a lost reply. Redis checks memory before the first write of a script, and
   password and rights before the script. An exception are trees that are to be tracked while Redis
   is at maxmemory: their retries would hold up rows that free memory.
6. *Other shards.* After WrongShardError or NamespaceNotFoundError the number of shards may have
   changed. If no part is applied or in doubt, the batch is packed again for the current shards,
   under new numbers. Otherwise it must not be packed again, because a part might be applied twice:
   the caller gives the batch up.
"""

import time
from typing import Any

from acker_redis.batching.sent import Applied, Part, Sendable, Sent, combine
from acker_redis.errors import (
    BacklogError,
    ConfigError,
    InvalidBatchError,
    LaneError,
    NamespaceNotFoundError,
    RedisRefusedError,
    RedisUnavailableError,
    WrongShardError,
)
from acker_redis.flows.known import KnownNamespace
from acker_redis.flows.lane import Lane
from acker_redis.flows.steps import Ask, Flow, Pauses, Run, may_retry, run_until, together
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.rows import Columns


class ApplyFlows(KnownNamespace):
    """The flows that apply batches to the shards of a namespace."""

    def apply(self, batch: Sendable, lane: "Lane[Any]") -> Flow[Applied]:
        """See :meth:`Acker.apply`. The caller holds the lane's lock."""
        try:
            return (yield from self._apply_parts(batch, lane))
        except (WrongShardError, NamespaceNotFoundError) as error:
            self.known, before = None, batch.sent
            if before and not before.refused:
                raise type(error)(
                    f"{error}. A part of this batch may have been applied before, so the rest "
                    "cannot be sent to other shards: give the batch up. Its trees expire; track "
                    "those again that get no verdict"
                ) from error
            _unseal_refused(batch)
        config = yield from self._read_config(self.deadline())
        if self.reshard and before and config.shards == before.shards:
            raise BacklogError(f"{self.namespace} is resharding, nothing is tracked; try again")
        try:
            return (yield from self._apply_parts(batch, lane))
        except (WrongShardError, NamespaceNotFoundError):
            self.known = None
            _unseal_refused(batch)
            raise

    def _apply_parts(self, batch: Sendable, lane: "Lane[Any]") -> Flow[Applied]:
        parts, sent = (
            (batch.parts(batch.sent.shards), batch.sent)
            if batch.sent
            else (yield from self._seal(batch, lane))
        )
        if sent.namespace != self.namespace:
            raise InvalidBatchError(
                f"this batch was sent to {sent.namespace} before; make another for {self.namespace}"
            )
        by_shard: dict[int, list[int]] = {}
        for number, part in enumerate(parts):
            if number not in sent.replies:
                by_shard.setdefault(part.shard, []).append(number)
        # Parts of one shard go in the order of their numbers; the shards are served side by side.
        yield from together([self._parts(parts, sent, some) for some in by_shard.values()])
        return combine(parts, [sent.replies[number] for number in range(len(parts))])

    def apply_part(self, part: Part, fence: Fence) -> Flow[ShardApplied]:
        """See :meth:`Acker.apply_part`."""
        _check_durable(fence.producer)
        deadline, pauses = self.deadline(), Pauses()
        while True:
            try:
                return (yield from self._send(part, fence))
            except (RedisUnavailableError, RedisRefusedError) as error:
                if not may_retry(error):
                    raise
                yield from pauses.after(error, deadline)
            except (WrongShardError, NamespaceNotFoundError):
                self.known = None  # the next flow reads the configuration again
                raise

    def lane(self, name: str) -> Flow[dict[int, tuple[int, str]]]:
        """See :meth:`Acker.lane`."""
        _check_durable(name)
        found: dict[int, tuple[int, str]] = {}
        # The batch may be retried long after it was first sent: the shards may have changed.
        for keys in self.shards((yield from self.read_config())):
            fence = yield Ask(("HGET", keys.durable_fences, name))
            if fence:
                seq, digest, _ = fence.decode().split(":")
                found[keys.shard] = int(seq), digest
        return found

    def _seal(self, batch: Sendable, lane: "Lane[Any]") -> Flow[tuple[list[Part], Sent]]:
        """Fix the parts of a batch that was not sent yet: no row can be added any more."""
        config = yield from self.config()
        batch.sent = Sent(self.namespace, "", 0)
        try:
            try:
                parts = _fitting(batch, config)
            except BlockTooLargeError:
                # An operator may have raised the high-water mark since the configuration was read.
                config = yield from self._read_config(self.deadline())
                parts = _fitting(batch, config)
            name, first = lane.draw(len(parts))
            batch.sent = sent = Sent(self.namespace, name, first, config.shards, config.fence_ms)
        except BaseException:
            batch.sent = None  # no part was sent
            raise
        return parts, sent

    def _renew(self, shard: int, sent: Sent, deadline: float) -> Flow[None]:
        """Read how long the fences of a shard last now, from the shard itself.

        Ticks may be shorter by now, or the namespace created again. The shard rotates its fences by
        its own configuration, and answers for it also while shard 0 does not.
        """
        keys = ShardKeys(self.namespace, shard)
        reply = yield from run_until(commands.status(keys), deadline, patient=True)
        fence_ms = commands.parse_status(reply, keys).config.fence_ms
        sent.fence_ms = min(sent.fence_ms, fence_ms)

    def _parts(self, parts: list[Part], sent: Sent, numbers: list[int]) -> Flow[None]:
        for number in numbers:
            sent.replies[number] = yield from self._apply(number, parts[number], sent)

    def _apply(self, number: int, part: Part, sent: Sent) -> Flow[ShardApplied]:
        seq, deadline, pauses = sent.seq + number, self.deadline(), Pauses()
        fence = Fence(sent.producer, seq, part.rows.digest)
        while True:
            again = number in sent.doubt
            if again:
                yield from self._renew(part.shard, sent, min(deadline, sent.horizon(number)))
            # After this time the fence may be deleted, and a retry would be applied again.
            horizon = sent.horizon(number)
            if time.monotonic() > horizon:
                raise LaneError(
                    f"this batch was first sent more than {sent.fence_ms / 1000:.0f} s ago: too "
                    "long ago to be sent again, it might be applied twice; let its trees expire"
                )
            sent.doubt.add(number)
            try:
                reply = yield from self._send(part, fence)
                break
            except (WrongShardError, NamespaceNotFoundError, BacklogError):
                if not again:
                    sent.doubt.discard(number)
                raise
            except (RedisUnavailableError, RedisRefusedError) as error:
                if isinstance(error, RedisRefusedError) and error.may_pass and not again:
                    sent.doubt.discard(number)
                if not may_retry(error):
                    raise
                yield from pauses.after(error, min(deadline, horizon))
        if reply.highest is not None and reply.highest > seq:
            raise LaneError(
                f"lane {sent.producer} is at {reply.highest}, this batch is {seq}: a later "
                "batch, or another process, has used the lane; this batch is not applied again"
            )
        return reply

    def _send(self, part: Part, fence: Fence) -> Flow[ShardApplied]:
        """Send a part once, and return the parsed reply."""
        keys, rows = ShardKeys(self.namespace, part.shard), part.rows
        try:
            if isinstance(rows, Columns):
                reply = yield Run(commands.apply(keys, rows, fence))
                return commands.parse_apply(reply, rows)
            reply = yield Run(commands.apply_blocks(keys, rows.parts, fence))
            return commands.parse_apply_blocks(reply, rows.parts)
        except RedisRefusedError as error:
            if error.code == "OOM" and part.only_tracks:
                error.may_pass = False
            raise


class BlockTooLargeError(InvalidBatchError):
    """Raised for a block so large that it would be nacked for overflow in an empty namespace."""


def _fitting(batch: Sendable, config: AckerConfig) -> list[Part]:
    """Return the parts of a batch.

    Raises BlockTooLargeError for a block that would overflow even an empty namespace.
    """
    parts, room = batch.parts(config.shards), 2 * config.share
    for part in parts:
        for each in () if isinstance(part.rows, Columns) else part.rows.parts:
            if each.header and len(each.anchors) > room:
                raise BlockTooLargeError(
                    f"a block of {len(each.anchors)} trees never fits below twice a shard's share "
                    f"of the high-water mark, {room}; make it smaller, or raise high_water"
                )
    return parts


def _unseal_refused(batch: Sendable) -> None:
    """Let a batch be packed again for other shards, if surely no part of it was applied."""
    if batch.sent and batch.sent.refused:
        batch.sent = None


def _check_durable(lane: str) -> None:
    if not lane.startswith("@"):
        raise ConfigError(f"the name of a durable lane begins with @: @{lane}, not {lane}")
