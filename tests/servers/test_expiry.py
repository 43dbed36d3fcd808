"""Rotation and expiry: replies, lateness, and drains in bounded calls."""

import json

import pytest

from acker_redis.protocol import commands
from acker_redis.protocol.keys import ShardKeys
from acker_redis.sync.client import Acker
from proof.reference.acker import Reference
from proof.simulate.redis_shard import RedisShard
from tests.conftest import MakeAcker
from tests.support import TRACK, columns, send, tick, total, track, verdicts

A = 0x5555_0000_5555_0000


def run(acker: Acker, call: commands.Call) -> list[int]:
    return list(acker.connection.run(call))


def test_tick_that_is_not_due_does_not_rotate(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    rotated, due, left, late = run(acker, commands.rotate(keys, force=False))
    assert (rotated, left, late) == (0, 0, 0)
    assert 3_500_000 < due <= 3_600_000


def test_replies_of_rotate(acker: Acker) -> None:
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    now, later = commands.rotate(keys, force=True), commands.rotate(keys, force=False)
    track(acker, 7, A)
    assert [run(acker, now) for _ in range(3)] == [
        [1, 3_600_000, 0, 0],
        [1, 3_600_000, 0, 0],
        [1, 3_600_000, 1, 0],
    ]
    client.hincrby(keys.meta, "ticked_ms", -4_000_000)
    assert run(acker, later) == [0, 0, 1, 0], "due, but a bucket is expiring"
    client.hincrby(keys.meta, "ticked_ms", 8_000_000)
    assert run(acker, later) == [0, 3_600_000, 1, 0], "the clock went back"


def late_and_lag(acker: Acker) -> tuple[int, int]:
    status = acker.status()
    return status.late_ms, status.lag_ms


def test_late_tick_reports_its_delay(make_acker: MakeAcker) -> None:
    acker = make_acker(shards=2)
    keys, client = ShardKeys(acker.namespace, 1), acker.connection.client
    assert not client.hexists(keys.meta, "late_ms"), "as an older version leaves it"
    assert late_and_lag(acker) == (0, 0)
    client.hincrby(keys.meta, "ticked_ms", -3_600_000 - 50_000)
    late, lag = late_and_lag(acker)
    assert late == 0
    assert 50_000 <= lag < 110_000, "of the worst shard, by now"
    reply = acker.connection.run(commands.rotate(keys, force=False))
    rotated = commands.parse_rotate(reply)
    assert rotated.rotated
    assert lag <= rotated.late_ms < 110_000
    assert late_and_lag(acker) == (rotated.late_ms, 0)
    assert acker.status().shards[1].late_ms == rotated.late_ms
    assert acker.status().shards[0].late_ms == 0
    rotated = commands.parse_rotate(acker.connection.run(commands.rotate(keys, force=False)))
    assert (rotated.rotated, rotated.late_ms) == (False, 0), "a late tick is not caught up"
    assert late_and_lag(acker)[0] > 0, "of the last tick, not of the last call"
    tick(acker)
    assert late_and_lag(acker) == (0, 0), "a forced tick comes early"


def test_a_clock_that_went_back_is_not_late(acker: Acker) -> None:
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    client.hincrby(keys.meta, "ticked_ms", 3_600_000)
    assert run(acker, commands.rotate(keys, force=True))[3] == 0
    assert late_and_lag(acker) == (0, 0)


def test_lateness_agrees_with_the_reference(acker: Acker) -> None:
    reference = Reference(acker.config, now_ms=1_700_000_000_000)
    shard = RedisShard(acker)
    for ms in (3_600_000 + 90_000, 10_000, 7_300_000):
        reference.advance(ms)
        shard.advance(ms)
        assert reference.rotate() == shard.rotate()
        assert 0 <= acker.status().late_ms - reference.late_ms < 60_000


@pytest.mark.parametrize("count", [10, 64, 65, 5000])
def test_drain_in_bounded_calls(acker: Acker, count: int) -> None:
    """With a listpack and with a table. Each record ends once, tracked or not."""
    keys = ShardKeys(acker.namespace, 0)
    for start in range(1, count + 1, 1000):
        ids = range(start, min(start + 1000, count + 1))
        odd = [i for i in ids if i % 2]
        send(acker, columns([(i, A, TRACK) for i in odd], "t", [f"s{i}" for i in odd]))
        even = [(i, A, 0) for i in ids if i % 2 == 0]
        if even:
            send(acker, columns(even))
    tick(acker, 2)
    run(acker, commands.rotate(keys, force=True))
    nacked = orphaned = calls = 0
    left = count
    while left:
        reply = run(acker, commands.expire(keys, 100))
        assert reply[0] + reply[1] <= 400, "a call drains about as many as requested"
        assert reply[2] <= left
        nacked, orphaned, left, calls = nacked + reply[0], orphaned + reply[1], reply[2], calls + 1
        assert calls <= count
    assert (nacked, orphaned) == ((count + 1) // 2, count // 2)
    found = [v[3] for v in verdicts(acker)]
    assert sorted(found) == sorted(f"s{i}" for i in range(1, count + 1) if i % 2)
    assert total(acker)["expired"] == (count + 1) // 2


def test_expire_handles_a_large_listpack_in_one_call(acker: Acker) -> None:
    """After a restart with a large limit for listpacks: more fields than one HDEL takes."""
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    send(
        acker, columns([(i, A, TRACK) for i in range(1, 1001)], "t", [f"s{i}" for i in range(1000)])
    )
    send(acker, columns([(i, A, TRACK) for i in range(1001, 1502)], "t", ["s"] * 501))
    tick(acker, 2)
    run(acker, commands.rotate(keys, force=True))
    before = client.config_get("hash-max-ziplist-entries")
    client.config_set("hash-max-ziplist-entries", 5000)
    try:
        client.restore(keys.expiring, 0, client.dump(keys.expiring), replace=True)
        assert client.object("encoding", keys.expiring) in (b"listpack", b"ziplist")
        assert run(acker, commands.expire(keys, 1)) == [1501, 0, 0]
    finally:
        client.config_set("hash-max-ziplist-entries", *before.values())
    assert sorted(v[2] for v in verdicts(acker)) == list(range(1, 1502))


def test_drain_stops_at_192_kib_of_verdicts(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    for start in range(1, 2001, 250):
        ids = range(start, start + 250)
        send(acker, columns([(i, A, TRACK) for i in ids], "t", [f"{i:0255d}" for i in ids]))
    tick(acker, 2)
    run(acker, commands.rotate(keys, force=True))
    first = run(acker, commands.expire(keys, 1000))
    assert 500 < first[0] < 1000
    (entry,) = acker.connection.client.xrange(keys.outcomes("t"))
    rows = [json.dumps(row, separators=(",", ":")) for row in json.loads(entry[1][b"rows"])]
    assert sum(map(len, rows[:-1])) < 192 * 1024 <= sum(map(len, rows))
    while run(acker, commands.expire(keys, 1000))[2]:
        pass
    entries = acker.outcomes("t").read(100)
    assert len({o.source_id for e in entries for o in e.outcomes}) == 2000
    assert sum(len(e.outcomes) for e in entries) == 2000
