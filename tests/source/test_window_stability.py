"""A source's window in a model of a queue: pipelines return from outages, and do not oscillate."""

import math
import random

import pytest

from tests.source.queue_model import Result, run
from tests.tiers import budget

LIMIT = 1.3
"""Time to normal, by the time in which a perfect system works off the records that arrived."""


def perfect(away: float, load: float) -> float:
    """Return the seconds in which a perfect system works off what arrived in an outage."""
    return away * load / (1 - load)


def work(found: Result) -> float:
    """Return the messages worked off per record that was acked."""
    return found.worked / sum(found.acked)


@pytest.mark.parametrize("load", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("lifetimes", [0.5, 2, 5, 20])
def test_pipeline_returns_after_an_outage_of_any_length(lifetimes: float, load: float) -> None:
    away = 4.0 * lifetimes
    limit = LIMIT * perfect(away, load)
    found = run(load=load, away=away, after=limit + 10)
    assert found.normal_after is not None
    assert found.normal_after <= limit
    assert found.dead == 0
    assert work(found) <= 1.1
    assert found.emitted - sum(found.acked) < 10


def test_without_a_window_the_same_outage_never_ends() -> None:
    found = run(load=0.7, away=25.0, after=300.0, most=math.inf)
    assert found.normal_after is None
    assert found.dead > 1000


def test_sources_that_share_a_worker_return_together() -> None:
    found = run(sources=20, away=20.0, after=120.0)
    assert found.normal_after is not None
    assert found.normal_after <= LIMIT * perfect(20.0, 0.7)
    fairness = sum(found.acked) ** 2 / (20 * sum(each**2 for each in found.acked))  # Jain's index
    assert fairness > 0.99
    assert found.dead == 0


@pytest.mark.parametrize(("factor", "until"), [(1 / 3, 60), (1 / 2, 60), (0.6, 1000)])
def test_slow_workers_do_not_make_a_storm(factor: float, until: float) -> None:
    """Also if they stay too slow for what arrives."""
    found = run(after=280.0, speed=lambda now: factor if 20 <= now < until else 1.0)
    assert work(found) <= 1.05
    assert found.dead == 0


@pytest.mark.parametrize("backlog", [100, 2000])
def test_source_that_starts_with_a_backlog_makes_no_storm(backlog: int) -> None:
    """It was away itself, or it reads a table."""
    found = run(backlog=backlog, before=0.0, after=LIMIT * backlog / 45 / 0.3 + 10)
    assert found.normal_after is not None
    assert found.dead == 0
    assert found.useless < 100


def test_slow_trees_need_no_ramp() -> None:
    """Trees that take ten minutes: a thousand are in flight after some seconds."""
    found = run(lifetime=1200.0, tick=600.0, delay=600.0, capacity=1e4, load=0, backlog=1000,
                before=0.0, after=750.0)  # fmt: skip
    assert sum(found.acked) == 1000


def test_workers_that_become_slow_work_for_nothing_hardly_ever() -> None:
    """The window shrinks with them, before a record expires."""
    found = run(after=60.0, speed=lambda now: 1 / 3 if 20 <= now < 40 else 1.0)
    assert found.useless < 10


def test_workers_that_come_back_faster_are_used() -> None:
    """A window that recovered in a queue must not hold the workers back."""
    found = run(away=40.0, after=40.0, speed=lambda now: 10.0 if now > 20 else 1.0)
    assert found.normal_after is not None
    assert found.normal_after <= 5.0


def test_slow_trees_are_not_throttled() -> None:
    """Trees that take 60 % of their lifetime, with no queue anywhere: all that arrives is acked."""
    found = run(lifetime=600.0, tick=200.0, delay=360.0, jitter=0.2, capacity=2.0, after=5000.0)
    expected = 1.4 * (5020 - 450)
    assert sum(found.acked) >= 0.99 * expected


def test_lost_messages_do_not_throttle() -> None:
    """Of each hundred messages one is lost: a few expiries among answers are no queue."""
    found = run(after=1000.0, lost=0.01)
    assert found.emitted - sum(found.acked) < 30, "those that wait for their last replay"
    assert found.dead == 0


def test_no_pipeline_starves_and_none_oscillates() -> None:
    """Of any shape: the load, how long trees take, how long the outage is, the largest window.

    Where answers take a large part of a lifetime, the window needs some of them to grow again. So
    the limit has some lifetimes more there.
    """
    tried = 0
    for seed in range(budget().seeds):
        draw = random.Random(seed)
        lifetime, capacity = draw.choice([1, 2, 4, 10]), draw.choice([5, 20, 45, 200])
        load, share = draw.choice([0.3, 0.5, 0.7, 0.8]), draw.choice([0, 0, 0.01, 0.1, 0.3])
        away, most = lifetime * draw.choice([0.5, 1, 2, 5, 10]), draw.choice([100, 2000])
        delay, jitter = 0.05 + lifetime * share, draw.choice([0, 0.2, 0.6])
        if capacity * (delay * (1 + jitter) + 2 / capacity) > most / 2 or capacity * lifetime < 20:
            continue  # the largest window, or a lifetime, holds too few records
        tried += 1
        limit = LIMIT * perfect(away, load) + (4 + 60 * share) * lifetime / (1 - load)
        found = run(
            lifetime=lifetime, tick=lifetime * draw.choice([0.25, 0.5]), capacity=capacity,
            load=load, away=away, before=max(5 * lifetime, 5), after=limit + 1, most=most,
            delay=delay, jitter=jitter, seed=seed,
        )  # fmt: skip
        assert found.normal_after is not None, seed
        assert found.dead == 0, seed
        assert work(found) <= 1.15, seed
    assert tried
