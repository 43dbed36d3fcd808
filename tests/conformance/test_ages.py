"""Ages and idle times of verdicts, and late rows that failures explain. The cases have no times."""

import pytest

from proof.reference.acker import Reference
from tests.conformance.conftest import MakeTarget
from tests.support import (
    FAIL,
    TOUCH,
    TRACK,
    Target,
    advance,
    block_outcomes,
    block_row,
    columns,
    drain,
    fail,
    fail_slot,
    outcomes,
    rotate,
    row,
    send,
    tick,
    total,
    touch,
    touch_block,
    track,
    track_block,
)

A, B = 0x5555_0000_5555_0000, 0x3333_CCCC_3333
MINUTE, TICK = 60_000, 3_600_000


def test_age_counts_from_the_first_row(acker: Target) -> None:
    """Later rows do not change it, not even those that refresh the record."""
    row(acker, 7, 1)
    advance(acker, 5 * MINUTE)
    track(acker, 7, A)
    tick(acker)
    row(acker, 7, 2)
    touch(acker, 7)
    advance(acker, MINUTE)
    row(acker, 7, A ^ 1 ^ 2)
    ages = [o.age_ms for o in outcomes(acker)]
    assert len(ages) == 2
    assert 5 * MINUTE <= ages[0] < 6 * MINUTE <= ages[1]


def test_each_tree_of_a_conflict_has_its_own_age(acker: Target) -> None:
    track(acker, 7, A, "first")
    advance(acker, 5 * MINUTE)
    track(acker, 7, A, "second")
    ages = {o.source_id: o.age_ms for o in outcomes(acker)}
    assert 5 * MINUTE <= ages["first"] < 6 * MINUTE
    assert ages["second"] == 0


def test_age_of_a_block_counts_from_its_track(acker: Target) -> None:
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
    track(acker, 7, A)
    track_block(acker, 7, [A])
    advance(acker, 5 * MINUTE)
    tick(acker, 3)
    ages = [outcome.age_ms for outcome in outcomes(acker)]
    assert len(ages) == 2
    assert all(5 * MINUTE <= age < 6 * MINUTE for age in ages)


def test_age_is_never_negative(acker: Target) -> None:
    """Of trees that were tracked before the clock went back."""
    for number in (7, 8):
        track(acker, number, A)
        track_block(acker, number, [A])
    advance(acker, -10_000)
    row(acker, 7, A)
    block_row(acker, 7, {0: A})
    tick(acker, 3)
    assert [o.age_ms for o in outcomes(acker)] == [0, 0, 0, 0]


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


@pytest.mark.parametrize("in_block", [False, True])
def test_idle_time_counts_from_the_last_row(make_acker: MakeTarget, in_block: bool) -> None:
    acker = make_acker(refresh="update", deadline_ms=9 * TICK)
    for number in range(3):
        if number:
            rotate(acker)
        if in_block:
            track_block(acker, 7, [A]) if not number else block_row(acker, 7, {0: number})
        else:
            track(acker, 7, A) if not number else row(acker, 7, number)
        advance(acker, TICK)
    tick(acker, 3)
    (verdict,) = outcomes(acker)
    assert (verdict.age_ms // MINUTE, verdict.idle_ms // MINUTE) == (180, 60)


def test_verdict_of_the_row_that_begins_a_tree_has_no_age(make_acker: MakeTarget) -> None:
    acker = make_acker(high_water=1)
    rows = [
        (1, A, TRACK | FAIL),
        (2, 0, TRACK),
        (3, A, TRACK | TOUCH),
        (4, A, TRACK),
        (5, A, TRACK),
    ]
    send(acker, columns(rows, "t", ["failed", "acked", "touched", "pending", "overflow", "why"]))
    assert {o.source_id: o.age_ms for o in outcomes(acker)} == dict.fromkeys(
        ("failed", "acked", "touched", "overflow"), 0
    )


@pytest.mark.parametrize("in_block", [False, True])
def test_idle_time_counts_from_a_row_that_restarts_no_clock(acker: Target, in_block: bool) -> None:
    """A block remembers its last row to within a tick."""
    track_block(acker, 7, [A]) if in_block else track(acker, 7, A)
    advance(acker, 10 * MINUTE)
    tick(acker)
    block_row(acker, 7, {0: 1}) if in_block else row(acker, 7, 1)
    advance(acker, 5 * MINUTE)
    tick(acker, 2)
    (verdict,) = outcomes(acker)
    assert (verdict.age_ms // MINUTE, verdict.idle_ms // MINUTE) == (15, 5)


@pytest.mark.parametrize("in_block", [False, True])
def test_last_row_is_not_before_the_first(make_acker: MakeTarget, in_block: bool) -> None:
    acker = make_acker(refresh="update", deadline_ms=9 * TICK)
    track_block(acker, 7, [A]) if in_block else track(acker, 7, A)
    advance(acker, -2 * TICK)
    touch_block(acker, 7) if in_block else touch(acker, 7)
    advance(acker, 3 * TICK)
    tick(acker, 3)
    (_, verdict) = outcomes(acker)
    assert verdict.idle_ms == verdict.age_ms
    assert verdict.idle_ms // TICK == 1


@pytest.mark.parametrize("in_block", [False, True])
def test_last_row_is_remembered_for_49_days(make_acker: MakeTarget, in_block: bool) -> None:
    day = 24 * 3600 * 1000
    acker = make_acker(tick_ms=40 * day, refresh="update", deadline_ms=200 * day)
    track_block(acker, 7, [A]) if in_block else track(acker, 7, A)
    advance(acker, 60 * day)
    assert rotate(acker, force=False)
    block_row(acker, 7, {0: 1}) if in_block else row(acker, 7, 1)
    for _ in range(3):
        advance(acker, 40 * day)
        assert rotate(acker, force=False)
    drain(acker)
    (verdict,) = outcomes(acker)
    assert verdict.age_ms // day == 180
    assert verdict.age_ms - verdict.idle_ms == 2**32 - 1


def after_failure(acker: Target) -> tuple[int, int]:
    """Return how many orphans there are, and how many of them failed trees explain."""
    explained = (
        acker.after_failure if isinstance(acker, Reference) else acker.status().after_failure
    )
    return total(acker)["orphaned"], explained


@pytest.mark.parametrize("ticks", [0, 1])
def test_late_rows_of_failed_trees_are_counted_apart(acker: Target, ticks: int) -> None:
    for anchor in (7, 8, 9):
        track(acker, anchor, A ^ anchor)
        fail(acker, anchor, "no", A)  # the message of id ``anchor`` is outstanding
    fail(acker, 10, "early")
    track(acker, 10, A)
    tick(acker, ticks)
    for anchor in (7, 8):
        row(acker, anchor, anchor)
    row(acker, 10, A)
    tick(acker, 4 + ticks)
    assert after_failure(acker) == (3, 3)
    # A tree that never sends its rows explains no orphan of later buckets.
    row(acker, 11, 5)
    tick(acker, 3)
    assert after_failure(acker) == (4, 3)


def test_late_rows_of_other_trees_are_explained_by_no_failure(acker: Target) -> None:
    track(acker, 7, A)
    fail(acker, 7, "no", A)  # nothing is outstanding
    track(acker, 8, A)
    tick(acker, 3)
    row(acker, 7, 1)
    row(acker, 8, A)
    tick(acker, 3)
    assert after_failure(acker) == (2, 0)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_failed_tree_explains_one_orphan(acker: Target, at_once: bool) -> None:
    """Whether it fails with its TRACK or later."""
    if at_once:
        send(acker, columns([(7, A ^ B, TRACK | FAIL)], "t", ["s7", "no"]))
    else:
        track(acker, 7, A ^ B)
        fail(acker, 7, "no")
    row(acker, 7, A)
    tick(acker)
    row(acker, 8, B)  # of no tree that was ever tracked
    tick(acker, 3)
    assert after_failure(acker) == (2, 1)
