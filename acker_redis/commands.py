"""Build the calls of the scripts and read their replies. No I/O: both clients share it."""

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from acker_redis import errors
from acker_redis.blocks import BlockPart
from acker_redis.columns import Columns
from acker_redis.config import SCHEMA, AckerConfig
from acker_redis.keys import ShardKeys

MAX_TAKE = 64
"""Ids of stream entries per call of ``take``."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a script: its name, KEYS and ARGV."""

    script: str
    keys: tuple[str, str]
    args: tuple[str | bytes | int, ...]


@dataclass(frozen=True, slots=True)
class Fence:
    """Producer lane and number of a batch; ``digest`` (hex) tells other content apart."""

    producer: str
    seq: int
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}" if self.digest else str(self.seq)


@dataclass(frozen=True, slots=True)
class ShardApplied:
    """Reply of ``apply``: ``highest`` is set when it was a repeat, and the rest is then 0."""

    highest: int | None = None
    tracked: int = 0
    acked: int = 0
    failed: int = 0
    pending: int = 0
    high_water: int = 0
    rejected: tuple[int, ...] = ()
    """Anchors of the trees that were nacked for overflow."""


@dataclass(frozen=True, slots=True)
class Rotated:
    """Reply of ``rotate``: whether a tick happened, ms until the next, records to drain."""

    rotated: bool
    due_ms: int
    left: int


@dataclass(frozen=True, slots=True)
class Expired:
    """Reply of ``expire``: trees nacked, records without a tree, records left to drain."""

    nacked: int
    orphaned: int
    left: int


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """Reply of ``status``."""

    shard: int
    config: AckerConfig
    now_ms: int
    """Redis's clock, in ms since 1970."""
    pending: tuple[int, ...]
    """Pending records, and trees of blocks, per bucket, newest bucket first."""
    in_blocks: tuple[int, ...]
    """Those of them that stand in blocks, likewise."""
    expiring: int
    """Records and blocks that wait to be drained."""
    fences: int
    ticked_ms: int
    """When the last tick was, in ms since 1970."""
    counters: dict[str, int]
    """tracked, acked, failed, expired, overflow, conflict, repeated, orphaned."""
    backlog: dict[str, int]
    """Verdicts that wait to be taken, per task."""


COUNTERS = (
    "tracked",
    "acked",
    "failed",
    "expired",
    "overflow",
    "conflict",
    "repeated",
    "orphaned",
)


def create(keys: ShardKeys, config: AckerConfig) -> Call:
    """Create one shard of a namespace."""
    return Call("create", keys.both, (SCHEMA, keys.shard, *config.to_wire()))


def apply(keys: ShardKeys, columns: Columns, fence: Fence | None) -> Call:
    """Apply the rows of one shard."""
    who = (fence.producer, str(fence)) if fence else ("", "")
    rows = (columns.flags, columns.anchors, columns.deltas, columns.task)
    return Call("apply", keys.both, (*who, *rows, *columns.texts))


def parse_apply(reply: Sequence[Any], columns: Columns) -> ShardApplied:
    """Read the reply of ``apply``; row numbers become anchors."""
    return _parse_applied(reply, columns.anchor)


def apply_blocks(keys: ShardKeys, parts: Sequence[BlockPart], fence: Fence | None) -> Call:
    """Apply the blocks of one shard."""
    who = (fence.producer, str(fence)) if fence else ("", "")
    arguments = (argument for part in parts for argument in part.arguments())
    return Call("apply_blocks", keys.both, (*who, *arguments))


def parse_apply_blocks(reply: Sequence[Any], parts: Sequence[BlockPart]) -> ShardApplied:
    """Read the reply of ``apply_blocks``; ``rejected`` holds numbers of blocks."""
    return _parse_applied(reply, lambda row: parts[row].block)


def _parse_applied(reply: Sequence[Any], name: Callable[[int], int]) -> ShardApplied:
    if int(reply[0]) == 0:
        return ShardApplied(highest=int(reply[1]))
    rows = struct.unpack(f">{len(reply[7]) // 2}H", reply[7])
    return ShardApplied(
        tracked=int(reply[1]),
        acked=int(reply[2]),
        failed=int(reply[3]),
        pending=int(reply[5]),
        high_water=int(reply[6]),
        rejected=tuple(name(row) for row in rows),
    )


def rotate(keys: ShardKeys, force: bool) -> Call:
    """Tick, if it is due or ``force`` is set."""
    return Call("rotate", keys.both, (int(force),))


def parse_rotate(reply: Sequence[Any]) -> Rotated:
    """Read the reply of ``rotate``."""
    return Rotated(bool(reply[0]), int(reply[1]), int(reply[2]))


def expire(keys: ShardKeys, records: int) -> Call:
    """Drain some ``records`` (1 .. 1000) of the bucket that expires."""
    return Call("expire", keys.both, (records,))


def parse_expire(reply: Sequence[Any]) -> Expired:
    """Read the reply of ``expire``."""
    return Expired(int(reply[0]), int(reply[1]), int(reply[2]))


def expire_blocks(keys: ShardKeys, blocks: int) -> Call:
    """Drain some ``blocks`` (1 .. 100) of the bucket that expires."""
    return Call("expire_blocks", keys.both, (blocks,))


def take(keys: ShardKeys, task: str, ids: Sequence[str]) -> Call:
    """Delete up to 64 outcomes of a task by their stream ids."""
    return Call("take", keys.both, (task, *ids))


def show(keys: ShardKeys, anchor: int) -> Call:
    """Read what is known of one tree."""
    return Call("show", keys.both, (anchor.to_bytes(8, "big"),))


def status(keys: ShardKeys) -> Call:
    """Read a shard's state."""
    return Call("status", keys.both, ())


def parse_status(reply: Sequence[Any], keys: ShardKeys) -> ShardStatus:
    """Read the reply of ``status``."""
    now, pending, expiring, fences, durable, flat = reply
    text = [item.decode() if isinstance(item, bytes) else str(item) for item in flat]
    meta = dict(zip(text[::2], text[1::2], strict=True))
    current, count = int(meta["current"]), len(pending)
    newest_first = [(current - age) % count for age in range(count)]
    in_blocks = tuple(int(meta.get(f"slots:{bucket}", 0)) for bucket in newest_first)
    loose = (int(pending[bucket]) for bucket in newest_first)
    return ShardStatus(
        shard=keys.shard,
        config=AckerConfig.from_wire(meta),
        now_ms=int(now),
        pending=tuple(map(sum, zip(loose, in_blocks, strict=True))),
        in_blocks=in_blocks,
        expiring=int(expiring),
        fences=sum(map(int, fences)) + int(durable),
        ticked_ms=int(meta["ticked_ms"]),
        counters={name: int(meta[name]) for name in COUNTERS},
        backlog={k[8:]: int(v) for k, v in meta.items() if k.startswith("backlog:")},
    )


_ERROR = re.compile(r"ACKER ([A-Z]+) (.*)", re.DOTALL)


def parse_error(message: str) -> errors.AckerError | None:
    """Error for a script's error reply; None if the reply is not one of the scripts'."""
    match = _ERROR.match(message)
    if not match:
        return None
    code, words = match.groups()
    kind, advice = _KINDS.get(code, (errors.AckerError, ""))
    return kind(f"{words}{advice}")


_KINDS: dict[str, tuple[type[errors.AckerError], str]] = {
    "ARGS": (errors.InvalidBatchError, ""),
    "NAMESPACE": (errors.NamespaceNotFoundError, "; create it: acker-redis create NAMESPACE"),
    "SCHEMA": (errors.SchemaError, "; use the version of acker-redis that wrote it"),
    "SHARD": (errors.WrongShardError, "; the namespace was created anew, open it again"),
    "CONFLICT": (
        errors.ChangedBatchError,
        "; something in it changes from run to run (rand, uuid, now, an unordered limit?)",
    ),
    "FENCE": (errors.FenceFullError, ""),
    "BACKLOG": (errors.BacklogError, "; its source must read and take its outcomes"),
    "EXISTS": (errors.NamespaceExistsError, "; drop it first, or use another name"),
}
