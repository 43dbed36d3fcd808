"""Rows of blocks that come in another order than one would think: dropped, never a false ack."""

import random

import pytest

from acker_redis.errors import ChangedBatchError
from acker_redis.protocol.ids import SLOTS
from acker_redis.reference.blocks import BlockRow
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
    """Its message was done, the acker forgot it: a replay too many, never one too few."""
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
    """Also failures and touches; and nothing is kept of them."""
    reply = send_blocks(acker, BlockRow(7, {0: A, 5: B}, {3: "no"}, touch=True))
    assert (reply.failed, reply.pending) == (0, 0)
    counters = total(acker)
    assert (counters["orphaned"], counters["tracked"], counters["pending"]) == (3, 0, 0)
    assert verdicts(acker) == []


def test_fail_before_track_is_dropped(acker: Target) -> None:
    """Unlike a loose tree's, which waits: the tree expires, or its failure comes again."""
    fail_slot(acker, 7, 1, "early")
    assert track_block(acker, 7, [A, B]).failed == 0
    assert verdicts(acker) == []
    assert fail_slot(acker, 7, 1, "again").failed == 1


def test_touch_of_nothing_changes_nothing(acker: Target) -> None:
    touch_block(acker, 7)
    counters = total(acker)
    assert (counters["pending"], counters["orphaned"]) == (0, 0)
    assert verdicts(acker) == []


@pytest.mark.parametrize("slot", [2, 3, SLOTS - 1])
def test_rows_for_slots_that_the_block_has_not_are_dropped(acker: Target, slot: int) -> None:
    track_block(acker, 7, [A, B])
    assert block_row(acker, 7, {slot: A}).acked == 0
    assert fail_slot(acker, 7, slot, "no such").failed == 0
    assert total(acker)["orphaned"] == 2
    reply = block_row(acker, 7, {0: A, 1: B, slot: C})
    assert (reply.acked, reply.pending) == (2, 0)
    assert total(acker)["orphaned"] == 3
    assert [v[0] for v in verdicts(acker)] == ["ack", "ack"]


def test_a_dense_column_longer_than_the_block_is_cut(acker: Target) -> None:
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


def test_rows_that_come_while_the_block_expires_are_orphans(acker: Target) -> None:
    """The drain has begun: it may have told of the block already."""
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


def test_a_track_that_comes_while_the_block_expires_is_a_conflict(acker: Target) -> None:
    """Its name still belongs to the checksums of its last life."""
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


def test_the_same_track_while_the_block_expires_is_a_conflict_too(acker: Target) -> None:
    track_block(acker, 7, [A])
    tick(acker, 2)
    rotate(acker)
    assert track_block(acker, 7, [A]).rejected == (7,)
    drain_blocks(acker)
    assert sorted(o.reason for o in block_verdicts(acker)) == ["conflict", "expired"]


def test_the_number_of_a_block_is_free_once_it_has_ended(acker: Target) -> None:
    track_block(acker, 7, [A, B], "first")
    fail_slot(acker, 7, 1, "no")
    tick(acker, 3)
    assert track_block(acker, 7, [A, B, C], "second").tracked == 3
    verdicts(acker)
    reply = block_row(acker, 7, {0: A, 1: B, 2: C})
    assert reply.acked == 3
    (ack,) = block_verdicts(acker)
    assert (ack.label, ack.failed) == ("second", ()), "the failures of its first life are gone"


def test_late_rows_of_the_first_life_do_not_complete_the_second(acker: Target) -> None:
    """Ids of a replay are new ones, so what is late leaves its slot open."""
    track_block(acker, 7, [A, B])
    tick(acker, 3)
    track_block(acker, 7, [C, D])
    block_row(acker, 7, {0: A, 1: B})
    assert block_row(acker, 7, {0: C, 1: D}).acked == 0
    tick(acker, 3)
    assert [o.nacked for o in block_verdicts(acker)] == [(0, 1), (0, 1)]


def test_loose_trees_and_blocks_do_not_meet(acker: Target) -> None:
    """An anchor that reads like a block's number is another tree's."""
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


# The same TRACK again.


def test_the_same_track_again_is_ignored_and_progress_is_kept(acker: Target) -> None:
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


def test_the_same_track_again_resets_the_clock_as_every_row_does(make_acker: MakeTarget) -> None:
    """With ``update``, and not with ``never``."""
    for refresh, told in (("never", ["expired"]), ("update", [])):
        acker = make_acker(refresh=refresh)
        track_block(acker, 7, [A])
        for _ in range(2):
            tick(acker)
            track_block(acker, 7, [A])
        tick(acker)
        assert [v[1] for v in verdicts(acker)] == told


def test_failures_that_come_with_the_same_track_again_count(acker: Target) -> None:
    """Its deltas are not new; but a failure that was forgotten would be acked."""
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
def test_another_track_of_a_pending_block_is_refused_whole(acker: Target, other: BlockRow) -> None:
    """Nothing is changed, nobody is nacked: the block that was there goes on."""
    track_block(acker, 7, [A, B])
    track_block(acker, 8, [C])
    block_row(acker, 7, {0: A})
    before = dump(acker)
    with pytest.raises(ChangedBatchError, match="came back with other content"):
        send_blocks(acker, BlockRow(8, {0: C}), other, tracked_block(9, [D]))
    assert dump(acker) == before
    assert block_row(acker, 7, {1: B}).acked == 2
    assert block_row(acker, 8, {0: C}).acked == 1
