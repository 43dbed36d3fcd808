"""Admission: rows that the high-water mark and the backlog refuse, and rows that they never do."""

import pytest

from acker_redis.errors import BacklogError
from tests.conformance.conftest import MakeTarget
from tests.support import (
    FAIL,
    TRACK,
    Target,
    columns,
    dump,
    fail,
    row,
    send,
    tick,
    total,
    touch,
    track,
    verdicts,
)

A = 0x7777_7777


def fill(acker: Target, count: int, start: int = 1) -> None:
    ids = range(start, start + count)
    send(acker, columns([(i, A, TRACK) for i in ids], "t", [f"s{i}" for i in ids]))


def test_above_high_water_rows_without_a_tree_are_dropped(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=10)
    fill(acker, 9)
    row(acker, 100, 1)
    assert total(acker)["pending"] == 10
    row(acker, 101, 1)
    fail(acker, 102, "dropped too")
    touch(acker, 103)
    counters = total(acker)
    assert (counters["pending"], counters["orphaned"]) == (10, 2)


def test_trees_are_tracked_up_to_twice_high_water(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=10)
    fill(acker, 20)
    reply = track(acker, 21, A, "one too many")
    assert (reply.tracked, reply.pending, reply.rejected) == (1, 20, (21,))
    assert verdicts(acker) == [("nack", "overflow", 21, "one too many", "")]
    counters = total(acker)
    assert (counters["tracked"], counters["overflow"]) == (21, 1)


def test_one_batch_crosses_the_mark_row_by_row(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=10)
    ids = range(1, 31)
    reply = send(acker, columns([(i, A, TRACK) for i in ids], "t", [f"s{i}" for i in ids]))
    assert reply.pending == 20
    assert reply.rejected == tuple(range(21, 31))
    assert {v[3] for v in verdicts(acker)} == {f"s{i}" for i in range(21, 31)}


def test_a_tree_that_ends_makes_room_in_the_same_batch(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=1)
    fill(acker, 2)
    part = columns([(1, A, 0), (3, A, TRACK)], "t", ["s3"])
    reply = send(acker, part)
    assert (reply.acked, reply.rejected, reply.pending) == (1, (), 2)


def test_rows_of_known_trees_are_never_refused(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=5)
    fill(acker, 10)
    assert send(acker, columns([(i, A, 0) for i in range(1, 10)])).acked == 9
    assert fail(acker, 10, "bad").failed == 1


def test_over_the_mark_a_track_of_an_existing_record_is_applied(make_acker: MakeTarget) -> None:
    """The TRACK creates no record: an earlier row of its tree did."""
    acker = make_acker(high_water=1)
    row(acker, 9, A)
    fill(acker, 1)
    reply = track(acker, 9, A ^ 1, "s9")
    assert (reply.rejected, reply.pending) == ((), 2)


def test_over_the_mark_a_tree_that_ends_at_once_is_not_refused(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=1)
    fill(acker, 2)
    assert track(acker, 9, 0, "empty").acked == 1
    reply = send(acker, columns([(8, A, TRACK | FAIL)], "t", ["s8", "no"]))
    assert (reply.failed, reply.rejected) == (1, ())


def test_expiring_trees_do_not_count_as_pending(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=5)
    fill(acker, 10)
    tick(acker, 3)
    fill(acker, 10, start=11)
    assert total(acker)["overflow"] == 0


def test_each_shard_has_a_share_of_high_water(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=5, shards=4)
    for k in range(5):
        track_shard = columns([(4 * (k + 1), A, TRACK)], "t", ["s"])
        reply = send(acker, track_shard, shard=0)
    assert reply.high_water == 2
    assert reply.rejected == (20,)


def test_full_backlog_refuses_a_batch_with_tracks_whole(make_acker: MakeTarget) -> None:
    acker = make_acker(outcomes_limit=3)
    fill(acker, 4)
    send(acker, columns([(i, A, 0) for i in range(1, 4)]))
    before = dump(acker)
    with pytest.raises(BacklogError, match="3 verdicts waiting"):
        send(acker, columns([(50, A, TRACK), (4, A, 0)], "t", ["s50"]))
    assert dump(acker) == before


def test_backlog_never_refuses_verdicts_of_known_trees(make_acker: MakeTarget) -> None:
    acker = make_acker(outcomes_limit=1)
    fill(acker, 4)
    assert send(acker, columns([(i, A, 0) for i in range(1, 4)])).acked == 3
    assert row(acker, 4, A).acked == 1
    assert len(verdicts(acker)) == 4
    fill(acker, 1, start=60)


def test_touch_verdicts_are_dropped_when_the_backlog_is_full(make_acker: MakeTarget) -> None:
    acker = make_acker(outcomes_limit=2)
    fill(acker, 3)
    for _ in range(4):
        touch(acker, 1)
    assert [v[0] for v in verdicts(acker)] == ["touch", "touch"]


def test_backlog_of_one_task_does_not_stop_another(make_acker: MakeTarget) -> None:
    acker = make_acker(outcomes_limit=1)
    track(acker, 1, 0, "s1", "slow")
    track(acker, 2, 0, "s2", "fast")
    with pytest.raises(BacklogError):
        track(acker, 3, 0, "s3", "slow")
    verdicts(acker, "fast")
    track(acker, 4, 0, "s4", "fast")
