"""What the tests say in one word: raw rows, forced ticks, verdicts as tuples.

Each word is understood by a real acker and by the reference.
"""

import copy
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from acker_redis import commands
from acker_redis.batch import Columns
from acker_redis.client import Acker
from acker_redis.commands import Fence, ShardApplied
from acker_redis.keys import ShardKeys
from acker_redis.reference import Reference
from acker_redis.reference import Row as ReferenceRow
from acker_redis.rotator import Rotator
from acker_redis.shard import RedisShard

TRACK, FAIL, TOUCH = 1, 2, 4
Row = tuple[int, int, int]
"""anchor, delta, flags"""
Target = Acker | Reference
"""What a conformance test is run against."""


def columns(rows: Sequence[Row], task: str = "", texts: Iterable[str | bytes] = ()) -> Columns:
    """Wire columns as given, right or wrong."""
    return Columns(
        flags=bytes(flags for _, _, flags in rows),
        anchors=struct.pack(f">{len(rows)}Q", *(anchor for anchor, _, _ in rows)),
        deltas=struct.pack(f">{len(rows)}Q", *(delta for _, delta, _ in rows)),
        task=task,
        texts=tuple(t.encode() if isinstance(t, str) else t for t in texts),
    )


def rows_of(part: Columns) -> list[ReferenceRow]:
    """Rows for the reference, from the columns for the wire."""
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
    """One row of a bolt: the message's id XOR the ids of all it caused."""
    return send(acker, columns([(anchor, delta, 0)]))


def fail(acker: Target, anchor: int, why: str = "", delta: int = 0) -> ShardApplied:
    """Fail one tree."""
    return send(acker, columns([(anchor, delta, FAIL)], "", [why]))


def touch(acker: Target, anchor: int) -> ShardApplied:
    """Reset the timeout of one tree."""
    return send(acker, columns([(anchor, 0, TOUCH)]))


def tick(target: Target, times: int = 1) -> None:
    """Force ticks, and drain what expires."""
    for _ in range(times):
        if isinstance(target, Reference):
            target.expire()
            target.rotate(force=True)
            target.expire()
        else:
            Rotator([target]).step(force=True)


def rotate(target: Target, force: bool = True) -> bool:
    """Tick, and drain nothing; whether it ticked."""
    return _shard(target).rotate(force)


def drain(target: Target) -> None:
    """Drain what expires."""
    _shard(target).expire()


def advance(target: Target, ms: int) -> None:
    """Move the clock."""
    _shard(target).advance(ms)


def _shard(target: Target) -> Reference | RedisShard:
    return target if isinstance(target, Reference) else RedisShard(target)


def outcomes(target: Target, task: str = "t") -> list[Any]:
    """All outcomes that wait; they are taken."""
    found = _shard(target).take(task)
    assert not _shard(target).take(task)
    return found


def verdicts(target: Target, task: str = "t") -> list[tuple[str, str, int, str, str]]:
    """All verdicts that wait: verdict, reason, anchor, source id, why; they are taken."""
    found = outcomes(target, task)
    return [(o.verdict, o.reason, o.anchor, o.source_id, o.why) for o in found]


def fences(target: Target) -> int:
    """Producer lanes that are remembered."""
    if isinstance(target, Reference):
        return sum(map(len, target.fences)) + len(target.durable)
    return sum(shard.fences for shard in target.status().shards)


def backlog(target: Target, task: str = "t") -> int:
    """Verdicts that wait for a task."""
    if isinstance(target, Reference):
        return len(target.outcomes.get(task, ()))
    return target.status().backlog.get(task, 0)


def dump(target: Target) -> Any:
    """Every key of the server and what it holds, down to the last id of a stream.

    Not the bytes of DUMP: a table may be read in another order each time.
    """
    if isinstance(target, Reference):
        return copy.deepcopy(vars(target))
    client = target.connection.client
    found: dict[bytes, Any] = {}
    for key in sorted(client.keys("*")):
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
    """Counters, and what is pending; checks that every tree is accounted for."""
    if isinstance(target, Reference):
        counters = {name: target.counters[name] for name in commands.COUNTERS}
        pending, expiring = target.pending, len(target.expiring)
        tracked = target.tracked_records
    else:
        status = target.status()
        counters, pending, expiring = dict(status.counters), status.pending, status.expiring
        shards = [RedisShard(target, shard.shard) for shard in status.shards]
        tracked = sum(shard.tracked_records for shard in shards)
    ended = sum(counters[n] for n in ("acked", "failed", "expired", "overflow", "conflict"))
    assert counters["tracked"] == ended + tracked
    return {**counters, "pending": pending, "expiring": expiring}
