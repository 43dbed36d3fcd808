"""How a batch is sent, sent again and fenced. No I/O."""

import time
from typing import Any

from acker_redis.batching.sent import Applied, Part, Sendable, Sent, combine
from acker_redis.errors import (
    BacklogError,
    ConfigError,
    InvalidBatchError,
    LaneError,
    NamespaceNotFoundError,
    RedisUnavailableError,
    WrongShardError,
)
from acker_redis.flows.known import Known
from acker_redis.flows.lane import Lane
from acker_redis.flows.steps import Ask, Flow, Pauses, Run, together
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.rows import Columns


class Applies(Known):
    """Sends batches to the shards of a namespace."""

    def apply(self, batch: Sendable, lane: "Lane[Any]") -> Flow[Applied]:
        """As :meth:`Acker.apply`, to be run by who holds the lane."""
        try:
            return (yield from self._apply_parts(batch, lane))
        except (WrongShardError, NamespaceNotFoundError) as error:
            self.known, before = None, batch.sent
            if before and not before.refused:
                raise type(error)(
                    f"{error}. Some of this batch may have been applied before that, and the rest "
                    "cannot be any more: give it up. Its trees expire; what it tracks and has no "
                    "verdict then, track anew"
                ) from error
            _pack_anew(batch)
        config = yield from self._read_config(self._deadline())
        if self.reshard and before and config.shards == before.shards:
            raise BacklogError(f"{self.namespace} moves to other shards just now; try again")
        try:
            return (yield from self._apply_parts(batch, lane))
        except (WrongShardError, NamespaceNotFoundError):
            self.known = None
            _pack_anew(batch)
            raise

    def _apply_parts(self, batch: Sendable, lane: "Lane[Any]") -> Flow[Applied]:
        if batch.sent:
            # Its fence holds for as long as the namespace says now: it may have been created anew.
            config = yield from self._read_config(self._deadline())
        else:
            config = yield from self.config()
        try:
            parts, sent = self._seal(batch, config, lane)
        except BlockTooLargeError:
            # The high-water mark may have been raised meanwhile.
            config = yield from self._read_config(self._deadline())
            parts, sent = self._seal(batch, config, lane)
        if sent.namespace != self.namespace:
            raise InvalidBatchError(
                f"this batch was sent to {sent.namespace}; make another for {self.namespace}"
            )
        sent.fence_ms = min(sent.fence_ms, config.fence_ms)
        by_shard: dict[int, list[int]] = {}
        for number, part in enumerate(parts):
            if number not in sent.replies:
                by_shard.setdefault(part.shard, []).append(number)
        # On each shard one after the other, as their numbers say; the shards side by side.
        yield from together([self._parts(parts, sent, some) for some in by_shard.values()])
        return combine(parts, [sent.replies[number] for number in range(len(parts))])

    def apply_part(self, part: Part, fence: Fence) -> Flow[ShardApplied]:
        """As :meth:`Acker.apply_part`."""
        _check_durable(fence.producer)
        deadline, pauses = self._deadline(), Pauses()
        while True:
            try:
                return (yield from self._send(part, fence))
            except RedisUnavailableError as error:
                yield from pauses.after(error, deadline)
            except (WrongShardError, NamespaceNotFoundError):
                self.known = None  # created anew, or to be: whoever asks next asks Redis
                raise

    def lane(self, name: str) -> Flow[dict[int, tuple[int, str]]]:
        """As :meth:`Acker.lane`."""
        _check_durable(name)
        found: dict[int, tuple[int, str]] = {}
        # Who runs a batch again after a long time may know of other shards.
        for keys in self.shards((yield from self.read_config())):
            fence = yield Ask(("HGET", keys.durable_fences, name))
            if fence:
                seq, digest, _ = fence.decode().split(":")
                found[keys.shard] = int(seq), digest
        return found

    def _seal(
        self, batch: Sendable, config: AckerConfig, lane: "Lane[Any]"
    ) -> tuple[list[Part], Sent]:
        """Parts of a batch; from the first time on nothing more comes into it."""
        if batch.sent is not None:
            return batch.parts(batch.sent.shards), batch.sent
        batch.sent = Sent(self.namespace, "", 0)
        try:
            parts = batch.parts(config.shards)
            _check_fits(parts, config)
            name, first = lane.draw(len(parts))
            batch.sent = sent = Sent(self.namespace, name, first, config.shards)
        except BaseException:
            batch.sent = None  # nothing was sent
            raise
        return parts, sent

    def _parts(self, parts: list[Part], sent: Sent, numbers: list[int]) -> Flow[None]:
        for number in numbers:
            sent.replies[number] = yield from self._apply(number, parts[number], sent)

    def _apply(self, number: int, part: Part, sent: Sent) -> Flow[ShardApplied]:
        seq, deadline, pauses = sent.seq + number, self._deadline(), Pauses()
        fence = Fence(sent.producer, seq, part.rows.digest)
        while True:
            # Past the fence's horizon a part that is sent again would be applied again.
            horizon = sent.first_sent(number) + sent.fence_ms / 1000
            if time.monotonic() > horizon:
                raise LaneError(
                    "this batch was first sent too long ago to be sent again; let its trees expire"
                )
            again = number in sent.doubt
            sent.doubt.add(number)
            try:
                reply = yield from self._send(part, fence)
                break
            except (WrongShardError, NamespaceNotFoundError, BacklogError):
                if not again:
                    sent.doubt.discard(number)
                raise
            except RedisUnavailableError as error:
                yield from pauses.after(error, min(deadline, horizon))
                config = yield from self._read_config(min(deadline, horizon))
                sent.fence_ms = min(sent.fence_ms, config.fence_ms)
        if reply.highest is not None and reply.highest > seq:
            raise LaneError(
                f"lane {sent.producer} is at {reply.highest}, this batch is {seq}: a later "
                "batch, or another process, has used the lane; this batch is not applied again"
            )
        return reply

    def _send(self, part: Part, fence: Fence) -> Flow[ShardApplied]:
        """Send a part once."""
        keys, rows = ShardKeys(self.namespace, part.shard), part.rows
        if isinstance(rows, Columns):
            reply = yield Run(commands.apply(keys, rows, fence))
            return commands.parse_apply(reply, rows)
        reply = yield Run(commands.apply_blocks(keys, rows.parts, fence))
        return commands.parse_apply_blocks(reply, rows.parts)


class BlockTooLargeError(InvalidBatchError):
    """Raised for a block that would be nacked for overflow also when nothing else is pending."""


def _check_fits(parts: list[Part], config: AckerConfig) -> None:
    """Refuse a block that would be nacked for overflow also when nothing else is pending."""
    room = 2 * config.share
    for part in parts:
        for each in () if isinstance(part.rows, Columns) else part.rows.parts:
            if each.header and len(each.anchors) > room:
                raise BlockTooLargeError(
                    f"a block of {len(each.anchors)} trees never fits below twice a shard's share "
                    f"of the high-water mark, {room}; make it smaller, or raise high_water"
                )


def _pack_anew(batch: Sendable) -> None:
    """Let a batch be packed once more if it was surely applied on none of its shards.

    They are others by now.
    """
    if batch.sent and batch.sent.refused:
        batch.sent = None


def _check_durable(lane: str) -> None:
    if not lane.startswith("@"):
        raise ConfigError(f"a lane of one's own is durable, call it @{lane}")
