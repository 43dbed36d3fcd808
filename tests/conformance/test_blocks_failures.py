"""Failed trees of a block: nacked at once and only once, while their block continues."""

import random

import pytest

from acker_redis.protocol.ids import SLOTS, block_anchor
from proof.reference.blocks import BlockRow
from tests.support import (
    Target,
    block_row,
    block_verdicts,
    fail_slot,
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

A, B, C, D = (random.Random(f"failure {i}").getrandbits(63) for i in range(4))


def test_fail_nacks_at_once_and_once(acker: Target) -> None:
    track_block(acker, 7, [A, B], "b7")
    assert fail_slot(acker, 7, 1, "bad row").failed == 1
    assert verdicts(acker) == [("nack", "failed", block_anchor(7, 1), "b7", "bad row")]
    for why in ("again", "", "bad row"):
        assert fail_slot(acker, 7, 1, why).failed == 0
    assert verdicts(acker) == []
    assert total(acker)["failed"] == 1


def test_many_fail_in_one_call(acker: Target) -> None:
    """One entry, ordered by slot, without the slots that had failed before."""
    track_block(acker, 7, [A] * 300)
    fail_slot(acker, 7, 200, "first")
    whys = {slot: f"why {slot}" for slot in range(0, 300, 2)}
    assert send_blocks(acker, BlockRow(7, {}, whys)).failed == 149
    first, second = block_verdicts(acker)
    assert first.rows == ((200, "first"),)
    del whys[200]
    assert second.rows == tuple(whys.items())
    assert (second.verdict, second.reason, second.slots, second.count) == ("nack", "failed", 0, 149)


def test_failed_slot_gets_no_second_verdict_when_its_block_completes(acker: Target) -> None:
    track_block(acker, 7, [A, B, C])
    fail_slot(acker, 7, 1, "no", B)
    verdicts(acker)
    assert block_row(acker, 7, {0: A, 2: C}).acked == 2
    (ack,) = block_verdicts(acker)
    assert (ack.verdict, ack.failed, ack.count) == ("ack", (1,), 2)
    assert [o.anchor for o in ack.expand()] == [block_anchor(7, 0), block_anchor(7, 2)]
    assert list(ack.acked()) == [(0, 1), (2, 3)]


def test_failed_slot_gets_no_second_verdict_when_its_block_expires(acker: Target) -> None:
    track_block(acker, 7, [A, B, C, D])
    block_row(acker, 7, {0: A})
    fail_slot(acker, 7, 1, "open")
    fail_slot(acker, 7, 2, "done", C)
    verdicts(acker)
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert (mixed.failed, mixed.nacked, mixed.count) == ((1, 2), (3,), 2)
    assert [(o.verdict, o.anchor) for o in mixed.expand()] == [
        ("ack", block_anchor(7, 0)),
        ("nack", block_anchor(7, 3)),
    ]


def test_open_failed_slot_keeps_its_block_pending(acker: Target) -> None:
    """The others are acked when the block expires. So a FAIL should carry its delta."""
    track_block(acker, 7, [A, B])
    fail_slot(acker, 7, 1, "without its delta")
    assert block_row(acker, 7, {0: A}).acked == 0
    verdicts(acker)
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert (mixed.verdict, mixed.failed, mixed.nacked) == ("mixed", (1,), ())
    assert list(mixed.acked()) == [(0, 1)]
    assert total(acker)["acked"] == 1


def test_rows_of_a_failed_slot_still_count(acker: Target) -> None:
    """The tree is nacked, but its other messages are in flight, and complete its checksum."""
    track_block(acker, 7, [A, D])
    block_row(acker, 7, {0: A ^ B ^ C})
    assert fail_slot(acker, 7, 0, "no", B).failed == 1
    block_row(acker, 7, {1: D})
    assert block_row(acker, 7, {0: C}).acked == 1


def test_block_with_all_slots_failed_ends_without_another_entry(acker: Target) -> None:
    track_block(acker, 7, [A, B])
    fail_slot(acker, 7, 0, "x", A)
    reply = fail_slot(acker, 7, 1, "y", B)
    assert (reply.failed, reply.acked, reply.pending) == (1, 0, 0)
    found = block_verdicts(acker)
    assert [o.rows for o in found] == [((0, "x"),), ((1, "y"),)], "and no empty entry after them"
    assert total(acker)["acked"] == 0


def test_block_with_all_slots_failed_expires_without_an_entry(acker: Target) -> None:
    track_block(acker, 7, [A, B])
    send_blocks(acker, BlockRow(7, {}, {0: "x", 1: "y"}))
    assert [v[4] for v in verdicts(acker)] == ["x", "y"]
    assert total(acker)["pending"] == 2
    tick(acker, 3)
    assert block_verdicts(acker) == [], "not even an empty entry"
    counters = total(acker)
    assert (counters["failed"], counters["expired"], counters["expiring"]) == (2, 0, 0)


def test_fail_with_the_delta_that_completes_is_a_nack(acker: Target) -> None:
    """Failed has priority over zero. The nack comes before the ack of the others."""
    track_block(acker, 7, [A, B])
    block_row(acker, 7, {0: A})
    reply = fail_slot(acker, 7, 1, "done, but wrong", B)
    assert (reply.failed, reply.acked, reply.pending) == (1, 1, 0)
    nack, ack = block_verdicts(acker)
    assert (nack.rows, ack.verdict, ack.failed) == (((1, "done, but wrong"),), "ack", (1,))


def test_fail_of_the_only_slot_with_its_delta(acker: Target) -> None:
    track_block(acker, 7, [A])
    assert fail_slot(acker, 7, 0, "no", A).failed == 1
    assert [v[:2] for v in verdicts(acker)] == [("nack", "failed")]


def test_fail_before_the_completing_row_has_priority_over_zero(acker: Target) -> None:
    track_block(acker, 7, [A])
    fail_slot(acker, 7, 0, "no")
    assert block_row(acker, 7, {0: A}).acked == 0
    assert [v[:2] for v in verdicts(acker)] == [("nack", "failed")]
    assert total(acker)["pending"] == 0


def test_fail_of_a_completed_slot_in_a_pending_block(acker: Target) -> None:
    """The tree was complete, but had no verdict yet."""
    track_block(acker, 7, [A, 0, B])
    block_row(acker, 7, {0: A})
    assert send_blocks(acker, BlockRow(7, {}, {0: "late", 1: "a hole"})).failed == 2
    assert block_row(acker, 7, {2: B}).acked == 1


def test_fail_in_the_call_of_track(acker: Target) -> None:
    part = tracked_block(7, [A, B, 0], failed={0: "stillborn", 2: "empty"})
    reply = send_blocks(acker, part)
    assert (reply.tracked, reply.failed, reply.acked, reply.pending) == (3, 2, 0, 3)
    assert [(v[2] & 0xFFF, v[4]) for v in verdicts(acker)] == [(0, "stillborn"), (2, "empty")]
    assert block_row(acker, 7, {0: A, 1: B}).acked == 1


def test_track_with_only_failures_and_holes_ends_at_once(acker: Target) -> None:
    reply = send_blocks(acker, tracked_block(7, [0, 0], failed={1: "no"}))
    assert (reply.tracked, reply.failed, reply.acked, reply.pending) == (2, 1, 1, 0)
    nack, ack = block_verdicts(acker)
    assert (nack.rows, ack.failed, ack.count) == (((1, "no"),), (1,), 1)
    reply = send_blocks(acker, tracked_block(7, [0], failed={0: "no"}))
    assert (reply.failed, reply.acked, reply.pending) == (1, 0, 0)
    assert [v[:2] for v in verdicts(acker)] == [("nack", "failed")]


def test_fail_of_a_missing_slot_in_the_call_of_track_is_dropped(acker: Target) -> None:
    send_blocks(acker, tracked_block(7, [A], failed={1: "no such"}))
    counters = total(acker)
    assert (counters["failed"], counters["orphaned"]) == (0, 1)


@pytest.mark.parametrize("slot", [0, 9, 10, SLOTS - 1])
def test_failed_slots_are_listed_in_numeric_order(acker: Target, slot: int) -> None:
    """In numeric order: 9 before 10. The block has the maximum size."""
    track_block(acker, 7, [0] * (SLOTS - 1) + [A])
    failed = sorted({100, 2, 10, 9, slot})
    for which in reversed(failed):
        fail_slot(acker, 7, which, "no")
    verdicts(acker)
    done = SLOTS - len(failed)
    assert block_row(acker, 7, {SLOTS - 1: A}).acked == done
    (ack,) = block_verdicts(acker)
    assert (ack.failed, ack.count) == (tuple(failed), done)
    assert sum(end - start for start, end in ack.acked()) == done


def test_a_failed_slot_is_replayed_in_another_block(acker: Target) -> None:
    track_block(acker, 7, [A, B], "first try")
    fail_slot(acker, 7, 1, "no")
    track_block(acker, 8, [C], "second try")
    assert block_row(acker, 8, {0: C}).acked == 1
    assert [(v[0], v[3]) for v in verdicts(acker)] == [("nack", "first try"), ("ack", "second try")]
    # Late rows of the first attempt complete the first attempt.
    assert block_row(acker, 7, {0: A, 1: B}).acked == 1


def test_a_failed_slot_is_replayed_under_a_loose_anchor(acker: Target) -> None:
    track_block(acker, 7, [A, B], "block")
    fail_slot(acker, 7, 1, "no")
    verdicts(acker)
    track(acker, 99, C, "block/1")
    assert row(acker, 99, C).acked == 1
    assert verdicts(acker) == [("ack", "completed", 99, "block/1", "")]
    assert block_row(acker, 7, {0: A}).acked == 0
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert (mixed.failed, mixed.nacked, list(mixed.acked())) == ((1,), (), [(0, 1)])
    counters = total(acker)
    assert (counters["tracked"], counters["acked"], counters["failed"]) == (3, 2, 1)


def test_failures_survive_a_touch_of_their_block(acker: Target) -> None:
    track_block(acker, 7, [A, B])
    fail_slot(acker, 7, 0, "no")
    for _ in range(4):
        tick(acker)
        touch_block(acker, 7)
        assert total(acker)["pending"] == 2
    verdicts(acker)
    assert fail_slot(acker, 7, 0, "again").failed == 0
    assert block_row(acker, 7, {0: A, 1: B}).acked == 1
    (ack,) = block_verdicts(acker)
    assert ack.failed == (0,)
