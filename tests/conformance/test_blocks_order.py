"""Rows of blocks in an unexpected order: they are dropped, and never cause a false ack."""

import random

import pytest

from acker_redis.errors import ChangedBatchError
from acker_redis.protocol.ids import SLOTS
from proof.reference.blocks import BlockRow
from tests.conformance.conftest import MakeTarget
from tests.support import (
    Target,
    block_outcomes,
    block_row,
    block_verdicts,
    drain,
    drain_blocks,
    dump,
    fail_slot,
    rotate,
    row,
    send_blocks,
    tick,
    total,
    touch_block,
    track,
    track_block,
    tracked_block,
    verdicts,
)

A, B, C, D = (random.Random(f"order {i}").getrandbits(63) for i in range(4))


def test_row_before_track_is_dropped_and_its_slot_expires(acker: Target) -> None:
    """The acker drops the row of a processed message: an extra replay, but no lost one."""
    reply = block_row(acker, 7, {1: B})
    assert (reply.tracked, reply.acked, reply.pending) == (0, 0, 0)
    assert total(acker)["orphaned"] == 1
    assert track_block(acker, 7, [A, B, C]).acked == 0
    assert block_row(acker, 7, {0: A, 2: C}).acked == 0
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert (mixed.verdict, mixed.reason, mixed.nacked) == ("mixed", "expired", (1,))
    counters = total(acker)
    assert (counters["acked"], counters["expired"], counters["orphaned"]) == (2, 1, 1)


@pytest.mark.parametrize("lost", range(4))
def test_one_row_before_track_in_a_chain_never_acks(acker: Target, lost: int) -> None:
    rows = [A ^ B, B ^ C, C ^ D, D]
    block_row(acker, 7, {0: rows[lost]})
    track_block(acker, 7, [A])
    for which, delta in enumerate(rows):
        if which != lost:
            assert block_row(acker, 7, {0: delta}).acked == 0
    tick(acker, 3)
    assert [v[:2] for v in verdicts(acker)] == [("nack", "expired")]


def test_all_rows_before_track_never_ack(acker: Target) -> None:
    for delta in (A ^ B, B):
        block_row(acker, 7, {0: delta, 1: delta})
    assert track_block(acker, 7, [A, A]).acked == 0
    tick(acker, 3)
    assert [o.nacked for o in block_verdicts(acker)] == [(0, 1)]
    assert total(acker)["orphaned"] == 4


def test_rows_before_track_in_one_call_are_dropped(acker: Target) -> None:
    """Failures and touches too; nothing of them is stored."""
    reply = send_blocks(acker, BlockRow(7, {0: A, 5: B}, {3: "no"}, touch=True))
    assert (reply.failed, reply.pending) == (0, 0)
    counters = total(acker)
    assert (counters["orphaned"], counters["tracked"], counters["pending"]) == (3, 0, 0)
    assert verdicts(acker) == []


def test_fail_before_track_is_dropped(acker: Target) -> None:
    """Unlike the FAIL of a loose tree, which waits. The tree expires, or FAIL is sent again."""
    fail_slot(acker, 7, 1, "early")
    assert track_block(acker, 7, [A, B]).failed == 0
    assert verdicts(acker) == []
    assert fail_slot(acker, 7, 1, "again").failed == 1


def test_touch_of_an_unknown_tree_is_a_no_op(acker: Target) -> None:
    touch_block(acker, 7)
    counters = total(acker)
    assert (counters["pending"], counters["orphaned"]) == (0, 0)
    assert verdicts(acker) == []


@pytest.mark.parametrize("slot", [2, 3, SLOTS - 1])
def test_rows_for_missing_slots_are_dropped(acker: Target, slot: int) -> None:
    track_block(acker, 7, [A, B])
    assert block_row(acker, 7, {slot: A}).acked == 0
    assert fail_slot(acker, 7, slot, "no such").failed == 0
    assert total(acker)["orphaned"] == 2
    reply = block_row(acker, 7, {0: A, 1: B, slot: C})
    assert (reply.acked, reply.pending) == (2, 0)
    assert total(acker)["orphaned"] == 3
    assert [v[0] for v in verdicts(acker)] == ["ack", "ack"]


def test_dense_column_longer_than_the_block_is_truncated(acker: Target) -> None:
    track_block(acker, 7, [A, B])
    reply = block_row(acker, 7, {0: A, 1: B, 2: C, 3: 0})
    assert (reply.acked, reply.pending) == (2, 0)
    assert total(acker)["orphaned"] == 2


def test_rows_after_the_block_completed_are_orphans(acker: Target) -> None:
    track_block(acker, 7, [A])
    block_row(acker, 7, {0: A})
    assert block_row(acker, 7, {0: A}).acked == 0
    assert fail_slot(acker, 7, 0, "late").failed == 0
    touch_block(acker, 7)
    tick(acker, 3)
    assert [v[:2] for v in verdicts(acker)] == [("ack", "completed")]
    counters = total(acker)
    assert (counters["orphaned"], counters["pending"]) == (2, 0)


def test_rows_after_the_block_expired_are_orphans(acker: Target) -> None:
    track_block(acker, 7, [A, B])
    tick(acker, 3)
    assert block_row(acker, 7, {0: A, 1: B}).acked == 0
    assert [o.nacked for o in block_verdicts(acker)] == [(0, 1)]
    tick(acker, 3)
    assert verdicts(acker) == []
    assert total(acker)["orphaned"] == 2


def test_rows_after_the_block_was_rejected_are_orphans(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=1)
    assert track_block(acker, 7, [A, B, C]).rejected == (7,)
    assert block_row(acker, 7, {0: A, 1: B, 2: C}).acked == 0
    assert [o.reason for o in block_verdicts(acker)] == ["overflow"]
    counters = total(acker)
    assert (counters["orphaned"], counters["pending"]) == (3, 0)


def test_rows_for_an_expiring_block_are_orphans(acker: Target) -> None:
    """The drain has begun, and may have written the block's verdict already."""
    track_block(acker, 7, [A, B])
    block_row(acker, 7, {0: A})
    tick(acker, 2)
    assert rotate(acker)
    assert total(acker)["expiring"] == 1
    assert block_row(acker, 7, {1: B}).acked == 0
    assert fail_slot(acker, 7, 1, "late").failed == 0
    touch_block(acker, 7)
    drain(acker)
    (mixed,) = block_verdicts(acker)
    assert (mixed.verdict, mixed.nacked, mixed.failed) == ("mixed", (1,), ())
    counters = total(acker)
    assert (counters["orphaned"], counters["expiring"]) == (2, 0)


def test_track_of_an_expiring_block_is_a_conflict(acker: Target) -> None:
    """The key of the checksums is still used by the expiring block."""
    track_block(acker, 7, [A, B], "first")
    block_row(acker, 7, {0: A})
    tick(acker, 2)
    assert rotate(acker)
    reply = track_block(acker, 7, [C, D, A], "second")
    assert (reply.tracked, reply.acked, reply.pending, reply.rejected) == (3, 0, 0, (7,))
    counters = total(acker)
    assert (counters["tracked"], counters["conflict"], counters["expiring"]) == (5, 3, 1)
    block_row(acker, 7, {0: C, 1: D, 2: A})
    drain_blocks(acker)
    conflict, mixed = block_verdicts(acker)
    assert (conflict.verdict, conflict.reason, conflict.label) == ("nack", "conflict", "second")
    assert (conflict.slots, conflict.count) == (3, 3)
    assert (mixed.verdict, mixed.label, mixed.nacked) == ("mixed", "first", (1,))
    assert list(mixed.acked()) == [(0, 1)]
    counters = total(acker)
    assert (counters["acked"], counters["expired"], counters["orphaned"]) == (1, 1, 3)


def test_repeated_track_of_an_expiring_block_is_a_conflict(acker: Target) -> None:
    track_block(acker, 7, [A])
    tick(acker, 2)
    rotate(acker)
    assert track_block(acker, 7, [A]).rejected == (7,)
    drain_blocks(acker)
    assert sorted(o.reason for o in block_verdicts(acker)) == ["conflict", "expired"]


def test_number_of_an_ended_block_can_be_tracked_again(acker: Target) -> None:
    track_block(acker, 7, [A, B], "first")
    fail_slot(acker, 7, 1, "no")
    tick(acker, 3)
    assert track_block(acker, 7, [A, B, C], "second").tracked == 3
    verdicts(acker)
    reply = block_row(acker, 7, {0: A, 1: B, 2: C})
    assert reply.acked == 3
    (ack,) = block_verdicts(acker)
    assert (ack.label, ack.failed) == ("second", ()), "the failures of the first block are deleted"


def test_late_rows_of_an_expired_block_do_not_complete_its_successor(acker: Target) -> None:
    """A replay has new ids, so a late row leaves its slot open."""
    track_block(acker, 7, [A, B])
    tick(acker, 3)
    track_block(acker, 7, [C, D])
    block_row(acker, 7, {0: A, 1: B})
    assert block_row(acker, 7, {0: C, 1: D}).acked == 0
    tick(acker, 3)
    assert [o.nacked for o in block_verdicts(acker)] == [(0, 1), (0, 1)]


def test_loose_anchor_and_block_of_the_same_number_are_independent(acker: Target) -> None:
    """A loose anchor that equals a block's number is another tree."""
    track(acker, 7, A, "loose")
    track_block(acker, 7, [A], "block")
    assert row(acker, 7, A).acked == 1
    assert [v[3] for v in verdicts(acker)] == ["loose"]
    assert block_row(acker, 7, {0: A}).acked == 1
    assert [v[3] for v in verdicts(acker)] == ["block"]


def test_track_and_rows_of_other_blocks_in_one_call(acker: Target) -> None:
    track_block(acker, 1, [A, B])
    reply = send_blocks(
        acker,
        BlockRow(1, {0: A, 1: B}),
        tracked_block(2, [C]),
        BlockRow(3, {0: D}),
        tracked_block(4, [0, 0]),
        BlockRow(5, {}, {0: "no"}),
    )
    assert (reply.tracked, reply.acked, reply.failed, reply.pending) == (3, 4, 0, 1)
    assert [(o.block, o.verdict) for o in block_verdicts(acker)] == [(1, "ack"), (4, "ack")]
    assert total(acker)["orphaned"] == 2


# Repeated TRACK of a block.


def test_repeated_track_of_a_block_keeps_its_progress(acker: Target) -> None:
    track_block(acker, 7, [A, B, C], "b")
    block_row(acker, 7, {0: A, 1: B ^ D})
    fail_slot(acker, 7, 2, "no", C)
    before = verdicts(acker)
    reply = track_block(acker, 7, [A, B, C], "b")
    assert (reply.tracked, reply.acked, reply.failed, reply.rejected) == (0, 0, 0, ())
    assert (reply.pending, len(before)) == (3, 1)
    assert verdicts(acker) == []
    assert block_row(acker, 7, {1: D}).acked == 2
    counters = total(acker)
    assert (counters["tracked"], counters["conflict"]) == (3, 0)


def test_repeated_track_of_a_block_resets_the_clock_with_refresh_update(
    make_acker: MakeTarget,
) -> None:
    """With ``update``, but not with ``never``."""
    for refresh, told in (("never", ["expired"]), ("update", [])):
        acker = make_acker(refresh=refresh)
        track_block(acker, 7, [A])
        for _ in range(2):
            tick(acker)
            track_block(acker, 7, [A])
        tick(acker)
        assert [v[1] for v in verdicts(acker)] == told


def test_failures_in_a_repeated_track_of_a_block_count(acker: Target) -> None:
    """Its deltas are not added again. But if its failure were ignored, the tree would be acked."""
    track_block(acker, 7, [A, B])
    send_blocks(acker, tracked_block(7, [A, B], failed={1: "now"}, touch=True))
    send_blocks(acker, tracked_block(7, [A, B], failed={1: "again"}))
    block_row(acker, 7, {0: A, 1: B})
    assert [(o.verdict, o.rows, o.failed) for o in block_outcomes(acker)] == [
        ("nack", ((1, "now"),), ()),
        ("touch", (), ()),
        ("ack", (), (1,)),
    ]


@pytest.mark.parametrize(
    "other",
    [
        tracked_block(7, [A, B ^ 1]),
        tracked_block(7, [B, A]),
        tracked_block(7, [A]),
        tracked_block(7, [A, B, 0]),
        tracked_block(7, [A, B], "another"),
        tracked_block(7, [A, B], "b", "u"),
    ],
    ids=["delta", "order", "fewer slots", "more slots", "label", "task"],
)
def test_track_of_a_pending_block_with_other_content_is_refused_whole(
    acker: Target, other: BlockRow
) -> None:
    """Nothing changes, and nothing is nacked: the pending block continues."""
    track_block(acker, 7, [A, B])
    track_block(acker, 8, [C])
    block_row(acker, 7, {0: A})
    before = dump(acker)
    with pytest.raises(ChangedBatchError, match="came back with other content"):
        send_blocks(acker, BlockRow(8, {0: C}), other, tracked_block(9, [D]))
    assert dump(acker) == before
    assert block_row(acker, 7, {1: B}).acked == 2
    assert block_row(acker, 8, {0: C}).acked == 1
