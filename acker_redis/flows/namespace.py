"""What the clients of one namespace do, without the I/O: see :mod:`acker_redis.flows.steps`."""

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from acker_redis.batching.batch import Batch
from acker_redis.batching.sent import Applied, Part, Sendable, Sent, combine
from acker_redis.errors import (
    BacklogError,
    ConfigError,
    InvalidBatchError,
    LaneError,
    NamespaceNotFoundError,
    RedisUnavailableError,
    RejectedError,
    WrongShardError,
)
from acker_redis.flows.browse import (
    BlockEntry,
    Found,
    Look,
    OldestTree,
    PageCursor,
    TreePage,
    age_of,
    oldest_of,
    read_page,
    search,
)
from acker_redis.flows.lane import Lane
from acker_redis.flows.steps import Ask, Flow, Pauses, Run, Version, ask_until, run_until, together
from acker_redis.protocol import commands
from acker_redis.protocol.blocks import pack_column
from acker_redis.protocol.commands import Fence, Listed, ShardApplied, ShardStatus
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.ids import check_anchor, shard_of
from acker_redis.protocol.keys import DOTS, NAMESPACES, RESERVED, ShardKeys, check_name
from acker_redis.protocol.move import Move
from acker_redis.protocol.rows import Columns
from acker_redis.protocol.server_version import ServerVersion
from acker_redis.protocol.status import Status
from acker_redis.protocol.texts import check_text
from acker_redis.protocol.tree import TreeState, parse_show

"""Oldest Redis that the scripts run on."""
DROP_BLOCKS = 100
"""Blocks per call while a namespace is dropped."""


class Flows:
    """Flows of one namespace; ``Acker`` and ``AsyncAcker`` run them and say what each means."""

    def __init__(self, namespace: str, retry_for: float) -> None:
        self.namespace = check_name("namespace", namespace)
        self.retry_for = retry_for
        self.known: AckerConfig | None = None
        """The configuration, once it was read."""
        self.moving: Move | None = None
        """Where the namespace moved when it was read."""

    def create(self, config: AckerConfig) -> Flow[bool]:
        """As :meth:`Acker.create`."""
        config.validate()
        if self.namespace.startswith(RESERVED):
            raise ConfigError(f"{RESERVED}* are the admin service's own; take another name")
        if self.namespace in DOTS:
            raise ConfigError(
                f"a namespace is not {self.namespace!r}: no URL can name it; take another name"
            )
        version: ServerVersion | None = yield Version()
        if version and not version.is_supported:
            raise ConfigError(f"{version} is too old; Redis 6.2 or Valkey 7.2 or later is needed")
        # Before all else: a name without a namespace does no harm, a namespace without its name is
        # one that nobody rotates.
        yield from ask_until(("SADD", NAMESPACES, self.namespace), self._deadline())
        created = []
        # Shard 0 goes first: it is asked for the configuration, and refuses another.
        for keys in self.shards(config):
            reply = yield from run_until(commands.create(keys, config), self._deadline())
            created.append(bool(reply))
        self.known = config
        return any(created)

    def config(self) -> Flow[AckerConfig]:
        """As :attr:`Acker.config`."""
        known = self.known  # another thread may forget it at any time
        return known if known else (yield from self._read_config(self._deadline()))

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
        if self.moving and before and config.shards == before.shards:
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
        # Who runs a batch again after a long time may know of other shards.
        for keys in self.shards((yield from self.read_config())):
            fence = yield Ask(("HGET", keys.durable_fences, name))
            if fence:
                seq, digest, _ = fence.decode().split(":")
                found[keys.shard] = int(seq), digest
        return found

    def configure(
        self, high_water: int | None, tick_ms: int | None, outcomes_limit: int | None
    ) -> Flow[AckerConfig]:
        """As :meth:`Acker.configure`."""
        asked = {"high_water": high_water, "tick_ms": tick_ms, "outcomes_limit": outcomes_limit}
        changes = {field: value for field, value in asked.items() if value is not None}
        before = yield from self._read_config(self._deadline())
        after = replace(
            before,
            high_water=before.high_water if high_water is None else high_water,
            tick_ms=before.tick_ms if tick_ms is None else tick_ms,
            outcomes_limit=before.outcomes_limit if outcomes_limit is None else outcomes_limit,
        )
        if not changes:
            return before
        # Clients read shard 0, and go by it for how long a fence holds everywhere: it says the
        # shorter time first, and the longer one last.
        shards = self.shards(after)
        if after.tick_ms > before.tick_ms:
            shards = [*shards[1:], shards[0]]
        self.known = None
        for keys in shards:
            yield from run_until(commands.configure(keys, changes), self._deadline())
        return (yield from self._read_config(self._deadline()))

    def status(self) -> Flow[Status]:
        """As :meth:`Acker.status`."""
        first = yield from self._shard_status(ShardKeys(self.namespace, 0))
        while True:
            others = [self._shard_status(keys) for keys in self.shards(first.config)[1:]]
            try:
                all_ = first, *(yield from together(others))
            except NamespaceNotFoundError:
                # Has it moved to fewer shards just now?
                again = yield from self._shard_status(ShardKeys(self.namespace, 0))
                if again.config.shards == first.config.shards:
                    raise
                first = again
            else:
                self.known, self.moving = first.config, first.moving
                return Status(self.namespace, first.config, all_)

    def show(self, anchor: int) -> Flow[TreeState | None]:
        """As :meth:`Acker.show`."""
        known = self.known
        while True:
            shards = (yield from self.config()).shards
            keys = ShardKeys(self.namespace, shard_of(check_anchor(anchor), shards))
            try:
                reply = yield from run_until(commands.show(keys, anchor), self._deadline())
            except (WrongShardError, NamespaceNotFoundError):
                self.known = None
                if known is None:
                    raise
                known = None  # that was of before it moved, say
            else:
                return parse_show(reply, anchor)

    def page(
        self, cursor: PageCursor | None, count: int, source_id: str, task: str, prefix: bool
    ) -> Flow[TreePage]:
        """As :meth:`Acker.page`."""
        look = self._look(source_id, task, prefix)
        return (yield from read_page(look, cursor, count, bool(source_id or task)))

    def find(self, source_id: str, task: str, limit: int, most: int, prefix: bool) -> Flow[Found]:
        """As :meth:`Acker.find`."""
        check_text("source id", source_id, 1)
        return (yield from search(self._look(source_id, task, prefix), limit, most))

    def oldest(self) -> Flow[OldestTree | None]:
        """As :meth:`Acker.oldest`."""
        look, shards = self._look("", ""), (yield from self._read_config(self._deadline())).shards
        samples = yield from together([oldest_of(look, shard) for shard in range(shards)])
        exact = all(whole for _, whole in samples)
        entries = [entry for oldest, _ in samples for entry in oldest]
        for entry in sorted(entries, key=age_of, reverse=True):
            tree = (yield from self._of_block(entry)) if isinstance(entry, BlockEntry) else entry
            if tree:
                return OldestTree(tree, exact)
            exact = False  # it has ended meanwhile
        return None

    def drop(self) -> Flow[None]:
        """As :meth:`Acker.drop`."""
        self.known = None
        first = ShardKeys(self.namespace, 0)
        # Of no name: who lacks the right that is needed last is refused before the first call.
        yield Ask(("SREM", NAMESPACES, ""))
        shards = (yield from self._drop(first, 0))[1]
        if not shards:
            if not (yield Ask(("SREM", NAMESPACES, self.namespace))):
                raise NamespaceNotFoundError(f"there is no namespace {self.namespace}")
            return
        others = [ShardKeys(self.namespace, shard) for shard in range(1, shards)]
        # All are closed before anything is removed. Shard 0 keeps the configuration to the end: it
        # says how many there are, and lets nobody create the namespace anew meanwhile.
        for keys in others:
            yield from self._drop(keys, 0)
        for keys in reversed(others):
            while (yield from self._drop(keys, DROP_BLOCKS, last=True))[0]:
                pass
        while (yield from self._drop(first, DROP_BLOCKS))[0]:
            pass
        yield Ask(("SREM", NAMESPACES, self.namespace))
        yield from self._drop(first, DROP_BLOCKS, last=True)

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

    def read_config(self, patient: bool = True) -> Flow[AckerConfig]:
        """The configuration as the namespace says now; Redis is asked once if not ``patient``."""
        return (yield from self._read_config(self._deadline() if patient else 0.0))

    def _read_config(self, deadline: float) -> Flow[AckerConfig]:
        call = commands.status(ShardKeys(self.namespace, 0))
        reply = yield from run_until(call, deadline)
        status = commands.parse_status(reply, ShardKeys(self.namespace, 0))
        self.known, self.moving = status.config, status.moving
        return status.config

    def _shard_status(self, keys: ShardKeys) -> Flow[ShardStatus]:
        reply = yield from run_until(commands.status(keys), self._deadline())
        return commands.parse_status(reply, keys)

    def _look(self, source_id: str, task: str, prefix: bool = False) -> Look:
        """Reads a page of a bucket; ``source_id`` and ``task`` are '' for all."""
        if source_id:
            check_text("source id", source_id, 1)
        if task:
            check_name("task", task)

        def look(at: PageCursor, count: int) -> Flow[Listed]:
            keys = ShardKeys(self.namespace, at.shard)
            args = (at.kind, at.bucket, at.at, count, source_id, task, prefix)
            try:
                reply = yield from run_until(commands.list_page(keys, *args), self._deadline())
            except NamespaceNotFoundError:
                self.known = None
                shards = (yield from self.config()).shards
                if at.shard < shards:
                    raise
                # It has fewer shards now; before they went there was nothing left in them.
                return Listed(0, shards, at.bucket, 0, 0, 0, ())
            return commands.parse_list(reply)

        return look

    def _of_block(self, entry: BlockEntry) -> Flow[TreeState | None]:
        """The first open tree of a block, or the first if none is; None if it has ended."""
        tree = yield from self.show(entry.anchors[0])
        if tree and tree.block and tree.block.open:
            return (yield from self.show(entry.anchors[tree.block.open[0]]))
        return tree

    def _drop(self, keys: ShardKeys, blocks: int, last: bool = False) -> Flow[tuple[int, int]]:
        """One call of ``drop``: what is left, and the shards."""
        call = commands.drop(keys, blocks, last)
        left, shards = yield from run_until(call, self._deadline())
        return int(left), int(shards)

    def _deadline(self) -> float:
        return time.monotonic() + self.retry_for


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
