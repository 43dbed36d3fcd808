"""Idle tasks are forgotten after 100 ticks; tasks with verdicts or trees are not."""

import pytest

from proof.reference.acker import QUIET_TICKS
from tests.conformance.conftest import MakeTarget
from tests.support import (
    Target,
    backlog,
    block_row,
    fail,
    names,
    row,
    tick,
    touch,
    track,
    track_block,
    verdicts,
)

A = 0x5555_0000_5555_0000


def test_idle_task_is_forgotten_after_a_hundred_ticks(acker: Target) -> None:
    track(acker, 7, A, "s7")
    row(acker, 7, A)
    assert verdicts(acker) == [("ack", "completed", 7, "s7", "")]
    tick(acker, QUIET_TICKS)
    assert names(acker) == {"t"}
    tick(acker)
    assert names(acker) == set()
    track(acker, 8, A, "s8")
    row(acker, 8, A)
    assert (names(acker), backlog(acker)) == ({"t"}, 1)
    assert verdicts(acker) == [("ack", "completed", 8, "s8", "")]


def test_task_with_verdicts_is_not_forgotten_before_they_are_taken(acker: Target) -> None:
    track(acker, 7, A, "s7")
    tick(acker, QUIET_TICKS + 10)
    assert (names(acker), backlog(acker)) == ({"t"}, 1)
    assert verdicts(acker) == [("nack", "expired", 7, "s7", "")]
    tick(acker)
    assert names(acker) == set()


def test_each_track_restarts_the_idle_time_of_its_own_task(acker: Target) -> None:
    for task in ("t", "u"):
        track(acker, 7, 0, "s7", task=task)
        verdicts(acker, task)
    tick(acker, QUIET_TICKS)
    track(acker, 8, 0, "s8")
    verdicts(acker)
    tick(acker)
    assert names(acker) == {"t"}
    tick(acker, QUIET_TICKS - 1)
    assert names(acker) == {"t"}
    tick(acker)
    assert names(acker) == set()


@pytest.mark.parametrize("refresh", ["update", "never"])
def test_task_of_a_tree_that_is_kept_alive_is_not_forgotten(
    make_acker: MakeTarget, refresh: str
) -> None:
    acker = make_acker(refresh=refresh)
    track(acker, 7, A, "s7")
    for _ in range(QUIET_TICKS):
        tick(acker, 2)
        if refresh == "update":
            row(acker, 7, 0)
        else:
            touch(acker, 7)
            verdicts(acker)
    assert names(acker) == {"t"}
    fail(acker, 7, "late")
    assert verdicts(acker) == [("nack", "failed", 7, "s7", "late")]


def test_task_of_a_block_that_is_kept_alive_is_not_forgotten(make_acker: MakeTarget) -> None:
    acker = make_acker(refresh="update")
    track_block(acker, 5, [A, A])
    for _ in range(QUIET_TICKS):
        tick(acker, 2)
        assert names(acker) == {"t"}
        block_row(acker, 5, {0: 0})
    block_row(acker, 5, {0: A, 1: A})
    assert backlog(acker) == 2
