"""Admission of blocks: the high-water mark and the backlog."""

import contextlib
import random

import pytest

from acker_redis.errors import BacklogError, ChangedBatchError
from proof.reference.blocks import BlockRow
from tests.conformance.conftest import MakeTarget
from tests.support import (
    TRACK,
    Target,
    backlog,
    block_row,
    block_verdicts,
    columns,
    dump,
    fail_slot,
    row,
    send,
    send_blocks,
    tick,
    total,
    touch_block,
    track,
    track_block,
    tracked_block,
    verdicts,
)

A, B = (random.Random(f"admission {i}").getrandbits(63) for i in range(2))


def test_the_slots_of_a_block_are_pending_until_it_ends(acker: Target) -> None:
    assert track_block(acker, 7, [A, A, 0, A]).pending == 4
    assert block_row(acker, 7, {0: A}).pending == 4
    assert fail_slot(acker, 7, 1, "no", A).pending == 4
    assert total(acker)["pending"] == 4
    assert block_row(acker, 7, {3: A}).pending == 0


def test_blocks_are_tracked_up_to_twice_high_water(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=10)
    assert track_block(acker, 1, [A] * 20).rejected == ()
    reply = track_block(acker, 2, [A], "one too many")
    assert (reply.tracked, reply.pending, reply.high_water, reply.rejected) == (1, 20, 10, (2,))
    (overflow,) = block_verdicts(acker)
    assert (overflow.verdict, overflow.reason, overflow.label) == (
        "nack",
        "overflow",
        "one too many",
    )
    assert (overflow.slots, overflow.count, list(overflow.acked())) == (1, 1, [])
    counters = total(acker)
    assert (counters["tracked"], counters["overflow"]) == (21, 1)


def test_block_is_admitted_or_nacked_as_a_whole(make_acker: MakeTarget) -> None:
    """A block is never split. A later, smaller block of the same call may still fit."""
    acker = make_acker(high_water=5)
    reply = send_blocks(
        acker, tracked_block(1, [A] * 8), tracked_block(2, [A] * 3), tracked_block(3, [A] * 2)
    )
    assert (reply.tracked, reply.pending, reply.rejected) == (13, 10, (2,))
    assert [(o.block, o.count) for o in block_verdicts(acker)] == [(2, 3)]


def test_a_block_larger_than_twice_high_water_never_fits(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=5)
    for _ in range(2):
        assert track_block(acker, 7, [A] * 11).rejected == (7,)
    assert total(acker)["overflow"] == 22
    assert {v[:2] for v in verdicts(acker)} == {("nack", "overflow")}


@pytest.mark.parametrize("more", [0, 1])
def test_loose_trees_reduce_the_room_for_blocks(make_acker: MakeTarget, more: int) -> None:
    acker = make_acker(high_water=5)
    for anchor in range(1, 8):
        track(acker, anchor, A)
    assert track_block(acker, 7, [A] * (3 + more)).rejected == ((7,) if more else ())
    assert total(acker)["pending"] == (7 if more else 10)


def test_blocks_reduce_the_room_for_loose_trees(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=5)
    track_block(acker, 7, [A] * 9)
    assert track(acker, 1, A).rejected == ()
    reply = track(acker, 2, A)
    assert (reply.rejected, reply.pending) == ((2,), 10)
    block_row(acker, 7, dict.fromkeys(range(9), A))
    assert track(acker, 2, A).rejected == ()


def test_blocks_count_for_the_mark_of_rows_without_a_tree(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=5)
    track_block(acker, 7, [A] * 4)
    row(acker, 1, A)
    row(acker, 2, A)
    counters = total(acker)
    assert (counters["pending"], counters["orphaned"]) == (5, 1)


def test_blocks_that_end_in_a_call_make_room_for_the_next_only(make_acker: MakeTarget) -> None:
    """The script knows which blocks end only after its writes have begun."""
    acker = make_acker(high_water=2)
    track_block(acker, 1, [A] * 4)
    end = BlockRow(1, dict.fromkeys(range(4), A))
    reply = send_blocks(acker, end, tracked_block(2, [A]))
    assert (reply.acked, reply.rejected, reply.pending) == (4, (2,), 0)
    assert track_block(acker, 2, [A] * 4).rejected == ()


def test_blocks_that_end_at_once_need_room(make_acker: MakeTarget) -> None:
    """Unlike a loose tree, because the script knows too late that the block ends."""
    acker = make_acker(high_water=2)
    track_block(acker, 1, [A] * 3)
    reply = send_blocks(acker, tracked_block(2, [0]), tracked_block(3, [0]))
    assert (reply.acked, reply.rejected, reply.pending) == (1, (3,), 3)
    assert [(o.block, o.verdict) for o in block_verdicts(acker)] == [(2, "ack"), (3, "nack")]


def test_rows_of_known_blocks_are_never_refused(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=5)
    track_block(acker, 7, [A] * 10)
    assert track_block(acker, 7, [A] * 10).rejected == (), "it is tracked already"
    assert fail_slot(acker, 7, 9, "bad", A).failed == 1
    assert block_row(acker, 7, dict.fromkeys(range(9), A)).acked == 9


def test_expiring_trees_do_not_count_as_pending(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=5)
    track_block(acker, 7, [A] * 10)
    tick(acker, 3)
    assert track_block(acker, 8, [A] * 10).rejected == ()
    assert total(acker)["overflow"] == 0


def test_rejected_block_may_be_tracked_again(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=2)
    track_block(acker, 1, [A] * 4)
    assert track_block(acker, 2, [A, B]).rejected == (2,)
    block_row(acker, 1, dict.fromkeys(range(4), A))
    assert track_block(acker, 2, [B, A]).rejected == (), "with other content, even"
    assert block_row(acker, 2, {0: B, 1: A}).acked == 2


def test_failures_in_the_track_of_a_rejected_block_get_no_verdict(make_acker: MakeTarget) -> None:
    """The block is nacked as a whole, each tree once."""
    acker = make_acker(high_water=1)
    reply = send_blocks(acker, tracked_block(7, [A, A, A], failed={1: "no"}, touch=True))
    assert (reply.failed, reply.rejected) == (0, (7,))
    assert [(o.reason, o.count) for o in block_verdicts(acker)] == [("overflow", 3)]
    assert total(acker)["failed"] == 0


def test_each_shard_has_a_share_of_high_water(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=5, shards=4)
    reply = track_block(acker, 4, [A] * 4)
    assert (reply.high_water, reply.rejected) == (2, ())
    assert track_block(acker, 8, [A]).rejected == (8,)


def test_full_backlog_refuses_a_batch_with_tracks_whole(make_acker: MakeTarget) -> None:
    acker = make_acker(outcomes_limit=3)
    track_block(acker, 1, [A])
    track_block(acker, 2, [0, 0, 0])
    before = dump(acker)
    with pytest.raises(BacklogError):
        send_blocks(acker, BlockRow(1, {0: A}), tracked_block(3, [A]))
    assert dump(acker) == before
    assert backlog(acker) == 3


def test_blocks_and_loose_trees_share_the_backlog_limit(
    make_acker: MakeTarget,
) -> None:
    acker = make_acker(outcomes_limit=2)
    track_block(acker, 1, [0, 0])
    with pytest.raises(BacklogError, match="2 verdicts waiting"):
        track(acker, 1, A)
    verdicts(acker)
    send(acker, columns([(1, 0, TRACK), (2, 0, TRACK)], "t", ["s", "s"]))
    with pytest.raises(BacklogError):
        track_block(acker, 1, [A])
    verdicts(acker)
    assert track_block(acker, 1, [A]).tracked == 1


def test_backlog_never_refuses_verdicts_of_known_blocks(make_acker: MakeTarget) -> None:
    acker = make_acker(outcomes_limit=1)
    for block in range(4):
        track_block(acker, block, [A, A])
    assert block_row(acker, 0, {0: A, 1: A}).acked == 2
    assert block_row(acker, 1, {0: A, 1: A}).acked == 2
    assert fail_slot(acker, 2, 0, "no").failed == 1
    assert track_block(acker, 2, [A, A]).tracked == 0, "a repeated TRACK tracks nothing new"
    tick(acker, 3)
    assert backlog(acker) == len(verdicts(acker)) == 2 + 2 + 1 + 1 + 2


def test_touch_verdicts_are_dropped_when_the_backlog_is_full(make_acker: MakeTarget) -> None:
    """The touch restarts the block's clock all the same."""
    acker = make_acker(outcomes_limit=3)
    track_block(acker, 7, [A, A])
    tick(acker)
    for _ in range(4):
        touch_block(acker, 7)
    assert backlog(acker) == 4, "an entry is written whole"
    assert [o.verdict for o in block_verdicts(acker)] == ["touch", "touch"]
    tick(acker, 2)
    assert block_row(acker, 7, {0: A, 1: A}).acked == 2


def test_backlog_of_one_task_does_not_stop_another(make_acker: MakeTarget) -> None:
    acker = make_acker(outcomes_limit=1)
    track_block(acker, 1, [0], "b1", "slow")
    track_block(acker, 2, [0], "b2", "fast")
    with pytest.raises(BacklogError):
        track_block(acker, 3, [0], "b3", "slow")
    verdicts(acker, "fast")
    assert track_block(acker, 4, [0], "b4", "fast").acked == 1


def test_counters_keep_their_invariant_at_every_step(make_acker: MakeTarget) -> None:
    """Check the invariant tracked = acked + failed + expired + overflow + conflict + pending."""
    acker, chance = make_acker(high_water=40, buckets=2), random.Random(11)
    heard = 0
    for _ in range(150):
        block = chance.randrange(6)
        what = chance.randrange(7)
        slots = [slot for slot in range(12) if chance.random() < 0.7]
        if what < 2:
            ids = [chance.choice([0, A]) for _ in range(3 * block + 1)]
            with contextlib.suppress(ChangedBatchError):
                track_block(acker, block, ids)
        elif what < 4:
            block_row(acker, block, dict.fromkeys(slots, A))
        elif what == 4:
            send_blocks(acker, BlockRow(block, {}, dict.fromkeys(slots[:2], "no")))
        elif what == 5:
            touch_block(acker, block)
        else:
            tick(acker)
        total(acker)
        heard += sum(v[0] != "touch" for v in verdicts(acker))
    tick(acker, 4)
    heard += sum(v[0] != "touch" for v in verdicts(acker))
    counters = total(acker)
    assert counters["pending"] == counters["expiring"] == 0
    assert counters["tracked"] == heard, "each tree has one verdict"
