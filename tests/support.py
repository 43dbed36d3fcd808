"""Helpers of the tests: raw rows, forced ticks, verdicts as tuples.

Each function works on a real acker and on the reference.
"""

import copy
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from acker_redis.batching.batch import Columns
from acker_redis.protocol import commands
from acker_redis.protocol.commands import Fence, ShardApplied
from acker_redis.protocol.config import AckerConfig
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.record import HEADER_SLOTS
from acker_redis.protocol.slots import unpack_slots
from acker_redis.rotator.rotator import Rotator
from acker_redis.sync.client import Acker
from acker_redis.sync.outcomes import BlockOutcome, Outcome
from proof.reference.acker import Reference
from proof.reference.acker import TreeRow as ReferenceRow
from proof.reference.blocks import BlockReference, BlockRow
from proof.simulate.redis_shard import RedisShard, glob

TRACK, FAIL, TOUCH = 1, 2, 4
TreeRow = tuple[int, int, int]
"""Anchor, delta and flags."""
Target = Acker | Reference
"""The acker that a conformance test runs against."""


def config_of(fields: Mapping[str, object]) -> AckerConfig:
    """Return a configuration for tests that force their ticks: with ticks of an hour none is due.

    With ``refresh="update"`` the deadline is a thousand ticks away unless given.
    """
    filled = {"tick_ms": 3_600_000, **fields}
    if filled.get("refresh") == "update":
        filled.setdefault("deadline_ms", 1000 * int(str(filled["tick_ms"])))
    return AckerConfig(**filled)  # type: ignore[arg-type]


def columns(rows: Sequence[TreeRow], task: str = "", texts: Iterable[str | bytes] = ()) -> Columns:
    """Return wire columns as given, valid or not."""
    return Columns(
        flags=bytes(flags for _, _, flags in rows),
        anchors=struct.pack(f">{len(rows)}Q", *(anchor for anchor, _, _ in rows)),
        deltas=struct.pack(f">{len(rows)}Q", *(delta for _, delta, _ in rows)),
        task=task,
        texts=tuple(t.encode() if isinstance(t, str) else t for t in texts),
    )


def rows_of(part: Columns) -> list[ReferenceRow]:
    """Return rows for the reference, from the columns for the wire."""
    texts = [text.decode() for text in part.texts]
    sources = iter(texts[: sum(flags & TRACK for flags in part.flags)])
    whys = iter(texts[sum(flags & TRACK for flags in part.flags) :])
    return [
        ReferenceRow(
            part.anchor(row),
            int.from_bytes(part.deltas[8 * row : 8 * row + 8], "big"),
            flags,
            next(sources) if flags & TRACK else "",
            next(whys) if flags & FAIL else "",
        )
        for row, flags in enumerate(part.flags)
    ]


def send(target: Target, part: Columns, fence: Fence | None = None, shard: int = 0) -> ShardApplied:
    """Call apply once."""
    if isinstance(target, Reference):
        return target.apply(rows_of(part), part.task, fence)
    call = commands.apply(ShardKeys(target.namespace, shard), part, fence)
    return commands.parse_apply(target.connection.run(call), part)


def track(
    acker: Target, anchor: int, delta: int, source_id: str = "s", task: str = "t"
) -> ShardApplied:
    """Track one tree."""
    return send(acker, columns([(anchor, delta, TRACK)], task, [source_id]))


def row(acker: Target, anchor: int, delta: int) -> ShardApplied:
    """Apply one row of a bolt: the id of a message XOR the ids of all messages that it caused."""
    return send(acker, columns([(anchor, delta, 0)]))


def fail(acker: Target, anchor: int, why: str = "", delta: int = 0) -> ShardApplied:
    """Fail one tree."""
    return send(acker, columns([(anchor, delta, FAIL)], "", [why]))


def touch(acker: Target, anchor: int) -> ShardApplied:
    """Reset the timeout of one tree."""
    return send(acker, columns([(anchor, 0, TOUCH)]))


def send_blocks(
    target: Target, *rows: BlockRow, fence: Fence | None = None, shard: int = 0
) -> ShardApplied:
    """Call apply_blocks once."""
    return _blocks(target, shard).apply_blocks(rows, fence)


def tracked_block(
    block: int, ids: Sequence[int], label: str = "b", task: str = "t", **more: Any
) -> BlockRow:
    """Return the TRACK of a block: for each slot, the XOR of the ids of its first messages."""
    return BlockRow(block, dict(enumerate(ids)), task=task, label=label, **more)


def partial_block(
    block: int, slots: int, ids: Mapping[int, int], label: str = "b", task: str = "t", **more: Any
) -> BlockRow:
    """Return the TRACK of a block that holds trees in some slots only: slot -> first messages."""
    column = {slot: ids.get(slot, 0) for slot in range(slots)}
    absent = frozenset(column.keys() - ids.keys())
    return BlockRow(block, column, task=task, label=label, absent=absent, **more)


def track_block(
    target: Target, block: int, ids: Sequence[int], label: str = "b", task: str = "t"
) -> ShardApplied:
    """Track a block."""
    return send_blocks(target, tracked_block(block, ids, label, task))


def block_row(target: Target, block: int, deltas: Mapping[int, int]) -> ShardApplied:
    """Apply rows of a bolt for some trees of a block: slot -> delta."""
    return send_blocks(target, BlockRow(block, deltas))


def fail_slot(
    target: Target, block: int, slot: int, why: str = "", delta: int | None = None
) -> ShardApplied:
    """Fail one tree of a block."""
    deltas = {} if delta is None else {slot: delta}
    return send_blocks(target, BlockRow(block, deltas, {slot: why}))


def touch_block(target: Target, block: int) -> ShardApplied:
    """Reset the timeout of a block."""
    return send_blocks(target, BlockRow(block, touch=True))


def tick(target: Target, times: int = 1) -> None:
    """Force ticks, and drain the trees and blocks that expire."""
    for _ in range(times):
        if isinstance(target, Reference):
            drain(target)
            target.rotate(force=True)
            drain(target)
        else:
            Rotator([target]).step(force=True)


def rotate(target: Target, force: bool = True) -> bool:
    """Tick without a drain, and return whether it ticked."""
    return _shard(target).rotate(force)


def drain(target: Target) -> None:
    """Drain the trees and blocks that expire."""
    _shard(target).expire()
    drain_blocks(target)


def drain_blocks(target: Target) -> None:
    """Drain the blocks that expire, but not the loose trees."""
    if not isinstance(target, Reference) or isinstance(target, BlockReference):
        while _blocks(target).expire_blocks():
            pass


def advance(target: Target, ms: int) -> None:
    """Move the clock."""
    _shard(target).advance(ms)


def _shard(target: Target) -> Reference | RedisShard:
    return target if isinstance(target, Reference) else RedisShard(target)


def _blocks(target: Target, shard: int = 0) -> BlockReference | RedisShard:
    if isinstance(target, Reference):
        assert isinstance(target, BlockReference)
        return target
    return RedisShard(target, shard)


def outcomes(target: Target, task: str = "t") -> list[Any]:
    """Take and return all waiting outcomes; an outcome of a block is expanded to its trees.

    They are in the order of the calls, except that the reference lists those of blocks last.
    """
    found = _shard(target).take(task)
    if isinstance(target, BlockReference):
        found += [single for block in target.take_blocks(task) for single in block.expand()]
    assert not _shard(target).take(task)
    return found


def block_outcomes(target: Target, task: str = "t") -> list[BlockOutcome]:
    """Take and return all waiting outcomes of blocks; those of loose trees keep waiting."""
    if isinstance(target, BlockReference):
        return target.take_blocks(task)
    assert not isinstance(target, Reference)
    waiting, found = target.outcomes(task), []
    while entries := [entry for entry in waiting.read(1000) if entry.block]:
        found += [entry.block for entry in entries if entry.block]
        waiting.take(entries)
    return found


def block_verdicts(target: Target, task: str = "t") -> list[BlockOutcome]:
    """Take and return all waiting outcomes of blocks, without their ages."""
    return [replace(outcome, age_ms=0) for outcome in block_outcomes(target, task)]


def verdicts(target: Target, task: str = "t") -> list[tuple[str, str, int, str, str]]:
    """Take and return all waiting verdicts: verdict, reason, anchor, source id, why."""
    found = outcomes(target, task)
    return [(o.verdict, o.reason, o.anchor, o.source_id, o.why) for o in found]


def ageless(outcome: Outcome | BlockOutcome) -> str:
    """Return a verdict without its ages, which depend on the speed of a server; sortable."""
    if isinstance(outcome, BlockOutcome):
        # Redis orders failures by slot, the reference by arrival.
        outcome = replace(outcome, rows=tuple(sorted(outcome.rows)))
    return repr(replace(outcome, age_ms=0, idle_ms=0))


def fences(target: Target) -> int:
    """Return the number of lanes that have a fence."""
    if isinstance(target, Reference):
        return sum(map(len, target.fences)) + len(target.durable)
    return sum(shard.fences for shard in target.status().shards)


def backlog(target: Target, task: str = "t") -> int:
    """Return the number of verdicts that wait for a task."""
    if isinstance(target, Reference):
        return target.backlog(task)
    return target.status().backlog.get(task, 0)


def names(target: Target) -> set[str]:
    """Return the registered tasks."""
    return set(target.names) if isinstance(target, Reference) else set(target.status().backlog)


def dump(target: Target) -> Any:
    """Return every key of the server and its value, including the last id of each stream.

    The bytes of DUMP would not do: Redis may return a table in another order each time.
    """
    if isinstance(target, Reference):
        return copy.deepcopy(vars(target))
    client = target.connection.client
    found: dict[bytes, Any] = {}
    # Not by KEYS, which a cluster client sends to one node only.
    for key in sorted(set(client.scan_iter(count=1000))):
        kind = client.type(key)
        if kind == b"hash":
            found[key] = client.hgetall(key)
        elif kind == b"stream":
            info = client.xinfo_stream(key)
            found[key] = (client.xrange(key), info["last-generated-id"])
        elif kind == b"set":
            found[key] = client.smembers(key)
        else:
            found[key] = client.dump(key)
    return found


def total(target: Target) -> dict[str, int]:
    """Return the counters, pending and expiring; check that every tree is accounted for."""
    if isinstance(target, Reference):
        counters = {name: target.counters[name] for name in commands.COUNTERS}
        pending, expiring = target.pending, len(target.expiring)
        if isinstance(target, BlockReference):
            expiring += len(target.blocks_expiring)
        tracked = target.tracked_records
    else:
        status = target.status()
        counters, pending, expiring = dict(status.counters), status.pending, status.expiring
        shards = [RedisShard(target, shard.shard) for shard in status.shards]
        tracked = sum(shard.tracked_records + _waiting_in_blocks(shard) for shard in shards)
    ended = sum(counters[n] for n in ("acked", "failed", "expired", "overflow", "conflict"))
    assert counters["tracked"] == ended + tracked
    return {**counters, "pending": pending, "expiring": expiring}


def _waiting_in_blocks(shard: RedisShard) -> int:
    """Return the number of trees in blocks without a verdict; check that no block left keys."""
    client, prefix = shard.acker.connection.client, shard.keys.prefix
    *buckets, expiring = (client.hgetall(place) for place in shard.block_places())
    slots = [
        sum(int.from_bytes(header[HEADER_SLOTS], "big") for header in b.values()) for b in buckets
    ]
    meta = client.hgetall(shard.keys.meta)
    assert [int(meta.get(b"slots:%d" % i, 0)) for i in range(len(slots))] == slots
    assert int(meta.get(b"slots", 0)) == sum(slots)
    headers = [(block, header) for place in (*buckets, expiring) for block, header in place.items()]
    names = [int.from_bytes(block, "big").to_bytes(7, "big").hex()[1:] for block, _ in headers]
    assert len(set(names)) == len(names), "a block is in one bucket only"

    def kept(what: str) -> set[str]:
        keys = client.scan_iter(glob(prefix) + what, count=1000)
        return {key.decode().rpartition(":")[2] for key in keys}

    assert kept(":block:*") == set(names)
    assert kept(":failed:*") | kept(":present:*") <= set(names)
    assert not kept(":scratch*")
    waiting = 0
    for name, (_, header) in zip(names, headers, strict=True):
        count = int.from_bytes(header[HEADER_SLOTS], "big")
        present = unpack_slots(client.get(f"{prefix}:present:{name}") or b"")
        failed = unpack_slots(client.get(f"{prefix}:failed:{name}") or b"")
        waiting += (len(present) or count) - len(failed)
        assert client.strlen(f"{prefix}:block:{name}") == 8 * count
    return waiting


def let_wait(acker: Acker, source: str, ms: int) -> None:
    """Make the untaken verdicts of a source on shard 0 older, as if it did not run."""
    client, keys = acker.connection.client, ShardKeys(acker.namespace, 0)
    now = acker.status().shards[0].now_ms
    entries = client.xrange(keys.outcomes(source))
    client.delete(keys.outcomes(source))
    for number, (_, fields) in enumerate(entries):
        client.xadd(keys.outcomes(source), fields, id=f"{now - ms}-{number}")
