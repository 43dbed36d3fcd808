"""The fence: a batch that is sent several times is applied once."""

import pytest

from acker_redis.errors import BacklogError, ChangedBatchError
from acker_redis.protocol.commands import Fence
from tests.conformance.conftest import MakeTarget
from tests.support import (
    TRACK,
    Target,
    advance,
    columns,
    dump,
    fences,
    row,
    send,
    tick,
    total,
    track,
    verdicts,
)

A, B = 0x0F0F_0F0F_0F0F, 0x3333_CCCC_3333


def test_repeat_is_not_applied(acker: Target) -> None:
    part = columns([(7, A, TRACK)], "t", ["s7"])
    assert send(acker, part, Fence("p", 1)).tracked == 1
    for _ in range(3):
        assert send(acker, part, Fence("p", 1)).highest == 1
    counters = total(acker)
    assert (counters["tracked"], counters["conflict"], counters["repeated"]) == (1, 0, 3)


def test_repeated_ack_is_applied_once(acker: Target) -> None:
    """x XOR x = 0: a row that is applied twice would have no effect."""
    track(acker, 7, A)
    send(acker, columns([(7, A ^ B, 0)]), Fence("p", 1))
    send(acker, columns([(7, A ^ B, 0)]), Fence("p", 1))
    assert row(acker, 7, B).acked == 1


def test_older_numbers_are_repeats(acker: Target) -> None:
    for seq in (1, 5, 9):
        assert send(acker, columns([(seq, A, 0)]), Fence("p", seq)).highest is None
    for seq in (1, 4, 8):
        assert send(acker, columns([(90 + seq, A, 0)]), Fence("p", seq)).highest == 9
    assert total(acker)["pending"] == 3


def test_producers_do_not_fence_each_other(acker: Target) -> None:
    assert send(acker, columns([(1, A, 0)]), Fence("p", 5)).highest is None
    assert send(acker, columns([(1, B, 0)]), Fence("q", 5)).highest is None


def test_numbers_compare_as_numbers(acker: Target) -> None:
    send(acker, columns([(1, A, 0)]), Fence("p", 9))
    assert send(acker, columns([(1, A, 0)]), Fence("p", 10)).highest is None
    assert send(acker, columns([(1, A, 0)]), Fence("p", 999_999_999_999_998)).highest is None
    assert send(acker, columns([(1, A, 0)]), Fence("p", 999_999_999_999_999)).highest is None
    assert send(acker, columns([(1, A, 0)]), Fence("p", 999_999_999_999_998)).highest is not None


def test_other_content_under_one_number_is_a_conflict(acker: Target) -> None:
    send(acker, columns([(1, A, 0)]), Fence("p", 1, "aa"))
    before = dump(acker)
    with pytest.raises(ChangedBatchError, match="other content"):
        send(acker, columns([(1, B, 0)]), Fence("p", 1, "ab"))
    assert dump(acker) == before
    assert send(acker, columns([(1, A, 0)]), Fence("p", 1, "aa")).highest == 1


def test_a_digest_on_one_side_only_is_a_conflict(acker: Target) -> None:
    send(acker, columns([(1, A, 0)]), Fence("p", 1))
    with pytest.raises(ChangedBatchError):
        send(acker, columns([(1, A, 0)]), Fence("p", 1, "aa"))


@pytest.mark.parametrize("buckets", [2, 3, 5])
def test_fence_holds_for_n_minus_1_ticks(make_acker: MakeTarget, buckets: int) -> None:
    acker = make_acker(buckets=buckets)
    send(acker, columns([(1, A, 0)]), Fence("p", 1))
    for _ in range(buckets - 1):
        tick(acker)
        assert send(acker, columns([(1, A, 0)]), Fence("p", 1)).highest == 1
    tick(acker)
    assert fences(acker) == 0


def test_fence_of_an_active_lane_is_in_the_newest_bucket(acker: Target) -> None:
    """The fence of an active lane is in one bucket only, and is not dropped with the oldest."""
    for seq in range(1, 9):
        assert send(acker, columns([(seq, A, 0)]), Fence("p", seq)).highest is None
        tick(acker)
        assert fences(acker) == 1
        assert send(acker, columns([(seq, A, 0)]), Fence("p", seq)).highest == seq


def test_durable_lane_outlives_all_buckets(acker: Target) -> None:
    send(acker, columns([(1, A, 0)]), Fence("@spark/q/0", 100_001, "aa"))
    tick(acker, 10)
    assert send(acker, columns([(1, A, 0)]), Fence("@spark/q/0", 100_001, "aa")).highest == 100_001
    with pytest.raises(ChangedBatchError):
        send(acker, columns([(1, B, 0)]), Fence("@spark/q/0", 100_001, "ab"))


def test_durable_lane_ends_after_thirty_days(acker: Target) -> None:
    minute, day = 60_000, 24 * 3600 * 1000
    send(acker, columns([(1, A, 0)]), Fence("@old", 1))
    advance(acker, 30 * day - minute)
    send(acker, columns([(1, A, 0)]), Fence("@new", 1))
    tick(acker)
    assert fences(acker) == 2
    advance(acker, 2 * minute)
    tick(acker)
    assert fences(acker) == 1
    assert send(acker, columns([(1, A, 0)]), Fence("@new", 1)).highest == 1


def test_refused_batch_does_not_use_up_its_number(make_acker: MakeTarget) -> None:
    acker = make_acker(outcomes_limit=1)
    track(acker, 1, 0)
    part = columns([(2, A, TRACK)], "t", ["s2"])
    with pytest.raises(BacklogError):
        send(acker, part, Fence("p", 1))
    verdicts(acker)
    assert send(acker, part, Fence("p", 1)).tracked == 1
