"""What the tests say in one word: raw rows, forced ticks, verdicts as tuples."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from acker_redis import commands
from acker_redis.batch import Columns
from acker_redis.client import Acker
from acker_redis.commands import Fence, ShardApplied
from acker_redis.keys import ShardKeys
from acker_redis.rotator import Rotator

TRACK, FAIL, TOUCH = 1, 2, 4
Row = tuple[int, int, int]
"""anchor, delta, flags"""


def columns(rows: Sequence[Row], task: str = "", texts: Iterable[str | bytes] = ()) -> Columns:
    """Wire columns as given, right or wrong."""
    return Columns(
        flags=bytes(flags for _, _, flags in rows),
        anchors=struct.pack(f">{len(rows)}Q", *(anchor for anchor, _, _ in rows)),
        deltas=struct.pack(f">{len(rows)}Q", *(delta for _, delta, _ in rows)),
        task=task,
        texts=tuple(t.encode() if isinstance(t, str) else t for t in texts),
    )


def send(acker: Acker, part: Columns, fence: Fence | None = None, shard: int = 0) -> ShardApplied:
    """Call apply.lua once."""
    call = commands.apply(ShardKeys(acker.namespace, shard), part, fence)
    return commands.parse_apply(acker.connection.run(call), part)


def track(
    acker: Acker, anchor: int, delta: int, source_id: str = "s", task: str = "t"
) -> ShardApplied:
    """Track one tree."""
    return send(acker, columns([(anchor, delta, TRACK)], task, [source_id]))


def row(acker: Acker, anchor: int, delta: int) -> ShardApplied:
    """One row of a bolt: the message's id XOR the ids of all it caused."""
    return send(acker, columns([(anchor, delta, 0)]))


def fail(acker: Acker, anchor: int, why: str = "", delta: int = 0) -> ShardApplied:
    """Fail one tree."""
    return send(acker, columns([(anchor, delta, FAIL)], "", [why]))


def touch(acker: Acker, anchor: int) -> ShardApplied:
    """Reset the timeout of one tree."""
    return send(acker, columns([(anchor, 0, TOUCH)]))


def tick(acker: Acker, times: int = 1) -> None:
    """Force ticks, and drain what expires."""
    for _ in range(times):
        Rotator([acker]).step(force=True)


def verdicts(acker: Acker, task: str = "t") -> list[tuple[str, str, int, str, str]]:
    """All verdicts that wait: verdict, reason, anchor, source id, why; they are taken."""
    found = [(o.verdict, o.reason, o.anchor, o.source_id, o.why) for o in acker.outcomes(task)]
    assert not acker.outcomes(task).read()
    return found


def dump(acker: Acker) -> dict[bytes, Any]:
    """Every key of the server and what it holds, down to the last id of a stream.

    Not the bytes of DUMP: a table may be read in another order each time.
    """
    client = acker.connection.client
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


def total(acker: Acker) -> dict[str, int]:
    """Counters, and what is pending; checks that every tree is accounted for."""
    status, client = acker.status(), acker.connection.client
    tracked = 0
    for shard in status.shards:
        keys = ShardKeys(acker.namespace, shard.shard)
        places = [keys.pending(i) for i in range(status.config.buckets)] + [keys.expiring]
        # The length of the task stands in byte 15; a record without a tree has none.
        tracked += sum(record[15] > 0 for place in places for record in client.hvals(place))
    counters = dict(status.counters)
    ended = sum(counters[n] for n in ("acked", "failed", "expired", "overflow", "conflict"))
    assert counters["tracked"] == ended + tracked
    return {**counters, "pending": status.pending, "expiring": status.expiring}
