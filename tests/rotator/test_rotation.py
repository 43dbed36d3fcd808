"""The schedule: fair in every case, ticks first, and hanging places hold only some workers."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker_redis.rotator.schedule import FIRST_RETRY, LONGEST_RETRY, Schedule, Turn
from tests.tiers import examples


@dataclass
class Told:
    """The state of a job, recorded independently of the schedule."""

    place: int
    ready_at: float = 0.0
    """When it becomes ready, unless it has a turn."""
    busy: bool = False
    passed: set[int] = field(default_factory=set)
    """Jobs that had a turn since it became ready and its place had room."""


class Model:
    """Runs a random schedule, and records jobs that were overtaken."""

    def __init__(self, chance: random.Random, workers: int, jobs: int, places: int) -> None:
        self.chance, self.workers = chance, workers
        self.jobs = {job: Told(job % places) for job in range(jobs)}
        self.schedule: Schedule[int] = Schedule(workers, lambda job: self.jobs[job].place, chance)
        self.away: set[int] = set()
        self.turns: list[Turn[int]] = []
        self.now = 0.0
        self.most = 0
        for job in self.jobs:
            self.schedule.add(job, 0.0)

    def busy(self, *places: int) -> int:
        return sum(self.jobs[turn.job].place in places for turn in self.turns)

    def has_room(self, place: int) -> bool:
        half = max(1, self.workers // 2)
        if place in self.away and (self.busy(place) or self.busy(*self.away) >= half):
            return False
        return self.busy(place) < half

    def step(self) -> None:
        self.now += self.chance.choice((0.0, 0.0, 0.001, 0.1))
        if len(self.turns) < self.workers and self.chance.random() < 0.6:
            self.take()
        elif self.turns:
            self.end(self.turns.pop(self.chance.randrange(len(self.turns))))

    def take(self) -> None:
        ready = {
            job: told
            for job, told in self.jobs.items()
            if not told.busy and told.ready_at <= self.now
        }
        could = {job: told for job, told in ready.items() if self.has_room(told.place)}
        for job, told in ready.items():
            if job not in could:
                told.passed.clear()
        turn = self.schedule.take(self.now)
        assert (turn is None) == (not could)
        if turn is None:
            return
        assert turn.job in could
        for job, told in could.items():
            if job != turn.job:
                assert turn.job not in told.passed, (
                    "the chosen job had two turns, and another ready job none"
                )
                told.passed.add(turn.job)
        self.most = max(self.most, len(could))
        self.jobs[turn.job].busy = True
        self.jobs[turn.job].passed.clear()
        self.turns.append(turn)

    def end(self, turn: Turn[int]) -> None:
        told = self.jobs[turn.job]
        told.busy = False
        how = self.chance.choices(("more", "until", "now", "away", "refused"), (6, 3, 3, 1, 1))[0]
        if how == "away":
            self.away.add(told.place)
        else:
            self.away.discard(told.place)
        if how == "more":
            told.ready_at = self.now
            self.schedule.more(turn, self.now)
        elif how in ("until", "now"):
            told.ready_at = self.now + (self.chance.choice((0.001, 0.1)) if how == "until" else 0)
            self.schedule.until(turn, told.ready_at)
        else:
            pause = self.schedule.failed(turn, self.now, how == "away")
            told.ready_at = self.now + pause


@settings(max_examples=examples(0.6))
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 6),
    jobs=st.integers(1, 12),
    places=st.integers(1, 3),
)
def test_every_ready_job_has_a_turn_between_two_turns_of_another(
    seed: int, workers: int, jobs: int, places: int
) -> None:
    model = Model(random.Random(seed), workers, jobs, places)
    for _ in range(300):
        model.step()


def test_random_schedules_cover_contention_and_outages() -> None:
    """Often several jobs are ready, and some places are unreachable."""
    model = Model(random.Random(1), 4, 10, 3)
    away = 0
    for _ in range(2000):
        model.step()
        away += bool(model.away)
    assert model.most > 5
    assert away > 100


def test_tick_overtakes_a_hundred_drains() -> None:
    schedule: Schedule[str] = Schedule(2)
    for number in range(100):
        schedule.add(f"drain {number}", 0.0)
    schedule.add("tick", 2.0)
    for _ in range(250):
        turn = schedule.take(1.0)
        assert turn
        schedule.more(turn, 1.0)
    turn = schedule.take(2.0)
    assert turn
    assert turn.job == "tick"


def hang(schedule: Schedule[str], now: float) -> list[str]:
    """Take all turns that can be taken, and end none."""
    taken = []
    while turn := schedule.take(now):
        taken.append(turn.job)
    return taken


def test_hanging_place_leaves_half_of_the_workers() -> None:
    schedule: Schedule[str] = Schedule(4, lambda job: job[0])
    for job in ("a1", "a2", "a3", "a4", "b1", "b2"):
        schedule.add(job, 0.0)
    assert sorted(hang(schedule, 1.0)) == ["a1", "a2", "b1", "b2"]


def test_unreachable_places_share_half_of_the_workers_with_one_each() -> None:
    schedule: Schedule[str] = Schedule(4, lambda job: job[0])
    for job in ("a1", "a2", "b1", "b2", "c1", "c2"):
        schedule.add(job, 0.0)
    turns = [turn for _ in range(6) if (turn := schedule.take(1.0))]
    assert len(turns) == 6
    for turn in turns:
        schedule.failed(turn, 1.0, away=True)
    for job in ("d1", "d2"):
        schedule.add(job, 9.0)
    taken = hang(schedule, 9.0)
    assert sorted(job[0] for job in taken if job[0] != "d") == sorted(set("abc"))[:2]
    assert {"d1", "d2"} < set(taken)


def test_place_that_answers_again_gets_its_workers_back() -> None:
    schedule: Schedule[str] = Schedule(4, lambda job: job[0])
    schedule.add("a1", 0.0)
    schedule.add("a2", 0.0)
    first = schedule.take(0.0)
    assert first
    schedule.failed(first, 0.0, away=True)
    (second,) = hang(schedule, 9.0)[:1]
    assert not hang(schedule, 9.0)
    schedule.until(schedule._jobs[second], 9.0)
    assert sorted(hang(schedule, 9.0)) == ["a1", "a2"]


def test_retry_pauses_grow_to_a_limit_and_start_over() -> None:
    schedule: Schedule[str] = Schedule(1, rng=random.Random(3))
    schedule.add("a", 0.0)
    now, pauses = 0.0, []
    for _ in range(60):
        turn = schedule.take(now)
        assert turn
        pauses.append(schedule.failed(turn, now, away=len(pauses) % 2 == 0))
        assert schedule.take(now + 0.99 * pauses[-1]) is None
        now += pauses[-1]
    assert pauses[0] <= FIRST_RETRY
    assert all(0.5 * LONGEST_RETRY <= pause <= LONGEST_RETRY for pause in pauses[8:])
    assert len(set(pauses)) == len(pauses)
    turn = schedule.take(now)
    assert turn
    schedule.until(turn, now)
    turn = schedule.take(now)
    assert turn
    assert schedule.failed(turn, now, away=True) <= FIRST_RETRY


def test_removed_job_gets_no_more_turns() -> None:
    schedule: Schedule[str] = Schedule(2)
    schedule.add("a", 0.0)
    schedule.add("b", 5.0)
    turn = schedule.take(0.0)
    assert turn
    for job in ("a", "b", "unknown"):
        schedule.remove(job)
    schedule.more(turn, 0.0)
    assert schedule.take(9.0) is None
    assert schedule.wait(9.0) is None
    assert "a" not in schedule
    schedule.add("a", 9.0)
    assert hang(schedule, 9.0) == ["a"]


def test_hastened_job_is_ready_at_once() -> None:
    schedule: Schedule[str] = Schedule(2)
    schedule.add("a", 5.0)
    schedule.hasten("a", 7.0)
    assert schedule.wait(0.0) == 5.0
    schedule.hasten("a", 1.0)
    assert schedule.wait(0.0) == 1.0
    assert hang(schedule, 1.0) == ["a"]
    assert hang(schedule, 9.0) == []


@pytest.mark.parametrize(("away", "late"), [(False, 60.0), (True, 0.0)])
def test_lateness_ignores_jobs_of_unreachable_places(away: bool, late: float) -> None:
    """Jobs that wait for an unreachable place do not count."""
    schedule: Schedule[str] = Schedule(2, lambda job: "there")
    assert schedule.lateness(9.0) == 0
    schedule.add("a", 0.0)
    schedule.add("b", 40.0)
    turn = schedule.take(0.0)
    assert turn
    if away:
        schedule.failed(turn, 39.0, away=True)
    else:
        schedule.until(turn, 300.0)
    assert schedule.lateness(39.0) == 0
    assert schedule.lateness(100.0) == late


def test_lateness_counts_calls_that_do_not_end() -> None:
    schedule: Schedule[str] = Schedule(2)
    schedule.add("a", 0.0)
    schedule.add("b", 50.0)
    assert schedule.take(10.0)
    assert schedule.lateness(40.0) == 30.0
