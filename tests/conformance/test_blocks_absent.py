"""Blocks with absent slots, which hold no tree: these slots have no verdict, anywhere."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from acker_redis.errors import ChangedBatchError
from acker_redis.protocol.commands import ShardApplied
from acker_redis.protocol.ids import SLOTS, block_anchor
from acker_redis.sync.outcomes import BlockOutcome
from proof.reference.blocks import BlockRow
from tests.conformance.conftest import MakeTarget
from tests.support import (
    Target,
    backlog,
    block_row,
    block_verdicts,
    dump,
    fail_slot,
    partial_block,
    rotate,
    send_blocks,
    tick,
    total,
    touch_block,
    tracked_block,
    verdicts,
)

A, B, C, D = (random.Random(f"absent {i}").getrandbits(63) for i in range(4))


def begin(
    acker: Target, ids: Mapping[int, int], slots: int = 5, label: str = "b7", block: int = 7
) -> ShardApplied:
    """Track a block that holds trees in some of its slots."""
    return send_blocks(acker, partial_block(block, slots, ids, label))


def told(outcome: BlockOutcome) -> dict[int, str]:
    """Return the reason of each single verdict, by slot; check that the numbers agree."""
    singles = list(outcome.expand())
    assert len(singles) == outcome.count
    acked = [slot for first, end in outcome.acked() for slot in range(first, end)]
    assert acked == [o.anchor & 0xFFF for o in singles if o.verdict == "ack"]
    return {o.anchor - block_anchor(outcome.block, 0): o.reason for o in singles}


# Verdicts.


def test_completed_block_acks_the_slots_that_hold_a_tree(acker: Target) -> None:
    reply = begin(acker, {1: A, 4: B})
    assert (reply.tracked, reply.pending) == (2, 5)
    assert block_row(acker, 7, {1: A}).acked == 0
    reply = block_row(acker, 7, {4: B})
    assert (reply.acked, reply.pending) == (2, 0)
    (ack,) = block_verdicts(acker)
    assert (ack.verdict, ack.slots, ack.absent, ack.failed) == ("ack", 5, (0, 2, 3), ())
    assert told(ack) == {1: "completed", 4: "completed"}
    counters = total(acker)
    assert (counters["tracked"], counters["acked"], counters["orphaned"]) == (2, 2, 0)


def test_expired_block_has_no_verdict_for_an_absent_slot(acker: Target) -> None:
    begin(acker, {0: A, 2: B, 3: C, 7: D}, slots=9)
    block_row(acker, 7, {2: B})
    fail_slot(acker, 7, 3, "no")
    block_verdicts(acker)
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert (mixed.slots, mixed.absent) == (9, (1, 4, 5, 6, 8))
    assert (mixed.nacked, mixed.failed, mixed.residuals) == ((0, 7), (3,), (A, D))
    assert told(mixed) == {0: "expired", 2: "completed", 7: "expired"}
    counters = total(acker)
    assert [counters[n] for n in ("tracked", "acked", "expired", "failed")] == [4, 1, 2, 1]
    assert counters["pending"] == counters["expiring"] == 0


def test_rejected_block_has_no_verdict_for_an_absent_slot(make_acker: MakeTarget) -> None:
    """Admission counts the slots, and the counters count the trees."""
    acker = make_acker(high_water=3)
    assert begin(acker, {0: A, 6: A}, slots=7).rejected == (7,)
    assert begin(acker, {0: A, 5: A}, slots=6, block=8).rejected == ()
    (overflow,) = block_verdicts(acker)
    assert (overflow.reason, overflow.slots, overflow.count) == ("overflow", 7, 2)
    assert told(overflow) == {0: "overflow", 6: "overflow"}
    counters = total(acker)
    assert (counters["tracked"], counters["overflow"], counters["pending"]) == (4, 2, 6)


def test_conflict_has_no_verdict_for_an_absent_slot(acker: Target) -> None:
    """The keys of the block that expires stay as they are."""
    begin(acker, {0: A, 3: B}, label="first")
    for _ in range(3):
        rotate(acker)
    assert begin(acker, {1: A, 2: 0, 4: C}, label="second").rejected == (7,)
    assert fail_slot(acker, 7, 0, "late").failed == 0
    tick(acker)
    conflict, mixed = block_verdicts(acker)
    assert (conflict.reason, conflict.absent) == ("conflict", (0, 3))
    assert told(conflict) == dict.fromkeys((1, 2, 4), "conflict")
    assert (mixed.label, told(mixed)) == ("first", {0: "expired", 3: "expired"})
    counters = total(acker)
    assert [counters[n] for n in ("tracked", "conflict", "expired")] == [5, 3, 2]


def test_touch_is_of_the_slots_that_hold_a_tree(acker: Target) -> None:
    begin(acker, {1: A, 4: B})
    touch_block(acker, 7)
    (touch,) = block_verdicts(acker)
    assert (touch.verdict, touch.slots, touch.count, touch.absent) == ("touch", 5, 2, (0, 2, 3))
    assert told(touch) == {1: "reset", 4: "reset"}


def test_failed_and_absent_slots_have_no_ack(acker: Target) -> None:
    begin(acker, {0: A, 1: B, 3: C})
    reply = send_blocks(acker, BlockRow(7, {0: A, 1: B}, {0: "nor this", 1: "no"}))
    assert (reply.failed, reply.acked) == (2, 0)
    assert block_row(acker, 7, {3: C}).acked == 1
    nack, ack = block_verdicts(acker)
    assert (nack.rows, nack.absent) == (((0, "nor this"), (1, "no")), ())
    assert (ack.failed, ack.absent, told(ack)) == ((0, 1), (2, 4), {3: "completed"})


@pytest.mark.parametrize("expires", [False, True])
def test_block_whose_trees_have_all_failed_ends_without_an_entry(
    acker: Target, expires: bool
) -> None:
    begin(acker, {0: A, 3: B})
    deltas = {} if expires else {0: A, 3: B}
    assert send_blocks(acker, BlockRow(7, deltas, {0: "x", 3: "y"})).failed == 2
    assert total(acker)["pending"] == (5 if expires else 0)
    tick(acker, 3)
    (nack,) = block_verdicts(acker)
    assert nack.rows == ((0, "x"), (3, "y"))
    counters = total(acker)
    assert [counters[n] for n in ("failed", "acked", "expired", "pending")] == [2, 0, 0, 0]


def test_tree_without_messages_is_acked_and_an_absent_slot_is_not(acker: Target) -> None:
    """Both have the delta 0. Only the bitmap of the present slots tells them apart."""
    reply = begin(acker, {1: 0, 3: 0})
    assert (reply.tracked, reply.acked, reply.pending) == (2, 2, 0)
    (ack,) = block_verdicts(acker)
    assert told(ack) == {1: "completed", 3: "completed"}
    begin(acker, {0: 0, 2: A})
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert told(mixed) == {0: "completed", 2: "expired"}


def test_backlog_counts_the_verdicts_of_trees(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=20)
    begin(acker, {0: A, 3: B, 8: C}, slots=30)
    touch_block(acker, 7)
    assert backlog(acker) == 3
    fail_slot(acker, 7, 3, "no", B)
    assert backlog(acker) == 4
    begin(acker, {2: A, 5: A}, slots=11, block=8)
    assert backlog(acker) == 6, "rejected"
    block_row(acker, 7, {0: A, 8: C})
    assert backlog(acker) == 8
    begin(acker, {0: 0, 9: A}, slots=10, block=9)
    tick(acker, 3)
    assert backlog(acker) == 10
    assert len(verdicts(acker)) == 10
    assert backlog(acker) == 0


@pytest.mark.parametrize("reason", ["conflict", "overflow"])
def test_failures_of_a_rejected_block_are_not_looked_at(
    make_acker: MakeTarget, reason: str
) -> None:
    """Its trees are nacked already, and none of its rows is orphaned."""
    acker = make_acker(high_water=3)
    if reason == "conflict":
        begin(acker, {0: A})
        for _ in range(3):
            rotate(acker)
    slots = 5 if reason == "conflict" else 7
    failed = {0: "a tree", 1: "absent", 9: "beyond"}
    row = partial_block(7, slots, {0: A, 3: B}, failed=failed)
    reply = send_blocks(acker, row)
    assert (reply.failed, reply.rejected) == (0, (7,))
    (nack,) = block_verdicts(acker)
    assert told(nack) == {0: reason, 3: reason}
    assert total(acker)["orphaned"] == 0


# The bitmap of the present slots.


@pytest.mark.parametrize("slots", [1, 7, 8, 9, 16, 17, 100, SLOTS])
def test_any_slots_may_be_absent(make_acker: MakeTarget, slots: int) -> None:
    """The first, the last, all but one, every second one, and those at the edges of bytes."""
    acker = make_acker()
    chance = random.Random(slots)
    every = range(slots)
    some = [{0}, {slots - 1}, set(every[::2]), set(every[1:]), set(every[:-1]), set(every)]
    some += [set(every[7::8]), set(every[8::8]), set(chance.sample(every, (slots + 1) // 2))]
    for block, present in enumerate(filter(None, some)):
        ids = {slot: chance.getrandbits(63) | 1 for slot in present}
        assert begin(acker, ids, slots, block=block).tracked == len(present)
        last = max(present)
        if len(present) > 1:
            rest = {slot: delta for slot, delta in ids.items() if slot != last}
            assert block_row(acker, block, rest).acked == 0
        assert block_row(acker, block, {last: ids[last]}).acked == len(present)
        (ack,) = block_verdicts(acker)
        assert ack.absent == tuple(sorted(set(every) - present))
        assert told(ack) == dict.fromkeys(present, "completed")


def test_blocks_of_one_call_have_their_own_absent_slots(acker: Target) -> None:
    rows = [
        partial_block(n, 10, {slot: A for slot in range(10) if slot % 4 != n}) for n in range(4)
    ]
    send_blocks(acker, *rows, tracked_block(4, [A] * 10))
    done = [BlockRow(n, {slot: A for slot in range(10) if slot % 4 != n}) for n in range(5)]
    assert send_blocks(acker, *done).acked == 7 + 7 + 8 + 8 + 10
    absent = {o.block: o.absent for o in block_verdicts(acker)}
    assert absent == {0: (0, 4, 8), 1: (1, 5, 9), 2: (2, 6), 3: (3, 7), 4: ()}


@pytest.mark.parametrize("refresh", ["never", "update"])
def test_absent_slots_survive_moves_to_newer_buckets(make_acker: MakeTarget, refresh: str) -> None:
    acker = make_acker(refresh=refresh)
    begin(acker, {0: A, 3: B})
    for delta in (C, C, D, D):
        tick(acker, 2)
        touch_block(acker, 7)
        block_row(acker, 7, {3: delta})
    assert total(acker)["pending"] == 5
    block_verdicts(acker)
    assert block_row(acker, 7, {0: A, 3: B}).acked == 2
    (ack,) = block_verdicts(acker)
    assert told(ack) == {0: "completed", 3: "completed"}


@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("before", [{0: A, 1: A, 2: A, 3: A, 4: A}, {0: A, 2: B}, {4: A}])
@pytest.mark.parametrize("after", [{0: A, 1: A, 2: A, 3: A, 4: A}, {1: A}, {0: B, 4: 0}])
def test_block_of_a_number_that_was_used_has_its_own_absent_slots(
    acker: Target, before: dict[int, int], after: dict[int, int], expires: bool
) -> None:
    begin(acker, before)
    fail_slot(acker, 7, min(before), "no")
    if expires:
        tick(acker, 3)
    else:
        block_row(acker, 7, before)
    block_verdicts(acker)
    assert begin(acker, after).tracked == len(after)
    assert block_row(acker, 7, after).acked == len(after)
    (ack,) = block_verdicts(acker)
    assert told(ack) == dict.fromkeys(after, "completed")


# Tracked again.


def test_repeated_track_with_the_same_absent_slots_is_a_no_op(acker: Target) -> None:
    begin(acker, {0: A, 3: B})
    block_row(acker, 7, {0: A})
    reply = begin(acker, {0: A, 3: B})
    assert (reply.tracked, reply.acked, reply.rejected, reply.pending) == (0, 0, (), 5)
    assert block_row(acker, 7, {3: B}).acked == 2
    (ack,) = block_verdicts(acker)
    assert told(ack) == {0: "completed", 3: "completed"}


@pytest.mark.parametrize(
    "other",
    [
        {0: A, 3: B, 4: 0},
        {0: A, 3: B, 1: 0, 2: 0, 4: 0},
        {0: A, 3: B, 2: 0},
        {0: A, 3: B, 1: C},
        {0: A},
        {3: B},
        {1: A, 3: B},
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_track_with_other_absent_slots_is_a_conflict(
    acker: Target, other: dict[int, int], reverse: bool
) -> None:
    """Also where only the bitmap differs, because an absent slot and an empty tree have delta 0."""
    first, second = ({0: A, 3: B}, other)[:: -1 if reverse else 1]
    begin(acker, first)
    before = dump(acker)
    with pytest.raises(ChangedBatchError, match="other content"):
        begin(acker, second)
    assert dump(acker) == before
    assert block_row(acker, 7, first).acked == len(first)


def test_block_with_a_slot_more_that_is_absent_is_other_content(acker: Target) -> None:
    begin(acker, {0: A, 3: B})
    with pytest.raises(ChangedBatchError, match="other content"):
        begin(acker, {0: A, 3: B}, slots=6)


def test_failures_and_touch_of_a_repeated_track_count(acker: Target) -> None:
    row = partial_block(7, 5, {0: A, 3: B})
    send_blocks(acker, row)
    reply = send_blocks(acker, replace(row, failed={0: "no", 1: "absent"}, touch=True))
    assert (reply.tracked, reply.failed) == (0, 1)
    nack, touch = block_verdicts(acker)
    assert (nack.rows, told(touch)) == (((0, "no"),), {0: "reset", 3: "reset"})
    assert total(acker)["orphaned"] == 1


# Rows for an absent slot.


def test_failure_of_an_absent_slot_is_orphaned(acker: Target) -> None:
    begin(acker, {0: A, 3: B})
    reply = send_blocks(acker, BlockRow(7, {}, {1: "absent", 3: "no", 4: "absent", 5: "beyond"}))
    assert reply.failed == 1
    assert fail_slot(acker, 7, 1, "again").failed == 0
    assert block_row(acker, 7, {0: A, 3: B}).acked == 1
    nack, ack = block_verdicts(acker)
    assert nack.rows == ((3, "no"),)
    assert (ack.failed, told(ack)) == ((3,), {0: "completed"})
    counters = total(acker)
    assert [counters[n] for n in ("tracked", "acked", "failed", "orphaned")] == [2, 1, 1, 4]


def test_failure_of_an_absent_slot_in_the_call_of_track_is_orphaned(acker: Target) -> None:
    row = partial_block(7, 5, {0: A, 3: B}, failed={0: "stillborn", 2: "absent", 9: "beyond"})
    reply = send_blocks(acker, row)
    assert (reply.tracked, reply.failed) == (2, 1)
    assert [o.rows for o in block_verdicts(acker)] == [((0, "stillborn"),)]
    assert total(acker)["orphaned"] == 2


@pytest.mark.parametrize("dense", [False, True])
def test_delta_of_an_absent_slot_makes_the_block_expire(acker: Target, dense: bool) -> None:
    """The trees are complete, and are acked only when the block expires. No ack is of slot 1."""
    begin(acker, {0: A, 2: B}, slots=3)
    deltas = {0: A, 1: C, 2: B} if dense else {1: C, 2: B}
    assert block_row(acker, 7, deltas).acked == 0
    block_row(acker, 7, {} if dense else {0: A})
    assert block_verdicts(acker) == []
    assert total(acker)["pending"] == 3
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert (mixed.verdict, mixed.nacked, mixed.absent) == ("mixed", (), (1,))
    assert told(mixed) == {0: "completed", 2: "completed"}
    counters = total(acker)
    assert [counters[n] for n in ("tracked", "acked", "expired", "orphaned")] == [2, 2, 0, 0]


def test_deltas_of_an_absent_slot_cancel_like_any_others(acker: Target) -> None:
    begin(acker, {0: A, 3: B})
    for deltas in ({1: C}, {0: A, 1: D}, {1: C}):
        assert block_row(acker, 7, deltas).acked == 0
    assert block_row(acker, 7, {1: D, 3: B}).acked == 2
    (ack,) = block_verdicts(acker)
    assert told(ack) == {0: "completed", 3: "completed"}


def test_failure_with_a_delta_of_an_absent_slot(acker: Target) -> None:
    """A message of another attempt, which has that slot, fails: no verdict is written for it."""
    begin(acker, {0: A, 3: B})
    assert fail_slot(acker, 7, 1, "of another attempt", C).failed == 0
    assert block_row(acker, 7, {0: A, 3: B}).acked == 0
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert (mixed.failed, told(mixed)) == ((), {0: "completed", 3: "completed"})
    assert total(acker)["orphaned"] == 1


def test_zero_deltas_of_absent_slots_in_a_dense_column_change_nothing(acker: Target) -> None:
    begin(acker, {0: A, 3: B})
    assert block_row(acker, 7, {0: A, 1: 0, 2: 0, 3: B, 4: 0}).acked == 2
    assert total(acker)["orphaned"] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ids: {**ids, 1: C},
        lambda ids: {**ids, 3: B ^ 1},
        lambda ids: {slot + 1: delta for slot, delta in ids.items()},
        lambda ids: {0: A ^ B, 3: A ^ B},
        lambda ids: {1: A, 4: B},
    ],
)
def test_one_wrong_row_is_never_an_ack_of_all(
    acker: Target, wrong: Callable[[dict[int, int]], dict[int, int]]
) -> None:
    begin(acker, {0: A, 3: B})
    assert block_row(acker, 7, wrong({0: A, 3: B})).acked == 0
    assert block_verdicts(acker) == []
    assert total(acker)["pending"] == 5
