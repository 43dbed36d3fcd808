"""Rotation and expiry of blocks as a whole: trees at zero are acked, the others nacked."""

import random

import pytest

from acker_redis.protocol.ids import SLOTS, block_anchor
from proof.reference.blocks import BlockRow
from tests.conformance.conftest import MakeTarget
from tests.support import (
    Target,
    advance,
    block_outcomes,
    block_row,
    block_verdicts,
    drain,
    drain_blocks,
    fail_slot,
    rotate,
    send_blocks,
    tick,
    total,
    touch_block,
    track,
    track_block,
    tracked_block,
    verdicts,
)

A, B, C = (random.Random(f"expiry {i}").getrandbits(63) for i in range(3))
MINUTE, HOUR = 60_000, 3_600_000


@pytest.mark.parametrize("buckets", [2, 3, 16])
def test_expires_after_n_ticks_not_before(make_acker: MakeTarget, buckets: int) -> None:
    acker = make_acker(buckets=buckets)
    track_block(acker, 7, [A], "b7")
    for _ in range(buckets - 1):
        tick(acker)
        assert verdicts(acker) == []
    tick(acker)
    assert verdicts(acker) == [("nack", "expired", block_anchor(7, 0), "b7", "")]
    assert total(acker)["pending"] == total(acker)["expiring"] == 0


def test_mixed_lists_nacked_and_failed_slots(acker: Target) -> None:
    track_block(acker, 7, [A, A, 0, A, A, A, 0, A], "b7")
    block_row(acker, 7, {0: A, 1: A, 4: A ^ B})
    send_blocks(acker, BlockRow(7, {5: A}, {5: "no", 7: "no"}))
    verdicts(acker)
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert (mixed.verdict, mixed.reason, mixed.block, mixed.label) == ("mixed", "expired", 7, "b7")
    assert (mixed.slots, mixed.nacked, mixed.failed, mixed.count) == (8, (3, 4), (5, 7), 6)
    assert list(mixed.acked()) == [(0, 3), (6, 7)]
    found = {o.anchor & 0xFFF: (o.verdict, o.reason) for o in mixed.expand()}
    ack, nack = ("ack", "completed"), ("nack", "expired")
    assert found == {0: ack, 1: ack, 2: ack, 3: nack, 4: nack, 6: ack}
    counters = total(acker)
    assert [counters[n] for n in ("tracked", "acked", "expired", "failed")] == [8, 4, 2, 2]


def test_expired_block_without_acks(acker: Target) -> None:
    track_block(acker, 7, [A] * SLOTS)
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert mixed.nacked == tuple(range(SLOTS))
    assert (list(mixed.acked()), mixed.count) == ([], SLOTS)


def test_expired_block_with_one_open_slot(acker: Target) -> None:
    track_block(acker, 7, [0] * 2000 + [A] + [0] * (SLOTS - 2001))
    tick(acker, 3)
    (mixed,) = block_verdicts(acker)
    assert mixed.nacked == (2000,)
    assert list(mixed.acked()) == [(0, 2000), (2001, SLOTS)]


def test_expired_block_with_only_failed_slots_open(acker: Target) -> None:
    """The failed tree has its nack already, so only the acks are written."""
    track_block(acker, 7, [A, B, 0])
    fail_slot(acker, 7, 1, "no")
    block_row(acker, 7, {0: A})
    verdicts(acker)
    tick(acker, 3)
    assert [v[0] for v in verdicts(acker)] == ["ack", "ack"]


def test_rows_do_not_reset_the_clock(acker: Target) -> None:
    track_block(acker, 7, [A, B])
    for slot in (0, 1, 0):
        block_row(acker, 7, {slot: C})
        tick(acker)
    assert [o.verdict for o in block_verdicts(acker)] == ["mixed"]


def test_failures_do_not_reset_the_clock(acker: Target) -> None:
    track_block(acker, 7, [A, B, C])
    for slot in range(3):
        fail_slot(acker, 7, slot, "no")
        tick(acker)
    assert total(acker)["pending"] == 0


@pytest.mark.parametrize("what", ["row", "zero", "failure", "nothing"])
def test_every_row_of_a_block_resets_the_clock_with_refresh_update(
    make_acker: MakeTarget, what: str
) -> None:
    """Of the whole block, also of the slots that nothing came for."""
    acker = make_acker(refresh="update")
    track_block(acker, 7, [A, B, C])
    for step in range(1, 4):
        tick(acker, 2)
        block_row(acker, 7, {"row": {0: step}, "zero": {1: 0}}.get(what, {}))
        if what == "failure":
            fail_slot(acker, 7, 2, "no")
    tick(acker, 2)
    assert [o.verdict for o in block_verdicts(acker)] == ["nack"] * (what == "failure")
    assert total(acker)["pending"] == 3
    tick(acker)
    assert [o.verdict for o in block_verdicts(acker)] == ["mixed"]


def test_touch_resets_the_clock_of_the_whole_block(acker: Target) -> None:
    track_block(acker, 7, [A, B], "b7")
    track_block(acker, 8, [A])
    tick(acker, 2)
    touch_block(acker, 7)
    tick(acker, 2)
    touch, mixed = block_verdicts(acker)
    assert (touch.verdict, touch.reason, touch.slots, touch.label) == ("touch", "reset", 2, "b7")
    assert [o.anchor for o in touch.expand()] == [block_anchor(7, 0), block_anchor(7, 1)]
    assert list(touch.acked()) == []
    assert mixed.block == 8
    assert block_row(acker, 7, {0: A, 1: B}).acked == 2


def test_a_touched_block_expires_n_ticks_later(acker: Target) -> None:
    track_block(acker, 7, [A])
    tick(acker, 2)
    touch_block(acker, 7)
    tick(acker, 2)
    verdicts(acker)
    tick(acker)
    assert [o.verdict for o in block_verdicts(acker)] == ["mixed"]


def test_a_block_is_in_one_bucket_only(acker: Target) -> None:
    track_block(acker, 7, [A, B])
    for _ in range(5):
        tick(acker)
        touch_block(acker, 7)
        touch_block(acker, 7)
        assert total(acker)["pending"] == 2
    tick(acker, 3)
    assert [o.verdict for o in block_verdicts(acker)] == ["touch"] * 10 + ["mixed"]


def test_touch_that_completes_is_an_ack_only(acker: Target) -> None:
    track_block(acker, 7, [A])
    send_blocks(acker, BlockRow(7, {0: A}, touch=True))
    assert [o.verdict for o in block_verdicts(acker)] == ["ack"]


def test_touch_with_track_and_with_a_failure(acker: Target) -> None:
    send_blocks(acker, tracked_block(7, [A, B], touch=True))
    send_blocks(acker, BlockRow(7, {}, {0: "no"}, touch=True))
    assert [(o.verdict, o.count) for o in block_verdicts(acker)] == [
        ("touch", 2),
        ("nack", 1),
        ("touch", 2),
    ]


def test_nothing_rotates_before_both_drains_are_done(acker: Target) -> None:
    track_block(acker, 7, [A])
    track(acker, 9, A)
    tick(acker, 2)
    assert rotate(acker)
    assert total(acker)["expiring"] == 2
    assert not rotate(acker)
    drain_blocks(acker)
    assert total(acker)["expiring"] == 1
    assert not rotate(acker), "a loose tree waits"
    drain(acker)
    assert rotate(acker)


def test_nothing_rotates_before_blocks_are_drained(acker: Target) -> None:
    track_block(acker, 7, [A])
    tick(acker, 2)
    assert rotate(acker)
    advance(acker, 2 * HOUR)
    assert not rotate(acker, force=False)
    assert not rotate(acker)
    drain_blocks(acker)
    assert rotate(acker)


@pytest.mark.parametrize("refresh", ["never", "update"])
@pytest.mark.parametrize("buckets", [2, 3, 5])
@pytest.mark.parametrize("after_ms", [0, 1, 1_800_000, 3_599_000])
def test_a_block_lives_more_than_n_minus_1_and_at_most_n_ticks(
    make_acker: MakeTarget, refresh: str, buckets: int, after_ms: int
) -> None:
    """With a rotator that is on time, wherever in a tick the block was tracked."""
    acker = make_acker(buckets=buckets, refresh=refresh)
    advance(acker, after_ms)
    track_block(acker, 7, [A])
    if refresh == "update":
        for _ in range(3 * buckets):
            advance(acker, HOUR)
            assert rotate(acker, force=False)
            drain(acker)
            block_row(acker, 7, {0: 1})
    lived = 0
    while not verdicts(acker):
        step = HOUR - after_ms if lived == 0 and refresh == "never" else HOUR
        advance(acker, step)
        lived += step
        assert rotate(acker, force=False)
        drain(acker)
    if refresh == "never":
        assert (buckets - 1) * HOUR < lived <= buckets * HOUR
    else:
        assert lived == buckets * HOUR, "it was refreshed just after a tick"


def test_late_ticks_are_not_caught_up(acker: Target) -> None:
    """A rotator that was down for ten ticks ticks once: no block expires early."""
    track_block(acker, 7, [A])
    advance(acker, 10 * HOUR)
    for _ in range(10):
        rotate(acker, force=False)
        drain(acker)
    assert total(acker)["pending"] == 1
    assert block_row(acker, 7, {0: A}).acked == 1


def test_age_counts_from_track(acker: Target) -> None:
    """Later rows do not change it, not even those that refresh the block."""
    track_block(acker, 7, [A, B])
    advance(acker, 5 * MINUTE)
    fail_slot(acker, 7, 1, "no", B)
    tick(acker)
    touch_block(acker, 7)
    advance(acker, MINUTE)
    block_row(acker, 7, {0: A})
    nack, touch, ack = block_outcomes(acker)
    assert 5 * MINUTE <= nack.age_ms <= touch.age_ms < 6 * MINUTE <= ack.age_ms
    assert {o.age_ms for o in ack.expand()} == {ack.age_ms}


def test_age_of_an_expired_tree(acker: Target) -> None:
    track_block(acker, 7, [A])
    advance(acker, 5 * MINUTE)
    tick(acker, 3)
    (outcome,) = block_outcomes(acker)
    assert 5 * MINUTE <= outcome.age_ms < 6 * MINUTE


def test_age_is_never_negative(acker: Target) -> None:
    """A block that was tracked before the clock went back."""
    for block in (7, 8):
        track_block(acker, block, [A])
    advance(acker, -10_000)
    block_row(acker, 7, {0: A})
    tick(acker, 3)
    assert [o.age_ms for o in block_outcomes(acker)] == [0, 0]


def test_age_of_a_rejected_block_is_zero(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=1)
    track_block(acker, 7, [A])
    tick(acker, 2)
    rotate(acker)
    advance(acker, 5 * MINUTE)
    track_block(acker, 7, [A])
    track_block(acker, 8, [A] * 3)
    assert [(o.reason, o.age_ms) for o in block_outcomes(acker)] == [
        ("conflict", 0),
        ("overflow", 0),
    ]


def test_blocks_of_many_tasks_expire_to_their_sources(acker: Target) -> None:
    for block in range(50):
        track_block(acker, block, [A, 0], f"b{block}", f"task{block % 5}")
        track(acker, block + 1, A, f"s{block}", f"task{block % 5}")
    tick(acker, 3)
    for task in range(5):
        found = verdicts(acker, f"task{task}")
        mine = range(task, 50, 5)
        assert {v[3] for v in found} == {f"{kind}{i}" for i in mine for kind in "bs"}
        assert sum(v[0] == "ack" for v in found) == 10
        assert len(found) == 30


def test_clock_jump_back_is_detected_while_blocks_expire(make_acker: MakeTarget) -> None:
    """Otherwise the ticks would stop until the clock reaches its old time."""
    acker = make_acker(buckets=2)
    track_block(acker, 7, [5])
    rotate(acker)
    rotate(acker)
    advance(acker, -36_000_000)
    assert not rotate(acker, force=False)
    advance(acker, 2_700_000)
    drain(acker)
    assert not rotate(acker, force=False)
    advance(acker, 1_800_000)
    assert rotate(acker, force=False)
