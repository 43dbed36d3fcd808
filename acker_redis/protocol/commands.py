"""Build the calls of the scripts and parse their replies. No I/O: both clients share it."""

import re
import secrets
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from acker_redis import errors
from acker_redis.protocol.blocks import BlockPart
from acker_redis.protocol.config import SCHEMA, AckerConfig
from acker_redis.protocol.keys import ShardKeys, check_name
from acker_redis.protocol.latency import Latency
from acker_redis.protocol.reports import Report, SourceEdge, parse_reports, text_of
from acker_redis.protocol.reshard import Reshard
from acker_redis.protocol.rows import Columns
from acker_redis.protocol.secret import Secret
from acker_redis.protocol.stored import (
    MAX_COUNT,
    MAX_FIELDS,
    MAX_MS,
    count,
    counted,
    shards_of,
)

# From lua/spec.json, by python -m proof.spec
MAX_TAKE = 64
"""Maximum ids of stream entries per call of ``take``."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a script: its name, KEYS and ARGV."""

    script: str
    keys: tuple[str, str]
    args: tuple[str | bytes | int, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Fence:
    """Fencing token of a batch: producer lane, number, and ``digest`` (hex) of the content."""

    producer: str
    seq: int
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}" if self.digest else str(self.seq)


@dataclass(frozen=True, slots=True)
class ShardApplied:
    """Reply of ``apply``."""

    highest: int | None = None
    """Highest number of the lane if the call was a repeat; the other fields are 0 then."""
    tracked: int = 0
    acked: int = 0
    failed: int = 0
    pending: int = 0
    high_water: int = 100_000
    rejected: tuple[int, ...] = ()
    """Anchors of the trees that were nacked for overflow."""


@dataclass(frozen=True, slots=True)
class Rotated:
    """Reply of ``rotate``: whether a tick happened, ms until the next one, records to drain."""

    rotated: bool
    due_ms: int
    left: int
    late_ms: int = 0
    """How late the tick was, in ms; 0 if none happened, or it was forced early."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Reply of ``expire``: trees nacked, records without a tree, records left to drain."""

    nacked: int
    orphaned: int
    left: int


Kind = Literal["pending", "blocks"]
"""Kind of listed entries: records of loose trees, or headers of blocks."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Reply of ``list``: a page of a bucket."""

    now_ms: int
    shards: int
    bucket: int
    """Number of the bucket; rotation does not change it."""
    age: int
    """0 is the newest bucket; the number of buckets means that this bucket is expiring."""
    cursor: int
    """Where the next page starts; 0: the bucket is complete."""
    looked: int
    """Number of entries that the script examined."""
    page: tuple[tuple[bytes, bytes], ...]
    """Anchor or number of a block (8 bytes), and its record or header."""


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """Reply of ``status``."""

    shard: int
    config: AckerConfig
    now_ms: int
    """Redis's clock, in ms since 1970."""
    pending: tuple[int, ...]
    """Pending records of loose trees, plus slots of blocks, per bucket, newest bucket first."""
    in_blocks: tuple[int, ...]
    """Those of ``pending`` that are slots of blocks, per bucket, newest bucket first."""
    expiring: int
    """Records and blocks that wait to be drained."""
    fences: int
    """Number of fences, those of durable lanes included."""
    ticked_ms: int
    """Time of the last tick, in ms since 1970."""
    counters: dict[str, int]
    """tracked, acked, failed, expired, overflow, conflict, repeated, orphaned."""
    backlog: dict[str, int]
    """Verdicts that wait to be taken, per source."""
    reshard: Reshard | None = None
    """The reshard in progress, if any; no tree is tracked meanwhile."""
    late_ms: int = 0
    """How late the last tick was, in ms."""
    ticks: int = 0
    """Ticks since the shard was created; 0: no rotator has served it yet."""
    latency: Latency = field(default_factory=Latency)
    """Complete latency of the acked trees."""
    odd: dict[str, int] = field(default_factory=dict)
    """Expired trees by the edges on which an odd number of their messages is missing: name of the
    edge, or "" for none of the named ones, to number. Empty in a namespace without edges."""
    slow: int = 0
    """Acked trees that took longer than ``slo_ms``."""
    after_failure: int = 0
    """Those of ``orphaned`` that late rows of failed trees explain."""
    ended: dict[str, int] = field(default_factory=dict)
    """Trees that were acked or nacked, per task."""
    good: dict[str, int] = field(default_factory=dict)
    """Trees that were acked in time, per task."""
    salt: Secret = field(default_factory=lambda: Secret(""))
    """The secret from which ids are derived."""
    reports: Mapping[str, Report] = field(default_factory=dict)
    """The reports of programs; of shard 0, if they were asked for."""

    @property
    def open(self) -> int:
        """Trees without a verdict, also those that wait to be drained."""
        counted = self.counters
        return max(0, counted["tracked"] - sum(counted[name] for name in ENDED))

    @property
    def lag_ms(self) -> int:
        """How late the next tick is by now, in ms; 0 before it is due."""
        return max(0, self.now_ms - self.ticked_ms - self.config.tick_ms)


NACKS = ("failed", "expired", "overflow", "conflict")
"""Counters of trees that were nacked."""
ENDED = ("acked", *NACKS)
"""Counters of trees that have a verdict."""
COUNTERS = ("tracked", *ENDED, "repeated", "orphaned")


def new_salt() -> str:
    """Return a random salt for a namespace: 32 hex digits.

    >>> len(new_salt())
    32
    """
    return secrets.token_hex(16)


def create(keys: ShardKeys, config: AckerConfig, salt: str) -> Call:
    """Build the call that creates one shard of a namespace.

    ``salt`` is new for shard 0, and for the others that of the reply of shard 0.
    """
    return Call("create", keys.both, (SCHEMA, keys.shard, *config.to_wire(), salt))


def parse_create(reply: Sequence[Any]) -> tuple[bool, str]:
    """Return whether the shard was created by this call, and its salt."""
    created, salt = reply
    return bool(created), salt.decode() if isinstance(salt, bytes) else str(salt)


def configure(keys: ShardKeys, changes: Mapping[str, str | int] | Mapping[bytes, str]) -> Call:
    """Build the call that changes settings of a shard, ``reshard``, ``shards``, or lanes.

    See ``configure.lua``.
    """
    return Call("configure", keys.both, tuple(each for pair in changes.items() for each in pair))


def apply(keys: ShardKeys, columns: Columns, fence: Fence | None) -> Call:
    """Build the call that applies the rows of one shard."""
    who = (fence.producer, str(fence)) if fence else ("", "")
    rows = (columns.flags, columns.anchors, columns.deltas, columns.task)
    return Call("apply", keys.both, (*who, *rows, *columns.texts))


def parse_apply(reply: Sequence[Any], columns: Columns) -> ShardApplied:
    """Parse the reply of ``apply``; row numbers become anchors."""
    return _parse_applied(reply, columns.anchor)


def apply_blocks(keys: ShardKeys, parts: Sequence[BlockPart], fence: Fence | None) -> Call:
    """Build the call that applies the blocks of one shard."""
    who = (fence.producer, str(fence)) if fence else ("", "")
    arguments = (argument for part in parts for argument in part.arguments())
    return Call("apply_blocks", keys.both, (*who, *arguments))


def parse_apply_blocks(reply: Sequence[Any], parts: Sequence[BlockPart]) -> ShardApplied:
    """Parse the reply of ``apply_blocks``; ``rejected`` holds numbers of blocks."""
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
    """Build the call that ticks if a tick is due or ``force`` is set."""
    return Call("rotate", keys.both, (int(force),))


def parse_rotate(reply: Sequence[Any]) -> Rotated:
    """Parse the reply of ``rotate``."""
    return Rotated(bool(reply[0]), int(reply[1]), int(reply[2]), int(reply[3]))


def expire(keys: ShardKeys, records: int) -> Call:
    """Build the call that drains up to ``records`` (1 .. 1000) of the expiring bucket."""
    return Call("expire", keys.both, (records,))


def parse_expire(reply: Sequence[Any]) -> Expired:
    """Parse the reply of ``expire``."""
    return Expired(int(reply[0]), int(reply[1]), int(reply[2]))


def expire_blocks(keys: ShardKeys, blocks: int) -> Call:
    """Build the call that drains up to ``blocks`` (1 .. 100) of the expiring bucket."""
    return Call("expire_blocks", keys.both, (blocks,))


def take(keys: ShardKeys, task: str, ids: Sequence[str]) -> Call:
    """Build the call that deletes up to 64 outcomes of a task by their stream ids."""
    return Call("take", keys.both, (task, *ids))


def show(keys: ShardKeys, anchor: int) -> Call:
    """Build the call that reads the state of one tree."""
    return Call("show", keys.both, (anchor.to_bytes(8, "big"),))


def list_page(
    keys: ShardKeys,
    kind: Kind,
    bucket: int,
    cursor: int,
    count: int,
    text: str,
    task: str,
    prefix: bool = False,
) -> Call:
    """Build the call that reads a page of about ``count`` (1 .. 1000) of a bucket from ``cursor``.

    ``text`` is a whole source id or label, or with ``prefix`` the beginning of one.
    """
    match = ("prefix",) if prefix else ()
    return Call("list", keys.both, (kind, bucket, cursor, count, text, task, *match))


def parse_list(reply: Sequence[Any], keys: ShardKeys) -> Listed:
    """Parse the reply of ``list``; raise SchemaError for a number that no script writes."""
    now, shards, bucket, age, cursor, looked, page = reply
    pairs = tuple(zip(page[::2], page[1::2], strict=True))
    shards = shards_of(shards, keys.meta)
    return Listed(int(now), shards, int(bucket), int(age), int(cursor), int(looked), pairs)


def drop(keys: ShardKeys, blocks: int, last: bool, reshard: Reshard | None = None) -> Call:
    """Build the call that drops a shard step by step.

    With 0 ``blocks`` the call closes the shard. Otherwise it removes up to ``blocks`` (1 .. 1000)
    blocks and, after the last block, all other keys. ``last`` also removes the configuration. With
    ``reshard`` the call closes only a shard that this reshard removes. For the reply see
    ``drop.lua``.
    """
    more = (reshard.at("closed").to_wire(),) if reshard else ()
    return Call("drop", keys.both, (blocks, int(last), *more))


def report(keys: ShardKeys, program: str, windows: Iterable[SourceEdge]) -> Call:
    """Build the call that reports the windows of a source; ``keys`` are those of shard 0."""
    return Call("report", keys.both, (program, text_of(windows)))


def status(keys: ShardKeys, reports: bool = False) -> Call:
    """Build the call that reads the state of a shard; of shard 0 with ``reports``, if asked."""
    return Call("status", keys.both, ("reports",) if reports and not keys.shard else ())


def parse_status(reply: Sequence[Any], keys: ShardKeys) -> ShardStatus:
    """Parse the reply of ``status``; raise SchemaError for a value that no script writes."""
    try:
        return _parse_status(reply, keys)
    except (KeyError, ValueError) as error:
        why = f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise errors.SchemaError(f"{keys.meta} has been tampered with: {why:.160}") from None


def _parse_status(reply: Sequence[Any], keys: ShardKeys) -> ShardStatus:
    now, pending, expiring, fences, durable, flat, *reports = reply
    if len(flat) > 2 * MAX_FIELDS:
        raise ValueError(f"it has {len(flat) // 2} fields, more than {MAX_FIELDS}")
    text = [item.decode() if isinstance(item, bytes) else str(item) for item in flat]
    meta = dict(zip(text[::2], text[1::2], strict=True))
    config = AckerConfig.from_wire(meta)
    buckets = config.buckets
    if meta["shard"] != str(keys.shard):
        raise ValueError(f"shard is {meta['shard'][:40]!r}")
    if not _SALT.fullmatch(meta["salt"]):
        raise ValueError("its salt is not 32 hex digits")
    current = _count(meta, "current", buckets - 1)
    newest_first = [(current - age) % buckets for age in range(buckets)]
    in_blocks = tuple(_count(meta, f"slots:{bucket}", missing="0") for bucket in newest_first)
    loose = (int(pending[bucket]) for bucket in newest_first)
    backlog = {k[8:]: _count(meta, k) for k in meta if k.startswith("backlog:")}
    for name in _SCRIPTS_ONLY:  # a script would stop at another value
        _count(meta, name, missing="0")
    for name in backlog:
        check_name("source", name)
    return ShardStatus(
        shard=keys.shard,
        config=config,
        now_ms=int(now),
        pending=tuple(map(sum, zip(loose, in_blocks, strict=True))),
        in_blocks=in_blocks,
        expiring=int(expiring),
        fences=sum(map(int, fences)) + int(durable),
        ticked_ms=_count(meta, "ticked_ms", MAX_MS),
        counters={name: _count(meta, name) for name in COUNTERS},
        backlog=backlog,
        reshard=Reshard.from_wire(meta.get("reshard", "")),
        late_ms=_count(meta, "late_ms", MAX_MS, missing="0"),
        ticks=_count(meta, "ticks", missing="0"),
        latency=Latency.from_meta(meta),
        odd=_odd(meta, config.edges),
        slow=counted(meta.get("slow", "")),
        after_failure=counted(meta.get("after_failure", "")),
        ended=_statistics(meta, "ended:"),
        good=_statistics(meta, "good:"),
        salt=Secret(meta["salt"]),
        reports=parse_reports(reports[0], int(now)) if reports else {},
    )


def _count(
    meta: Mapping[str, str], field: str, high: int = MAX_COUNT, missing: str | None = None
) -> int:
    text = meta[field] if missing is None else meta.get(field, missing)
    try:
        return count(text, 0, high)
    except ValueError as error:
        raise ValueError(f"{field[:72]} is {error}") from None


def _statistics(meta: Mapping[str, str], prefix: str) -> dict[str, int]:
    """Return counters by the rest of their name, which is a source."""
    found = {k[len(prefix) :]: v for k, v in meta.items() if k.startswith(prefix)}
    return {check_name("source", name): counted(value) for name, value in found.items()}


def _odd(meta: Mapping[str, str], edges: Sequence[str]) -> dict[str, int]:
    names = {str(number): name for number, name in enumerate(edges)} | {"none": ""}
    counts = {name: _count(meta, f"odd:{key}", missing="0") for key, name in names.items()}
    return {name: count for name, count in counts.items() if count}


_SCRIPTS_ONLY = ("slots", "tasks", "cursor", "blocks_cursor", "lanes_cursor")
_SALT = re.compile(r"[0-9a-f]{32}")
_ERROR = re.compile(r"ACKER ([A-Z]+) (.*)", re.DOTALL)


def parse_error(message: str) -> errors.AckerError | None:
    """Return the error for an error reply of a script; None for any other error reply."""
    match = _ERROR.match(message)
    if not match:
        return None
    code, words = match.groups()
    return _KINDS.get(code, errors.AckerError)(words)


_KINDS: dict[str, type[errors.AckerError]] = {
    "ARGS": errors.InvalidBatchError,
    "NAMESPACE": errors.NamespaceNotFoundError,
    "SCHEMA": errors.SchemaError,
    "SHARD": errors.WrongShardError,
    "CONFLICT": errors.ChangedBatchError,
    "FENCE": errors.FenceFullError,
    "BACKLOG": errors.BacklogError,
    "RESHARD": errors.ReshardError,
    "EXISTS": errors.NamespaceExistsError,
}
