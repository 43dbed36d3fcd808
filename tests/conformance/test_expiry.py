"""Rotation and expiry: when and how often."""

import pytest

from proof.reference.acker import Reference
from tests.conformance.conftest import MakeTarget
from tests.support import (
    Target,
    advance,
    drain,
    fail,
    outcomes,
    rotate,
    row,
    tick,
    total,
    touch,
    track,
    verdicts,
)

A = 0x5555_0000_5555_0000
MINUTE = 60_000


@pytest.mark.parametrize("buckets", [2, 3, 16])
def test_expires_after_n_ticks_not_before(make_acker: MakeTarget, buckets: int) -> None:
    acker = make_acker(buckets=buckets)
    track(acker, 7, A, "s7")
    for _ in range(buckets - 1):
        tick(acker)
        assert verdicts(acker) == []
    tick(acker)
    assert verdicts(acker) == [("nack", "expired", 7, "s7", "")]
    assert total(acker)["pending"] == total(acker)["expiring"] == 0


def test_rows_do_not_reset_the_clock(acker: Target) -> None:
    track(acker, 7, A)
    tick(acker)
    row(acker, 7, 1)
    tick(acker)
    row(acker, 7, 2)
    tick(acker)
    assert [v[1] for v in verdicts(acker)] == ["expired"]


def test_rows_reset_the_clock_with_refresh_update(make_acker: MakeTarget) -> None:
    acker = make_acker(refresh="update")
    track(acker, 7, A)
    for delta in (1, 2, 4):
        tick(acker, 2)
        row(acker, 7, delta)
    tick(acker, 2)
    assert verdicts(acker) == []
    tick(acker)
    assert [v[1] for v in verdicts(acker)] == ["expired"]


def test_touch_resets_the_clock(acker: Target) -> None:
    track(acker, 7, A)
    tick(acker, 2)
    touch(acker, 7)
    tick(acker, 2)
    assert [v[0] for v in verdicts(acker)] == ["touch"]
    assert row(acker, 7, A).acked == 1


def test_fail_before_track_resets_the_clock(acker: Target) -> None:
    row(acker, 7, A)
    tick(acker, 2)
    fail(acker, 7, "early")
    tick(acker, 2)
    track(acker, 7, A)
    assert verdicts(acker) == [("nack", "failed", 7, "s", "early")]


def test_record_is_in_one_bucket_only(acker: Target) -> None:
    track(acker, 7, A)
    for _ in range(5):
        tick(acker)
        touch(acker, 7)
        assert total(acker)["pending"] == 1


def test_late_row_is_an_orphan(acker: Target) -> None:
    track(acker, 7, A)
    tick(acker, 3)
    assert row(acker, 7, A).acked == 0
    tick(acker, 3)
    assert [v[1] for v in verdicts(acker)] == ["expired"]
    assert total(acker)["orphaned"] == 1


def test_row_for_an_expiring_tree_is_late(acker: Target) -> None:
    track(acker, 7, A)
    tick(acker, 2)
    assert rotate(acker)
    assert row(acker, 7, A).acked == 0
    drain(acker)
    assert [v[1] for v in verdicts(acker)] == ["expired"]


def test_nothing_rotates_before_the_drain_is_done(acker: Target) -> None:
    track(acker, 7, A)
    tick(acker, 2)
    assert rotate(acker)
    assert not rotate(acker)
    drain(acker)
    assert rotate(acker)


@pytest.mark.parametrize("refresh", ["never", "update"])
@pytest.mark.parametrize("buckets", [2, 3, 5])
@pytest.mark.parametrize("after_ms", [0, 1, 1_800_000, 3_599_000])
def test_a_tree_lives_more_than_n_minus_1_and_at_most_n_ticks(
    make_acker: MakeTarget, refresh: str, buckets: int, after_ms: int
) -> None:
    """With a rotator that is on time, wherever in a tick the tree began.

    The clock starts at the first row, or with ``update`` at the last.
    """
    acker = make_acker(buckets=buckets, refresh=refresh)
    hour = 3_600_000
    advance(acker, after_ms)
    track(acker, 7, A)
    if refresh == "update":
        # Rows arrive as late as possible, tick after tick, and the tree stays pending.
        for _ in range(3 * buckets):
            advance(acker, hour)
            assert rotate(acker, force=False)
            drain(acker)
            row(acker, 7, 1)
    lived = 0
    while not verdicts(acker):
        step = hour - after_ms if lived == 0 and refresh == "never" else hour
        advance(acker, step)
        lived += step
        assert rotate(acker, force=False)
        drain(acker)
    if refresh == "never":
        assert (buckets - 1) * hour < lived <= buckets * hour
    else:
        assert lived == buckets * hour, "it was refreshed just after a tick"


def test_due_tick_rotates_once(acker: Target) -> None:
    advance(acker, 4_000_000)
    assert [rotate(acker, force=False) for _ in range(3)] == [True, False, False]


def test_tick_that_is_not_due_does_not_rotate(acker: Target) -> None:
    assert not rotate(acker, force=False)
    advance(acker, 3_500_000)
    assert not rotate(acker, force=False)


def test_late_ticks_are_not_caught_up(acker: Target) -> None:
    """A rotator that was down for ten ticks ticks once: no tree expires early."""
    track(acker, 7, A)
    advance(acker, 36_000_000)
    for _ in range(10):
        rotate(acker, force=False)
        drain(acker)
    assert total(acker)["pending"] == 1


def test_ticks_continue_after_the_clock_jumps_back(acker: Target) -> None:
    advance(acker, -7_200_000)
    assert not rotate(acker, force=False), "it only stores the new time"
    advance(acker, 3_500_000)
    assert not rotate(acker, force=False)
    advance(acker, 200_000)
    assert rotate(acker, force=False)


def test_clock_jump_forward_is_one_tick(acker: Target) -> None:
    track(acker, 7, A)
    advance(acker, 3_600_000 * 24)
    assert rotate(acker, force=False)
    assert not rotate(acker, force=False)
    drain(acker)
    assert row(acker, 7, A).acked == 1


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


def test_age_of_an_expired_tree(acker: Target) -> None:
    track(acker, 7, A)
    advance(acker, 5 * MINUTE)
    tick(acker, 3)
    (outcome,) = outcomes(acker)
    assert 5 * MINUTE <= outcome.age_ms < 6 * MINUTE


def test_age_of_an_expired_tree_is_never_negative(acker: Target) -> None:
    track(acker, 7, A)
    advance(acker, -10_000)
    tick(acker, 3)
    assert [o.age_ms for o in outcomes(acker)] == [0]


def test_age_is_never_negative(acker: Target) -> None:
    """A record that was created before the clock went back."""
    track(acker, 7, A)
    advance(acker, -10_000)
    row(acker, 7, A)
    assert [o.age_ms for o in outcomes(acker)] == [0]


def test_trees_of_many_tasks_expire_to_their_sources(acker: Target) -> None:
    for i in range(1, 51):
        track(acker, i, A, f"s{i}", f"task{i % 5}")
    tick(acker, 3)
    for task in range(5):
        expected = {f"s{i}" for i in range(1, 51) if i % 5 == task}
        assert {v[3] for v in verdicts(acker, f"task{task}")} == expected


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
