"""What the clients of one namespace do, without the I/O: see :mod:`acker_redis.flow`."""

import time
from collections.abc import Iterable
from typing import Any

from acker_redis import commands
from acker_redis.applied import Applied, combine
from acker_redis.batch import Batch
from acker_redis.blocks import pack_column
from acker_redis.columns import Columns
from acker_redis.commands import Fence, ShardApplied, ShardStatus
from acker_redis.config import AckerConfig
from acker_redis.errors import (
    ConfigError,
    InvalidBatchError,
    LaneError,
    NamespaceNotFoundError,
    RedisUnavailableError,
    RejectedError,
    WrongShardError,
)
from acker_redis.flow import Ask, Flow, Pauses, Run, Version, run_until, together
from acker_redis.ids import check_anchor, shard_of
from acker_redis.keys import NAMESPACES, ShardKeys, check_name
from acker_redis.lane import Lane
from acker_redis.parts import Part, Sendable, Sent
from acker_redis.status import Status
from acker_redis.tree_state import TreeState, parse_show

OLDEST = (6, 2)
"""Oldest Redis that the scripts run on."""


class Flows:
    """Flows of one namespace; ``Acker`` and ``AsyncAcker`` run them and say what each means."""

    def __init__(self, namespace: str, retry_for: float) -> None:
        self.namespace = check_name("namespace", namespace)
        self.retry_for = retry_for
        self.known: AckerConfig | None = None
        """The configuration, once it was read."""

    def create(self, config: AckerConfig) -> Flow[bool]:
        """As :meth:`Acker.create`."""
        config.validate()
        version = yield Version()
        if version and _parse(version) < OLDEST:
            raise ConfigError(f"Redis {version} is too old; 6.2 or later is needed")
        created = []
        # Shard 0 goes first: it is asked for the configuration, and refuses another.
        for keys in self.shards(config):
            reply = yield from run_until(commands.create(keys, config), self._deadline())
            created.append(bool(reply))
        yield Ask(("SADD", NAMESPACES, self.namespace))
        self.known = config
        return any(created)

    def config(self) -> Flow[AckerConfig]:
        """As :attr:`Acker.config`."""
        known = self.known  # another thread may forget it at any time
        return known if known else (yield from self._read_config(self._deadline()))

    def apply(self, batch: Sendable, lane: "Lane[Any]") -> Flow[Applied]:
        """As :meth:`Acker.apply`, to be run by who holds the lane."""
        if batch.sent:
            # Its fence holds for as long as the namespace says now: it may have been created anew.
            config = yield from self._read_config(self._deadline())
        else:
            config = yield from self.config()
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
        try:
            # On each shard one after the other, as their numbers say; the shards side by side.
            yield from together([self._parts(parts, sent, some) for some in by_shard.values()])
        except (WrongShardError, NamespaceNotFoundError):
            self.known = None
            raise
        return combine(parts, [sent.replies[number] for number in range(len(parts))])

    def track_block(
        self, task: str, label: str, deltas: Iterable[int] | bytes, block: int | None, lane: Any
    ) -> Flow[range]:
        """As :meth:`Acker.track_block`."""
        batch, column = Batch(task), pack_column(deltas)
        anchors = batch.track_block(label, column, block)
        applied = yield from self.apply(batch, lane)
        # Its reply was lost, and with it whether it was rejected. (All zero: it is complete.)
        gone = False
        if applied.repeated and any(column):
            tree = yield from self.show(anchors[0])
            gone = tree is None or tree.bucket == (yield from self.config()).buckets
        if applied.rejected_blocks or gone:
            raise RejectedError(
                f"block {label!r} of {task} was nacked: too much is pending, or its last life "
                "expires just now; its source is told so, emit nothing of it"
            )
        return anchors

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
        for keys in self.shards((yield from self.config())):
            fence = yield Ask(("HGET", keys.durable_fences, name))
            if fence:
                seq, digest, _ = fence.decode().split(":")
                found[keys.shard] = int(seq), digest
        return found

    def status(self) -> Flow[Status]:
        """As :meth:`Acker.status`."""
        first = yield from self._shard_status(ShardKeys(self.namespace, 0))
        others = [self._shard_status(keys) for keys in self.shards(first.config)[1:]]
        return Status(self.namespace, first.config, (first, *(yield from together(others))))

    def show(self, anchor: int) -> Flow[TreeState | None]:
        """As :meth:`Acker.show`."""
        shards = (yield from self.config()).shards
        keys = ShardKeys(self.namespace, shard_of(check_anchor(anchor), shards))
        reply = yield from run_until(commands.show(keys, anchor), self._deadline())
        return parse_show(reply, anchor)

    def shards(self, config: AckerConfig) -> list[ShardKeys]:
        """Keys of all shards."""
        return [ShardKeys(self.namespace, shard) for shard in range(config.shards)]

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
            try:
                reply = yield from self._send(part, fence)
                break
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

    def _read_config(self, deadline: float) -> Flow[AckerConfig]:
        """As the namespace says now."""
        call = commands.status(ShardKeys(self.namespace, 0))
        reply = yield from run_until(call, deadline)
        self.known = config = commands.parse_status(reply, ShardKeys(self.namespace, 0)).config
        return config

    def _shard_status(self, keys: ShardKeys) -> Flow[ShardStatus]:
        reply = yield from run_until(commands.status(keys), self._deadline())
        return commands.parse_status(reply, keys)

    def _deadline(self) -> float:
        return time.monotonic() + self.retry_for


def _check_fits(parts: list[Part], config: AckerConfig) -> None:
    """Refuse a block that would be nacked for overflow also when nothing else is pending."""
    room = 2 * config.share
    for part in parts:
        for each in () if isinstance(part.rows, Columns) else part.rows.parts:
            if each.header and len(each.anchors) > room:
                raise InvalidBatchError(
                    f"a block of {len(each.anchors)} trees never fits below twice a shard's share "
                    f"of the high-water mark, {room}; make it smaller, or raise high_water"
                )


def _check_durable(lane: str) -> None:
    if not lane.startswith("@"):
        raise ConfigError(f"a lane of one's own is durable, call it @{lane}")


def _parse(version: str) -> tuple[int, ...]:
    numbers = version.split(".")[:2]
    return tuple(int(n) if n.isdigit() else 0 for n in numbers)
