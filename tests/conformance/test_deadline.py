"""A tree that gets rows lives on, up to its deadline; its verdict says what ended it."""

import pytest

from tests.conformance.conftest import MakeTarget
from tests.support import (
    Target,
    advance,
    block_outcomes,
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
    verdicts,
)

A = 0x5555_0000_5555_0000
HOUR = 3_600_000


def pass_hour(acker: Target) -> None:
    """Let an hour pass, and the tick that is due then."""
    advance(acker, HOUR)
    assert rotate(acker, force=False)
    drain(acker)


@pytest.mark.parametrize("buckets", [2, 3, 5])
@pytest.mark.parametrize("deadline", [0, 1_000, 1_799_000, 2 * HOUR + 5_000, 7 * HOUR])
@pytest.mark.parametrize("after_ms", [0, 1_800_000, 3_590_000])
@pytest.mark.parametrize("kind", ["tree", "block"])
def test_a_tree_with_rows_ends_within_a_tick_after_its_deadline(
    make_acker: MakeTarget, buckets: int, deadline: int, after_ms: int, kind: str
) -> None:
    """Its age at the end is the deadline or more, and at most a tick more."""
    deadline_ms = buckets * HOUR + deadline
    acker = make_acker(buckets=buckets, refresh="update", deadline_ms=deadline_ms)
    advance(acker, after_ms)
    if kind == "tree":
        track(acker, 7, A)
    else:
        track_block(acker, 7, [A, A])
    lived, ended = 0, []
    advance(acker, HOUR - after_ms)
    lived += HOUR - after_ms
    while True:
        assert rotate(acker, force=False)
        drain(acker)
        ended = outcomes(acker) if kind == "tree" else block_outcomes(acker)
        if ended:
            break
        if kind == "tree":
            row(acker, 7, 1)
        else:
            block_row(acker, 7, {0: 1})
        advance(acker, HOUR)
        lived += HOUR
    # A real server has lived some more milliseconds than the test has counted.
    assert deadline_ms - 60_000 <= lived <= deadline_ms + HOUR
    assert ended[0].reason == "expired"
    # With the whole row of the last tick before it, only the deadline can have ended it. If the
    # deadline is that of the buckets, and the tree began with a tick, both end it together.
    if lived > buckets * HOUR:
        assert ended[0].cause == "deadline"


def test_a_tree_without_rows_ends_by_being_idle(make_acker: MakeTarget) -> None:
    acker = make_acker(refresh="update", deadline_ms=100 * HOUR)
    track(acker, 7, A)
    pass_hour(acker)
    row(acker, 7, 1)
    for _ in range(3):
        pass_hour(acker)
    (ended,) = outcomes(acker)
    assert (ended.cause, ended.residual) == ("idle", A ^ 1)
    assert 3 * HOUR <= ended.idle_ms < 3 * HOUR + 60_000
    assert 4 * HOUR <= ended.age_ms < 4 * HOUR + 60_000


@pytest.mark.parametrize("kind", ["tree", "block"])
def test_touch_that_the_deadline_stops_is_not_reported(make_acker: MakeTarget, kind: str) -> None:
    acker = make_acker(buckets=3, refresh="update", deadline_ms=4 * HOUR)
    if kind == "tree":
        track(acker, 7, A)
    else:
        track_block(acker, 7, [A])
    for _ in range(3):
        pass_hour(acker)
        if kind == "tree":
            touch(acker, 7)
        else:
            touch_block(acker, 7)
    told = outcomes(acker) if kind == "tree" else block_outcomes(acker)
    # After the first hour there is time for three ticks, later for two and for one: the tree is
    # already in the bucket that ends it then.
    assert [each.verdict for each in told] == ["touch"]
    pass_hour(acker)
    ended = outcomes(acker) if kind == "tree" else block_outcomes(acker)
    assert [(each.reason, each.cause) for each in ended] == [("expired", "deadline")]


def test_without_a_deadline_a_touch_always_restarts_the_clock(acker: Target) -> None:
    track(acker, 7, A)
    for _ in range(20):
        pass_hour(acker)
        touch(acker, 7)
    assert [each.verdict for each in outcomes(acker)] == ["touch"] * 20


def test_failure_before_its_track_obeys_the_deadline(make_acker: MakeTarget) -> None:
    acker = make_acker(buckets=2, refresh="update", deadline_ms=3 * HOUR)
    row(acker, 7, A)
    for _ in range(2):
        pass_hour(acker)
        fail(acker, 7, "early")
    pass_hour(acker)
    track(acker, 7, A)
    # The record of the failure has ended, so this is a new tree.
    assert verdicts(acker) == []


def test_late_rotator_makes_trees_live_longer_than_their_deadline(make_acker: MakeTarget) -> None:
    acker = make_acker(buckets=2, refresh="update", deadline_ms=3 * HOUR)
    track(acker, 7, A)
    advance(acker, 10 * HOUR)
    row(acker, 7, 1)
    assert rotate(acker, force=False)
    drain(acker)
    # One tick is owed, and it comes now: the row kept the tree in the bucket that ends with the
    # next one.
    assert outcomes(acker) == []
    pass_hour(acker)
    (ended,) = outcomes(acker)
    assert (ended.reason, ended.residual) == ("expired", A ^ 1)


def test_clock_that_went_back_shortens_no_life(make_acker: MakeTarget) -> None:
    acker = make_acker(buckets=3, refresh="update", deadline_ms=3 * HOUR)
    advance(acker, 20 * HOUR)
    assert rotate(acker, force=False)
    advance(acker, -10 * HOUR)
    track(acker, 7, A)
    row(acker, 7, 1)
    rotate(acker, force=False)  # notices the clock
    for _ in range(2):
        pass_hour(acker)
    assert outcomes(acker) == []
    pass_hour(acker)
    assert [each.reason for each in outcomes(acker)] == ["expired"]


def test_expired_tree_shows_its_checksum_and_edges(make_acker: MakeTarget) -> None:
    acker = make_acker(edges=("mill", "shop", "bin"))
    mill, shop = 1 << 55 | 7, 1 << 56 | 11
    track(acker, 7, mill, 's"7\\')
    track(acker, 8, mill ^ shop)
    track(acker, 9, mill ^ 5 ^ mill)
    row(acker, 10, 3)
    for _ in range(3):
        pass_hour(acker)
    told = {each.anchor: each for each in outcomes(acker)}
    assert {anchor: (each.residual, each.edges) for anchor, each in told.items()} == {
        7: (mill, ("mill",)),
        8: (mill ^ shop, ("mill", "shop")),
        9: (5, ()),
    }
    assert told[7].source_id == 's"7\\'
    assert {each.why for each in told.values()} == {""}


def test_expired_trees_are_counted_by_edge(make_acker: MakeTarget) -> None:
    acker = make_acker(edges=("mill", "shop"))
    for anchor, code in ((1, 1), (2, 3), (3, 0), (4, 2), (5, 4)):
        track(acker, anchor, code << 55 | 9)
    track_block(acker, 7, [1 << 55 | 9, 0, 3 << 55])
    row(acker, 10, 1 << 55)
    for _ in range(3):
        pass_hour(acker)
    # Bit 57 belongs to no edge of this namespace, and a record without a tree counts nowhere.
    assert odd(acker) == {"mill": 4, "shop": 3, "": 2}


def test_trees_of_a_namespace_without_edges_are_not_counted_by_edge(acker: Target) -> None:
    track(acker, 1, 1 << 55 | 9)
    for _ in range(3):
        pass_hour(acker)
    assert odd(acker) == {}


def test_slots_of_an_expired_block_show_their_checksums(make_acker: MakeTarget) -> None:
    acker = make_acker(edges=("mill", "shop"))
    mill, shop = 1 << 55 | 7, 1 << 56 | 11
    track_block(acker, 7, [mill, A, 0, shop, mill])
    block_row(acker, 7, {1: A, 4: mill ^ shop})
    for _ in range(3):
        pass_hour(acker)
    (block,) = block_outcomes(acker)
    assert (block.nacked, block.residuals) == ((0, 3, 4), (mill, shop, shop))
    assert [(each.slot, each.verdict, each.residual, each.edges) for each in block.expand()] == [
        (0, "nack", mill, ("mill",)),
        (1, "ack", 0, ()),
        (2, "ack", 0, ()),
        (3, "nack", shop, ("shop",)),
        (4, "nack", shop, ("shop",)),
    ]


def test_block_remembers_its_last_row_to_within_a_tick(acker: Target) -> None:
    track_block(acker, 7, [A, A])
    pass_hour(acker)
    block_row(acker, 7, {0: 1})
    advance(acker, HOUR // 2)
    block_row(acker, 7, {0: 1})  # the second row of this tick is not noted
    advance(acker, HOUR // 2)
    for _ in range(2):
        rotate(acker)
        drain(acker)
    (block,) = block_outcomes(acker)
    assert HOUR <= block.idle_ms < HOUR + 60_000
    assert 2 * HOUR <= block.age_ms < 2 * HOUR + 60_000


def odd(acker: Target) -> dict[str, int]:
    """Return the expired trees by edge."""
    if hasattr(acker, "odd"):
        names = dict(enumerate(acker.config.edges)) | {-1: ""}
        return {names[number]: count for number, count in acker.odd.items()}
    return dict(acker.status().shards[0].odd)
