"""Rotation and expiry: when, how often, and in calls of bounded length."""

import pytest

from acker_redis import commands
from acker_redis.client import Acker
from acker_redis.keys import ShardKeys
from tests.conftest import MakeAcker
from tests.support import TRACK, columns, fail, row, send, tick, total, touch, track, verdicts

A = 0x5555_0000_5555_0000


def run(acker: Acker, call: commands.Call) -> list[int]:
    return list(acker.connection.run(call))


@pytest.mark.parametrize("buckets", [2, 3, 16])
def test_expires_after_n_ticks_not_before(make_acker: MakeAcker, buckets: int) -> None:
    acker = make_acker(buckets=buckets)
    track(acker, 7, A, "s7")
    for _ in range(buckets - 1):
        tick(acker)
        assert verdicts(acker) == []
    tick(acker)
    assert verdicts(acker) == [("nack", "expired", 7, "s7", "")]
    assert total(acker)["pending"] == total(acker)["expiring"] == 0


def test_rows_do_not_reset_the_clock(acker: Acker) -> None:
    track(acker, 7, A)
    tick(acker)
    row(acker, 7, 1)
    tick(acker)
    row(acker, 7, 2)
    tick(acker)
    assert [v[1] for v in verdicts(acker)] == ["expired"]


def test_rows_reset_the_clock_with_refresh_update(make_acker: MakeAcker) -> None:
    acker = make_acker(refresh="update")
    track(acker, 7, A)
    for delta in (1, 2, 4):
        tick(acker, 2)
        row(acker, 7, delta)
    tick(acker, 2)
    assert verdicts(acker) == []
    tick(acker)
    assert [v[1] for v in verdicts(acker)] == ["expired"]


def test_touch_resets_the_clock(acker: Acker) -> None:
    track(acker, 7, A)
    tick(acker, 2)
    touch(acker, 7)
    tick(acker, 2)
    assert [v[0] for v in verdicts(acker)] == ["touch"]
    assert row(acker, 7, A).acked == 1


def test_fail_before_track_resets_the_clock(acker: Acker) -> None:
    row(acker, 7, A)
    tick(acker, 2)
    fail(acker, 7, "early")
    tick(acker, 2)
    track(acker, 7, A)
    assert verdicts(acker) == [("nack", "failed", 7, "s", "early")]


def test_record_is_in_one_bucket_only(acker: Acker) -> None:
    track(acker, 7, A)
    for _ in range(5):
        tick(acker)
        touch(acker, 7)
        assert total(acker)["pending"] == 1


def test_late_row_is_an_orphan(acker: Acker) -> None:
    track(acker, 7, A)
    tick(acker, 3)
    assert row(acker, 7, A).acked == 0
    tick(acker, 3)
    assert [v[1] for v in verdicts(acker)] == ["expired"]
    assert total(acker)["orphaned"] == 1


def test_row_that_comes_while_its_tree_expires_is_late(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    track(acker, 7, A)
    tick(acker, 2)
    assert run(acker, commands.rotate(keys, force=True))[2] == 1
    assert row(acker, 7, A).acked == 0
    run(acker, commands.expire(keys, 10))
    assert [v[1] for v in verdicts(acker)] == ["expired"]


def test_nothing_rotates_before_the_drain_is_done(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    track(acker, 7, A)
    tick(acker, 2)
    assert run(acker, commands.rotate(keys, force=True))[0] == 1
    assert run(acker, commands.rotate(keys, force=True))[::2] == [0, 1]
    assert run(acker, commands.expire(keys, 10)) == [1, 0, 0]
    assert run(acker, commands.rotate(keys, force=True))[0] == 1


def test_not_due_does_not_rotate(acker: Acker) -> None:
    rotated, due, left = run(acker, commands.rotate(ShardKeys(acker.namespace, 0), force=False))
    assert (rotated, left) == (0, 0)
    assert 0 < due <= 3_600_000


def test_due_rotates_once(make_acker: MakeAcker) -> None:
    acker = make_acker(tick_ms=3_600_000)
    keys = ShardKeys(acker.namespace, 0)
    acker.connection.client.hincrby(keys.meta, "ticked_ms", -4_000_000)
    call = commands.rotate(keys, force=False)
    assert [run(acker, call)[0] for _ in range(3)] == [1, 0, 0]


def test_late_ticks_are_not_caught_up(make_acker: MakeAcker) -> None:
    """A rotator that was away for ten ticks ticks once: no tree expires early."""
    acker = make_acker()
    keys = ShardKeys(acker.namespace, 0)
    track(acker, 7, A)
    acker.connection.client.hincrby(keys.meta, "ticked_ms", -36_000_000)
    for _ in range(10):
        run(acker, commands.rotate(keys, force=False))
    assert total(acker)["pending"] == 1


def test_clock_an_hour_back_ticks_go_on(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    client = acker.connection.client
    client.hincrby(keys.meta, "ticked_ms", 7_200_000)
    rotated, due, _ = run(acker, commands.rotate(keys, force=False))
    assert (rotated, due) == (0, 3_600_000)
    client.hincrby(keys.meta, "ticked_ms", -3_600_000)
    assert run(acker, commands.rotate(keys, force=False))[0] == 1


def test_age_counts_from_the_first_row(acker: Acker) -> None:
    """Whatever rows come later, and wherever they move it."""
    keys, client = ShardKeys(acker.namespace, 0), acker.connection.client
    field = (7).to_bytes(8, "big")
    row(acker, 7, 1)
    record = client.hget(keys.pending(0), field)
    early = int.from_bytes(record[9:15], "big") - 5000
    client.hset(keys.pending(0), field, record[:9] + early.to_bytes(6, "big") + record[15:])
    track(acker, 7, A)
    tick(acker)
    row(acker, 7, 2)
    touch(acker, 7)
    row(acker, 7, A ^ 1 ^ 2)
    ages = [o.age_ms for o in acker.outcomes("t")]
    assert len(ages) == 2
    assert min(ages) >= 5000


def test_age_is_never_negative(acker: Acker) -> None:
    """A record from before the clock went back."""
    keys = ShardKeys(acker.namespace, 0)
    track(acker, 7, A)
    client = acker.connection.client
    field = (7).to_bytes(8, "big")
    record = client.hget(keys.pending(0), field)
    client.hset(keys.pending(0), field, record[:9] + b"\x7f" + record[10:])
    row(acker, 7, A)
    (entry,) = acker.outcomes("t").read()
    assert entry.outcomes[0].age_ms == 0


@pytest.mark.parametrize("count", [10, 64, 65, 5000])
def test_drain_in_bounded_calls(acker: Acker, count: int) -> None:
    """As a listpack and as a table; each record ends once, tracked or not."""
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
        assert reply[0] + reply[1] <= 400, "a call takes about as many as it was told"
        assert reply[2] <= left
        nacked, orphaned, left, calls = nacked + reply[0], orphaned + reply[1], reply[2], calls + 1
        assert calls <= count
    assert (nacked, orphaned) == ((count + 1) // 2, count // 2)
    found = [v[3] for v in verdicts(acker)]
    assert sorted(found) == sorted(f"s{i}" for i in range(1, count + 1) if i % 2)
    assert total(acker)["expired"] == (count + 1) // 2


def test_drain_stops_at_256_kib_of_verdicts(acker: Acker) -> None:
    keys = ShardKeys(acker.namespace, 0)
    for start in range(1, 2001, 250):
        ids = range(start, start + 250)
        send(acker, columns([(i, A, TRACK) for i in ids], "t", [f"{i:0255d}" for i in ids]))
    tick(acker, 2)
    run(acker, commands.rotate(keys, force=True))
    first = run(acker, commands.expire(keys, 1000))
    assert 500 < first[0] < 1000
    while run(acker, commands.expire(keys, 1000))[2]:
        pass
    entries = acker.outcomes("t").read(100)
    assert len({o.source_id for e in entries for o in e.outcomes}) == 2000
    assert sum(len(e.outcomes) for e in entries) == 2000


def test_trees_of_many_tasks_expire_to_their_sources(acker: Acker) -> None:
    for i in range(1, 51):
        track(acker, i, A, f"s{i}", f"task{i % 5}")
    tick(acker, 3)
    for task in range(5):
        expected = {f"s{i}" for i in range(1, 51) if i % 5 == task}
        assert {v[3] for v in verdicts(acker, f"task{task}")} == expected
