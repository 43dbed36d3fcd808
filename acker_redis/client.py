"""The synchronous client of one namespace."""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from acker_redis import commands
from acker_redis.batch import Batch
from acker_redis.blocks import pack_column
from acker_redis.columns import Columns
from acker_redis.commands import Fence, ShardApplied, ShardStatus
from acker_redis.config import AckerConfig
from acker_redis.connection import Connection, connect
from acker_redis.errors import ConfigError, InvalidBatchError, LaneError, RejectedError
from acker_redis.ids import check_anchor, shard_of
from acker_redis.keys import NAMESPACES, ShardKeys, check_name
from acker_redis.outcomes import Outcomes
from acker_redis.parts import Part, Sendable, Sent
from acker_redis.tree_state import TreeState, parse_show


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a batch; the numbers are of all shards that it touched.

    When ``repeated``, a shard had applied its part before, and its reply was lost: its counts
    are missing, and so are its rejected trees. Those are nacked through the outcomes in any
    case.
    """

    tracked: int
    acked: int
    failed: int
    rejected: tuple[int, ...]
    """Anchors of the loose trees that were nacked for overflow: do not emit their messages."""
    rejected_blocks: tuple[range, ...]
    """Anchors of the blocks that were nacked, because of overflow, or because their last life
    expires just now: do not emit their messages."""
    pending: int
    high_water: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class Status:
    """State of a namespace, read shard by shard (not at one instant)."""

    namespace: str
    config: AckerConfig
    shards: tuple[ShardStatus, ...]

    @property
    def pending(self) -> int:
        """Trees in the buckets, loose and in blocks, without those that wait to be drained."""
        return sum(sum(shard.pending) for shard in self.shards)

    @property
    def in_blocks(self) -> int:
        """Those of the pending trees that stand in blocks."""
        return sum(sum(shard.in_blocks) for shard in self.shards)

    @property
    def pending_by_bucket(self) -> tuple[int, ...]:
        """Trees per bucket, newest first."""
        return tuple(map(sum, zip(*(shard.pending for shard in self.shards), strict=True)))

    @property
    def expiring(self) -> int:
        """Records and blocks that wait to be drained."""
        return sum(shard.expiring for shard in self.shards)

    @property
    def counters(self) -> dict[str, int]:
        """tracked, acked, failed, expired, overflow, conflict, repeated, orphaned."""
        names = commands.COUNTERS
        return {name: sum(shard.counters[name] for shard in self.shards) for name in names}

    @property
    def backlog(self) -> dict[str, int]:
        """Verdicts that wait to be taken, per task."""
        total: dict[str, int] = {}
        for shard in self.shards:
            for task, count in shard.backlog.items():
                total[task] = total.get(task, 0) + count
        return total

    @property
    def high_water(self) -> Literal["ok", "high", "over"]:
        """``ok`` below the high-water mark, ``high`` from it on, ``over`` from twice it on.

        Judged per shard, as the scripts do: the worst shard counts.
        """
        share = self.config.share
        worst = max(sum(shard.pending) for shard in self.shards)
        return "over" if worst >= 2 * share else "high" if worst >= share else "ok"


class Acker:
    """Client of one namespace: track, ack, fail, and ask how things stand.

    Thread-safe; after a fork the child gets a producer lane of its own. Batches of one
    Acker are applied one after the other: a lane has one call in flight.

    ``retry_for`` is for how many seconds a batch is sent again when Redis does not
    answer; it ends earlier where the fence would not hold any longer.
    """

    def __init__(self, client: Any, namespace: str, *, retry_for: float = 10.0) -> None:
        self.namespace = check_name("namespace", namespace)
        self.retry_for = retry_for
        self.connection = Connection(client)
        self._lane = _Lane()
        self._config: AckerConfig | None = None

    @classmethod
    def from_url(
        cls, url: str, namespace: str, *, timeout: float = 5.0, retry_for: float = 10.0
    ) -> "Acker":
        """Client for the Redis at ``url``; ``timeout`` per connect and reply, in seconds.

        Nothing is sent yet. Raises ConfigError for a URL or namespace that cannot be.
        """
        return cls(connect(url, timeout), namespace, retry_for=retry_for)

    def create(self, config: AckerConfig | None = None) -> bool:
        """Create the namespace; False if it exists with this very configuration.

        Raises NamespaceExistsError if it exists with another one, ConfigError if the
        server is older than Redis 6.2.
        """
        config = config or AckerConfig()
        config.validate()
        self.connection.check_server()
        # Shard 0 goes first: it is asked for the configuration, and refuses another.
        created = [
            self.connection.run_until(commands.create(keys, config), self._deadline())
            for keys in self._shards(config)
        ]
        self.connection.command("SADD", NAMESPACES, self.namespace)
        self._config = config
        return any(created)

    @property
    def config(self) -> AckerConfig:
        """The namespace's configuration, read from Redis once.

        Raises NamespaceNotFoundError if it was never created.
        """
        if self._config is None:
            self._config = self._shard_status(ShardKeys(self.namespace, 0)).config
        return self._config

    def apply(self, batch: Sendable) -> Applied:
        """Apply a Batch or a ColumnBatch, once, whatever happens to the replies.

        Loose rows and blocks of one batch go to each shard in parts; a part is all or nothing,
        and after an error some may have been applied. The same batch may then be applied
        again: what was applied is not applied twice, and parts that were answered are not sent
        again. Raises RedisUnavailableError when Redis did not answer for ``retry_for``
        seconds; LaneError when other batches of this Acker came between (the batch's trees
        then expire); and whatever the scripts refuse: InvalidBatchError, BacklogError,
        NamespaceNotFoundError, ...
        """
        config = self.config
        with self._lane.held():
            parts, sent = self._seal(batch, config)
            if sent.namespace != self.namespace:
                raise InvalidBatchError(
                    f"this batch was sent to {sent.namespace}; make another for {self.namespace}"
                )
            for number, part in enumerate(parts):
                if number not in sent.replies:
                    sent.replies[number] = self._apply(number, part, sent)
            replies = [sent.replies[number] for number in range(len(parts))]
        return _applied(parts, replies)

    def track_block(
        self, task: str, label: str, deltas: Iterable[int] | bytes, block: int | None = None
    ) -> range:
        """Track a block of trees and return their anchors by slot; see :meth:`Batch.track_block`.

        Emit their messages when it has returned. Raises RejectedError if the block was nacked
        at once, and whatever :meth:`apply` raises.
        """
        batch, column = Batch(task), pack_column(deltas)
        anchors = batch.track_block(label, column, block)
        applied = self.apply(batch)
        # Its reply was lost, and with it whether it was rejected. (All zero: it is complete.)
        gone = applied.repeated and any(column) and self._is_gone(anchors[0])
        if applied.rejected_blocks or gone:
            raise RejectedError(
                f"block {label!r} of {task} was nacked: too much is pending, or its last life "
                "expires just now; its source is told so, emit nothing of it"
            )
        return anchors

    def apply_part(self, part: Part, fence: Fence) -> ShardApplied:
        """Apply packed rows or blocks of one shard under a durable lane of the caller's own.

        The caller keeps the lane's rules: one call in flight, numbers that grow, the same
        rows under the same number. A repeat is not an error here: see ``highest``.
        Raises ConfigError if the lane is not durable (its name begins with ``@``).
        """
        _check_durable(fence.producer)
        return self._send(part, fence, self._deadline())

    def lane(self, name: str) -> dict[int, tuple[int, str]]:
        """Last number and digest of a durable lane, per shard that has heard of it.

        Raises ConfigError if the lane is not durable (its name begins with ``@``).
        """
        _check_durable(name)
        found: dict[int, tuple[int, str]] = {}
        for keys in self._shards(self.config):
            fence = self.connection.command("HGET", keys.durable_fences, name)
            if fence:
                seq, digest, _ = fence.decode().split(":")
                found[keys.shard] = int(seq), digest
        return found

    def status(self) -> Status:
        """Pending trees, counters and backlog of all shards."""
        first = self._shard_status(ShardKeys(self.namespace, 0))
        others = [self._shard_status(keys) for keys in list(self._shards(first.config))[1:]]
        return Status(self.namespace, first.config, (first, *others))

    def show(self, anchor: int) -> TreeState | None:
        """What is known of a tree, loose or in a block; None if it is not pending.

        A tree that is not pending was told of, or was never tracked.
        """
        keys = ShardKeys(self.namespace, shard_of(check_anchor(anchor), self.config.shards))
        reply = self.connection.run_until(commands.show(keys, anchor), self._deadline())
        return parse_show(reply, anchor)

    def outcomes(self, task: str) -> Outcomes:
        """Verdicts of a task, to be read and taken by the one source that tracked."""
        return Outcomes(self.connection, list(self._shards(self.config)), task)

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    def __enter__(self) -> "Acker":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _seal(self, batch: Sendable, config: AckerConfig) -> tuple[list[Part], Sent]:
        """Parts of a batch; from the first time on nothing more comes into it."""
        if batch.sent is not None:
            return batch.parts(config.shards), batch.sent
        batch.sent = Sent(self.namespace, "", 0)
        try:
            parts = batch.parts(config.shards)
            _check_fits(parts, config)
        except BaseException:
            batch.sent = None  # nothing was sent
            raise
        batch.sent = sent = Sent(self.namespace, *self._lane.draw(len(parts)))
        return parts, sent

    def _is_gone(self, anchor: int) -> bool:
        """Whether a tree is not pending, or expires just now."""
        tree = self.show(anchor)
        return tree is None or tree.bucket == self.config.buckets

    def _apply(self, number: int, part: Part, sent: Sent) -> ShardApplied:
        # Past the fence's horizon a part that is sent again would be applied again.
        horizon = sent.first_sent(number) + self.config.fence_ms / 1000
        if time.monotonic() > horizon:
            raise LaneError(
                "this batch was first sent too long ago to be sent again; let its trees expire"
            )
        seq = sent.seq + number
        fence = Fence(sent.producer, seq, part.rows.digest)
        reply = self._send(part, fence, min(self._deadline(), horizon))
        if reply.highest is not None and reply.highest > seq:
            raise LaneError(
                f"lane {sent.producer} is at {reply.highest}, this batch is {seq}: a later "
                "batch, or another process, has used the lane; this batch is not applied again"
            )
        return reply

    def _send(self, part: Part, fence: Fence, deadline: float) -> ShardApplied:
        keys, rows = ShardKeys(self.namespace, part.shard), part.rows
        if isinstance(rows, Columns):
            call = commands.apply(keys, rows, fence)
            return commands.parse_apply(self.connection.run_until(call, deadline), rows)
        call = commands.apply_blocks(keys, rows.parts, fence)
        return commands.parse_apply_blocks(self.connection.run_until(call, deadline), rows.parts)

    def _shards(self, config: AckerConfig) -> list[ShardKeys]:
        return [ShardKeys(self.namespace, shard) for shard in range(config.shards)]

    def _shard_status(self, keys: ShardKeys) -> ShardStatus:
        reply = self.connection.run_until(commands.status(keys), self._deadline())
        return commands.parse_status(reply, keys)

    def _deadline(self) -> float:
        return time.monotonic() + self.retry_for


def _applied(parts: list[Part], replies: list[ShardApplied]) -> Applied:
    last = {part.shard: reply for part, reply in zip(parts, replies, strict=True)}
    loose: list[int] = []
    blocks: list[range] = []
    for part, reply in zip(parts, replies, strict=True):
        if isinstance(part.rows, Columns):
            loose += reply.rejected
        else:
            blocks += [each.anchors for each in part.rows.parts if each.block in reply.rejected]
    return Applied(
        tracked=sum(reply.tracked for reply in replies),
        acked=sum(reply.acked for reply in replies),
        failed=sum(reply.failed for reply in replies),
        rejected=tuple(loose),
        rejected_blocks=tuple(blocks),
        pending=sum(reply.pending for reply in last.values()),
        high_water=sum(reply.high_water for reply in last.values()),
        repeated=any(reply.highest is not None for reply in replies),
    )


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


class _Lane:
    """A producer lane: a name of its own per process, and numbers that grow."""

    def __init__(self) -> None:
        self._pid = 0
        self._begin()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lane: it has one call in flight."""
        # A forked child that went on with its parent's lane would be fenced out, or worse, be
        # taken for the parent; and its copy of the lock may be held by a thread it has not.
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            yield

    def draw(self, count: int) -> tuple[str, int]:
        """Name of the lane and the first of ``count`` numbers, to be called while it is held."""
        first = self._seq + 1
        self._seq += count
        return self._producer, first

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._producer, self._seq, self._pid = secrets.token_hex(16), 0, os.getpid()
