"""With ``refresh=update`` rows keep a tree alive until its deadline, and no longer."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from acker_redis.protocol.outcome import Outcome
from tests.conformance.conftest import MakeTarget
from tests.support import (
    Target,
    advance,
    block_row,
    drain,
    fail,
    outcomes,
    rotate,
    row,
    touch,
    touch_block,
    track,
    track_block,
)

TICK = 3_600_000
HALF, QUARTER = TICK // 2, TICK // 4
A = 0x0000_5555_5555_0000


@dataclass(frozen=True)
class Kind:
    """The calls for a loose tree, or for a block of one tree."""

    begin: Callable[[Target], object]
    add: Callable[[Target, int], object]
    touch: Callable[[Target], object]


KINDS = {
    "loose": Kind(
        lambda acker: track(acker, 7, A),
        lambda acker, delta: row(acker, 7, delta),
        lambda acker: touch(acker, 7),
    ),
    "block": Kind(
        lambda acker: track_block(acker, 7, [A]),
        lambda acker, delta: block_row(acker, 7, {0: delta}),
        lambda acker: touch_block(acker, 7),
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def begun(make_acker: MakeTarget, kind: Kind, deadline_ms: int, buckets: int = 3) -> Target:
    """Return an acker in which a tree was tracked half a tick after tick 0."""
    acker = make_acker(buckets=buckets, refresh="update", deadline_ms=deadline_ms)
    advance(acker, HALF)
    kind.begin(acker)
    return acker


def tick_on_time(acker: Target) -> list[Outcome]:
    """Move the clock to the next tick and half a tick on; return the verdicts."""
    advance(acker, HALF)
    assert rotate(acker, force=False)
    drain(acker)
    advance(acker, HALF)
    return outcomes(acker)


def last_tick(acker: Target, work: Callable[[int], object]) -> tuple[int, Outcome]:
    """Work after each tick until the tree expires; return the tick, and the verdict."""
    for number in range(1, 40):
        told = [outcome for outcome in tick_on_time(acker) if outcome.verdict != "touch"]
        if told:
            (verdict,) = told
            assert verdict.reason == "expired"
            return number, verdict
        work(number)
    raise AssertionError("it never expires")


@pytest.mark.parametrize("buckets", [2, 3, 5, 16])
@pytest.mark.parametrize(
    ("after", "last"), [(0, 1), (QUARTER, 1), (HALF + QUARTER, 2), (TICK, 2), (9 * TICK, 10)]
)
def test_rows_keep_a_tree_alive_until_the_first_tick_after_its_deadline(
    make_acker: MakeTarget, kind: Kind, buckets: int, after: int, last: int
) -> None:
    deadline_ms = buckets * TICK + after
    acker = begun(make_acker, kind, deadline_ms, buckets)
    number, verdict = last_tick(acker, lambda number: kind.add(acker, number))
    assert number == buckets + last
    assert verdict.cause == "deadline"
    assert deadline_ms <= verdict.age_ms < deadline_ms + TICK
    assert verdict.idle_ms // HALF == 1


def test_tree_without_rows_expires_after_n_ticks(make_acker: MakeTarget, kind: Kind) -> None:
    acker = begun(make_acker, kind, 9 * TICK)
    number, verdict = last_tick(acker, lambda _: None)
    assert (number, verdict.cause, verdict.residual) == (3, "idle", A)
    assert verdict.idle_ms == verdict.age_ms
    assert verdict.idle_ms // HALF == 5


def test_tree_that_falls_idle_before_its_deadline_is_idle(
    make_acker: MakeTarget, kind: Kind
) -> None:
    acker = begun(make_acker, kind, 9 * TICK)
    number, verdict = last_tick(acker, lambda n: kind.add(acker, n) if n < 4 else None)
    assert (number, verdict.cause) == (6, "idle")
    assert verdict.residual == A ^ 1 ^ 2 ^ 3


def test_row_moves_a_tree_as_far_as_its_deadline_allows(make_acker: MakeTarget, kind: Kind) -> None:
    acker = begun(make_acker, kind, 5 * TICK, buckets=5)
    number, verdict = last_tick(acker, lambda n: kind.add(acker, n) if n == 3 else None)
    assert (number, verdict.cause) == (6, "deadline")


def test_touch_is_answered_unless_the_deadline_leaves_the_tree_where_it_is(
    make_acker: MakeTarget, kind: Kind
) -> None:
    acker = begun(make_acker, kind, 4 * TICK, buckets=4)
    told = []
    for _ in range(5):
        kind.touch(acker)
        told.append([o.verdict for o in outcomes(acker)] + [o.reason for o in tick_on_time(acker)])
    # To bucket 0, 1, 1 (where it is), 1, 1; bucket 1 expires with tick 5.
    assert told == [["touch"], ["touch"], [], [], ["expired"]]


def test_touch_that_moves_a_tree_part_of_the_way_is_answered(
    make_acker: MakeTarget, kind: Kind
) -> None:
    acker = begun(make_acker, kind, 4 * TICK, buckets=4)
    for _ in range(3):
        assert tick_on_time(acker) == []
    kind.touch(acker)
    assert [o.verdict for o in outcomes(acker)] == ["touch"]
    kind.touch(acker)
    assert outcomes(acker) == []


def test_late_rotator_makes_a_tree_live_longer_and_never_shorter(
    make_acker: MakeTarget, kind: Kind
) -> None:
    acker = begun(make_acker, kind, 3 * TICK)
    advance(acker, 10 * TICK)
    kind.add(acker, 1)
    assert [o.cause for _ in range(3) for o in tick_on_time(acker)] == ["deadline"]


def test_deadline_counts_a_late_tick_as_due_now(make_acker: MakeTarget, kind: Kind) -> None:
    acker = begun(make_acker, kind, 3 * TICK)
    assert tick_on_time(acker) == []
    advance(acker, TICK + QUARTER)
    # Tick 2 is late: if it came now, at 2.75 ticks, tick 3 would come at 3.75, after the deadline.
    kind.touch(acker)
    assert outcomes(acker) == []
    assert [len(tick_on_time(acker)) for _ in range(2)] == [0, 1]


def test_clock_that_went_back_makes_a_tree_live_longer(make_acker: MakeTarget, kind: Kind) -> None:
    acker = begun(make_acker, kind, 3 * TICK)
    for number in range(2):
        assert tick_on_time(acker) == []
        kind.add(acker, number + 1)
    kind.touch(acker)
    assert outcomes(acker) == [], "the deadline leaves it in bucket 1"
    advance(acker, -2 * TICK)
    kind.touch(acker)
    assert [o.verdict for o in outcomes(acker)] == ["touch"]


def test_last_row_is_not_before_the_first(make_acker: MakeTarget, kind: Kind) -> None:
    acker = begun(make_acker, kind, 9 * TICK)
    advance(acker, -2 * TICK)
    kind.touch(acker)
    advance(acker, 3 * TICK)
    for _ in range(3):
        rotate(acker)
    drain(acker)
    (_, verdict) = outcomes(acker)
    assert verdict.idle_ms == verdict.age_ms
    assert verdict.idle_ms // TICK == 1


def test_last_row_is_remembered_for_49_days(make_acker: MakeTarget, kind: Kind) -> None:
    day = 24 * 3600 * 1000
    acker = make_acker(tick_ms=40 * day, refresh="update", deadline_ms=200 * day)
    kind.begin(acker)
    advance(acker, 60 * day)
    assert rotate(acker, force=False)
    kind.add(acker, 1)
    for _ in range(3):
        advance(acker, 40 * day)
        assert rotate(acker, force=False)
    drain(acker)
    (verdict,) = outcomes(acker)
    assert verdict.age_ms // day == 180
    assert verdict.age_ms - verdict.idle_ms == 2**32 - 1


def test_failure_before_the_track_moves_no_further_than_the_deadline_allows(
    make_acker: MakeTarget,
) -> None:
    acker = make_acker(buckets=3, refresh="update", deadline_ms=3 * TICK)
    advance(acker, HALF)
    row(acker, 7, A)
    for _ in range(3):
        assert tick_on_time(acker) == []
        fail(acker, 7, "early")
    assert tick_on_time(acker) == []
    track(acker, 7, A)
    assert outcomes(acker) == [], "the failure has expired, so it fails no later tree"


def test_deadline_of_a_tree_counts_from_a_row_before_its_track(make_acker: MakeTarget) -> None:
    acker = make_acker(buckets=3, refresh="update", deadline_ms=3 * TICK)
    advance(acker, HALF)
    row(acker, 7, 1)
    assert tick_on_time(acker) == []
    assert tick_on_time(acker) == []
    track(acker, 7, A)
    number, verdict = last_tick(acker, lambda number: row(acker, 7, 2 << number))
    assert (number, verdict.cause) == (2, "deadline")


def test_latest_row_decides_the_cause(make_acker: MakeTarget) -> None:
    # After the clock went back, the row moves the tree to the newest bucket again.
    acker = begun(make_acker, KINDS["loose"], 3 * TICK)
    for number in range(2):
        assert tick_on_time(acker) == []
        row(acker, 7, number + 1)
    advance(acker, -2 * TICK)
    row(acker, 7, 4)
    for _ in range(3):
        rotate(acker)
        drain(acker)
    assert [o.cause for o in outcomes(acker)] == ["idle"]
