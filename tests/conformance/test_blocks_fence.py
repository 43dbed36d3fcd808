"""The fence of blocks: a call that is sent several times is applied once."""

import random

import pytest

from acker_redis.errors import BacklogError, ChangedBatchError
from acker_redis.protocol.commands import Fence
from proof.reference.blocks import BlockRow
from tests.conformance.conftest import MakeTarget
from tests.support import (
    TRACK,
    Target,
    advance,
    block_row,
    block_verdicts,
    columns,
    dump,
    fences,
    row,
    send,
    send_blocks,
    tick,
    total,
    track_block,
    tracked_block,
    verdicts,
)

A, B, C = (random.Random(f"fence {i}").getrandbits(63) for i in range(3))


def test_repeated_track_is_not_applied(acker: Target) -> None:
    part = tracked_block(7, [A, B])
    assert send_blocks(acker, part, fence=Fence("p", 1)).tracked == 2
    for _ in range(3):
        reply = send_blocks(acker, part, fence=Fence("p", 1))
        assert (reply.highest, reply.tracked) == (1, 0)
    counters = total(acker)
    assert (counters["tracked"], counters["repeated"], counters["pending"]) == (2, 3, 2)


def test_repeated_track_of_a_block_that_has_ended_is_not_applied(acker: Target) -> None:
    """Without the fence the block would be tracked again, and could only expire."""
    part = tracked_block(7, [A])
    send_blocks(acker, part, fence=Fence("p", 1))
    block_row(acker, 7, {0: A})
    assert send_blocks(acker, part, fence=Fence("p", 1)).highest == 1
    assert total(acker)["pending"] == 0


@pytest.mark.parametrize("slots", [range(3), [1], [0, 2]], ids=["dense", "sparse", "two"])
def test_repeated_deltas_are_applied_once(acker: Target, slots: range | list[int]) -> None:
    """x XOR x = 0: a row that is applied twice would have no effect."""
    track_block(acker, 7, [A, A, A])
    part = BlockRow(7, dict.fromkeys(slots, A ^ B))
    for expected in (None, 1, 1):
        assert send_blocks(acker, part, fence=Fence("p", 1)).highest == expected
    rest = {slot: B if slot in slots else A for slot in range(3)}
    assert block_row(acker, 7, rest).acked == 3


def test_repeated_failures_get_one_verdict(acker: Target) -> None:
    track_block(acker, 7, [A, B])
    part = BlockRow(7, {0: A}, {0: "no"})
    assert send_blocks(acker, part, fence=Fence("p", 1)).failed == 1
    assert send_blocks(acker, part, fence=Fence("p", 1)).failed == 0
    assert [v[:2] for v in verdicts(acker)] == [("nack", "failed")]
    assert block_row(acker, 7, {1: B}).acked == 1


def test_repeated_touch_does_not_reset_the_clock(acker: Target) -> None:
    track_block(acker, 7, [A])
    part = BlockRow(7, touch=True)
    send_blocks(acker, part, fence=Fence("p", 1))
    tick(acker, 2)
    assert send_blocks(acker, part, fence=Fence("p", 1)).highest == 1
    tick(acker)
    assert [o.verdict for o in block_verdicts(acker)] == ["touch", "mixed"]


def test_older_numbers_are_repeats(acker: Target) -> None:
    track_block(acker, 7, [A])
    for seq in (1, 5, 9):
        assert send_blocks(acker, BlockRow(7, {0: seq}), fence=Fence("p", seq)).highest is None
    for seq in (1, 4, 8):
        assert send_blocks(acker, BlockRow(7, {0: B}), fence=Fence("p", seq)).highest == 9
    assert block_row(acker, 7, {0: A ^ 1 ^ 5 ^ 9}).acked == 1


def test_producers_do_not_fence_each_other(acker: Target) -> None:
    track_block(acker, 7, [A])
    for producer in ("p", "q", "@p"):
        part = BlockRow(7, {0: A})
        assert send_blocks(acker, part, fence=Fence(producer, 5)).highest is None
    assert total(acker)["acked"] == 1
    assert total(acker)["orphaned"] == 2


def test_other_content_under_one_number_is_a_conflict(acker: Target) -> None:
    track_block(acker, 7, [A, B])
    send_blocks(acker, BlockRow(7, {0: A}), fence=Fence("p", 1, "aa"))
    before = dump(acker)
    for digest in ("ab", ""):
        with pytest.raises(ChangedBatchError, match="other content"):
            send_blocks(acker, BlockRow(7, {1: B}), fence=Fence("p", 1, digest))
    assert dump(acker) == before
    repeat = send_blocks(acker, BlockRow(7, {0: A}), fence=Fence("p", 1, "aa"))
    assert repeat.highest == 1


@pytest.mark.parametrize("lane", ["p", "@p"])
def test_loose_trees_and_blocks_share_a_lane(acker: Target, lane: str) -> None:
    """A batch is sent as two calls with two numbers, the loose trees first."""
    loose = columns([(9, A, TRACK)], "t", ["s9"])
    block = tracked_block(7, [A, B])
    assert send(acker, loose, Fence(lane, 1, "aa")).tracked == 1
    assert send_blocks(acker, block, fence=Fence(lane, 2, "bb")).tracked == 2
    assert send(acker, loose, Fence(lane, 1, "aa")).highest == 2
    assert send_blocks(acker, block, fence=Fence(lane, 2, "bb")).highest == 2
    assert fences(acker) == 1
    # With the number of the other call, and the digest of the other call or its own.
    with pytest.raises(ChangedBatchError):
        send(acker, loose, Fence(lane, 2, "aa"))
    assert send_blocks(acker, block, fence=Fence(lane, 1, "aa")).highest == 2
    counters = total(acker)
    assert (counters["tracked"], counters["repeated"], counters["pending"]) == (3, 3, 3)
    assert send(acker, columns([(9, A, 0)]), Fence(lane, 3)).acked == 1
    assert send_blocks(acker, BlockRow(7, {0: A, 1: B}), fence=Fence(lane, 4)).acked == 2


def test_partially_applied_batch_is_completed_by_a_retry(acker: Target) -> None:
    """The loose trees arrived, the blocks did not: the client sends the whole batch again."""
    track_block(acker, 7, [A])
    send(acker, columns([(9, A, TRACK)], "t", ["s9"]), Fence("p", 1))
    assert send(acker, columns([(9, A, TRACK)], "t", ["s9"]), Fence("p", 1)).highest == 1
    assert send_blocks(acker, BlockRow(7, {0: A}), fence=Fence("p", 2)).acked == 1
    assert row(acker, 9, A).acked == 1


@pytest.mark.parametrize("buckets", [2, 3, 5])
def test_fence_holds_for_n_minus_1_ticks(make_acker: MakeTarget, buckets: int) -> None:
    acker = make_acker(buckets=buckets)
    part = tracked_block(7, [A])
    send_blocks(acker, part, fence=Fence("p", 1))
    for _ in range(buckets - 1):
        tick(acker)
        assert send_blocks(acker, part, fence=Fence("p", 1)).highest == 1
    tick(acker)
    assert fences(acker) == 0
    assert send_blocks(acker, part, fence=Fence("p", 1)).tracked == 1


def test_fence_of_an_active_lane_is_in_the_newest_bucket(acker: Target) -> None:
    """The fence of an active lane is in one bucket only, and is not dropped with the oldest."""
    for seq in range(1, 9):
        part = tracked_block(seq, [A])
        assert send_blocks(acker, part, fence=Fence("p", seq)).highest is None
        tick(acker)
        assert fences(acker) == 1
        assert send_blocks(acker, part, fence=Fence("p", seq)).highest == seq


def test_durable_lane_outlives_all_buckets(acker: Target) -> None:
    part, fence = tracked_block(7, [A]), Fence("@spark/q/0", 100_001, "aa")
    send_blocks(acker, part, fence=fence)
    tick(acker, 10)
    assert send_blocks(acker, part, fence=fence).highest == 100_001
    with pytest.raises(ChangedBatchError):
        send_blocks(acker, part, fence=Fence("@spark/q/0", 100_001, "ab"))
    assert [o.verdict for o in block_verdicts(acker)] == ["mixed"]


def test_durable_lane_ends_thirty_days_after_its_last_call(acker: Target) -> None:
    minute, day = 60_000, 24 * 3600 * 1000
    send(acker, columns([(1, A, 0)]), Fence("@lane", 1))
    advance(acker, 30 * day - minute)
    send_blocks(acker, tracked_block(7, [A]), fence=Fence("@lane", 2))
    advance(acker, 2 * minute)
    tick(acker)
    assert fences(acker) == 1
    advance(acker, 30 * day)
    tick(acker)
    assert fences(acker) == 0


def test_refused_call_does_not_use_up_its_number(make_acker: MakeTarget) -> None:
    acker = make_acker(outcomes_limit=2)
    track_block(acker, 1, [0, 0])
    part = tracked_block(2, [A])
    with pytest.raises(BacklogError):
        send_blocks(acker, part, fence=Fence("p", 1))
    verdicts(acker)
    assert send_blocks(acker, part, fence=Fence("p", 1)).tracked == 1
    with pytest.raises(ChangedBatchError):
        send_blocks(acker, tracked_block(2, [B]), fence=Fence("p", 2))
    assert send_blocks(acker, BlockRow(2, {0: A}), fence=Fence("p", 2)).acked == 1
