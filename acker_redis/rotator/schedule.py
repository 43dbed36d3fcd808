"""The schedule of a rotator: which job gets the next turn. No threads, clock or I/O.

A *job* is anything that gets turns: a shard, or a namespace whose configuration is read. A *turn*
is one short call to Redis. A job first waits until its time, and then for a worker. It is then in
one of two queues: *look* (check whether something is due) or *more* (the job has more to do, such
as a drain).

- Looks have priority over more. So a tick does not wait for the drains of other shards.
- No starvation: between two turns of one job, every other job that was ready had a turn.
- A job has at most one turn at a time.
- A *place* is a node of a cluster. It has at most half of the workers at a time. A place that did
  not answer its last call has one worker, and all such places together have at most half. So places
  that hang leave workers to the others, unless several begin to hang at the same moment; then this
  lasts as long as one call may take.
- A failed job is retried with exponential back-off and jitter.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from typing import Generic, TypeVar

FIRST_RETRY = 0.1
"""Longest wait before the first retry of a failed job, in seconds."""
LONGEST_RETRY = 5.0
"""Longest wait before any retry, in seconds; the wait doubles with each failure."""

J = TypeVar("J", bound=Hashable)


class Turn(Generic[J]):
    """A job in the schedule, or, as returned by ``take``, its turn."""

    __slots__ = ("at", "failures", "gone", "job", "place", "ready", "state", "turn", "version")

    def __init__(self, job: J) -> None:
        self.job = job
        self.place: Hashable = None
        """The place where it waits for a worker or has its turn."""
        self.failures = 0
        """Number of failed turns in a row."""
        self.at = 0.0
        """When it entered its state, or, while it waits, when it becomes ready."""
        self.gone = False
        self.state = "waiting"  # waiting | look | more | turn
        self.turn = 0
        """Number of its last turn; 0 before the first."""
        self.ready = 0
        """Sequence number of the moment when it became ready for a worker."""
        self.version = 0
        """Grows with each change of state, so that outdated entries of the heaps are skipped."""


class _Place(Generic[J]):
    """The jobs of one place that wait for a worker, and its calls in flight."""

    def __init__(self) -> None:
        self.looks: list[tuple[int, int, int, Turn[J]]] = []
        """A heap, ordered by last turn."""
        self.more: deque[tuple[int, Turn[J]]] = deque()
        """In order of arrival."""
        self.busy = 0
        self.away = False
        """Whether its last call got no answer."""

    def look(self) -> Turn[J] | None:
        while self.looks:
            _, _, version, turn = self.looks[0]
            if turn.version == version:
                return turn
            heapq.heappop(self.looks)
        return None

    def first(self) -> Turn[J] | None:
        while self.more:
            version, turn = self.more[0]
            if turn.version == version:
                return turn
            self.more.popleft()
        return None


class Schedule(Generic[J]):
    """The turns of jobs. Times are in seconds, on any clock that does not go back.

    >>> schedule = Schedule(workers=2)
    >>> schedule.add("shard 0", at=10.0), schedule.add("shard 1", at=11.0)
    (None, None)
    >>> schedule.take(9.0), schedule.wait(9.0)  # no job is ready; the first is in a second
    (None, 1.0)
    >>> turn = schedule.take(10.0)
    >>> turn.job
    'shard 0'
    >>> schedule.more(turn, 12.0)  # it has more to do: it continues after the others' turns
    >>> schedule.take(12.0).job
    'shard 1'
    """

    def __init__(
        self,
        workers: int,
        place_of: Callable[[J], Hashable] = lambda job: None,
        rng: random.Random | None = None,
    ) -> None:
        self._most = max(1, workers // 2)
        self._place_of = place_of
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._jobs: dict[J, Turn[J]] = {}
        self._places: dict[Hashable, _Place[J]] = {}
        self._waiting: list[tuple[float, int, int, Turn[J]]] = []
        self._numbers = count(1)

    def __contains__(self, job: J) -> bool:
        return job in self._jobs

    def __iter__(self) -> Iterator[J]:
        return iter(list(self._jobs))

    def add(self, job: J, at: float) -> None:
        """Add a job, ready from ``at`` on; a no-op for a job that is in the schedule."""
        if job not in self._jobs:
            self._jobs[job] = turn = Turn(job)
            self._wait(turn, at)

    def remove(self, job: J) -> None:
        """Remove a job; a turn in progress is its last. A no-op for an unknown job."""
        turn = self._jobs.pop(job, None)
        if turn:
            turn.gone = True
            turn.version += 1

    def hasten(self, job: J, at: float) -> None:
        """Let a job that waits until a later time wait until ``at`` only."""
        turn = self._jobs.get(job)
        if turn and turn.state == "waiting" and at < turn.at:
            self._wait(turn, at)

    def take(self, now: float) -> Turn[J] | None:
        """Return the next turn.

        None if no job is ready, or the places of all ready jobs are full.
        """
        self._wake(now)
        away = sum(place.busy for place in self._places.values() if place.away)
        open_ = [
            place
            for place in self._places.values()
            if place.busy < self._most and not (place.away and (place.busy or away >= self._most))
        ]
        look = min((t for p in open_ if (t := p.look())), key=lambda t: t.turn, default=None)
        more = min((t for p in open_ if (t := p.first())), key=lambda t: t.ready, default=None)
        # A look must wait for a job that became ready before the look's last turn: no starvation.
        chosen = look if look and (more is None or look.turn < more.ready) else more
        if chosen is None:
            return None
        chosen.version += 1
        chosen.state, chosen.at, chosen.turn = "turn", now, next(self._numbers)
        self._at(chosen.place).busy += 1
        return chosen

    def wait(self, now: float) -> float | None:
        """Return the seconds until the next job is ready; None if no job waits."""
        while self._waiting:
            at, _, version, turn = self._waiting[0]
            if turn.version == version:
                return max(0.0, at - now)
            heapq.heappop(self._waiting)
        return None

    def lateness(self, now: float) -> float:
        """Return by how many seconds the most overdue turn is late, or the longest has lasted.

        Jobs that wait for a place without answers do not count; unanswered calls do.
        """
        self._wake(now)
        since = (
            turn.at
            for turn in self._jobs.values()
            if turn.state == "turn" or not self._at(turn.place).away
        )
        return max(0.0, now - min(since, default=now))

    def more(self, turn: Turn[J], now: float) -> None:
        """End a successful turn of a job that has more to do, after the turns of the others."""
        self._over(turn, away=False)
        turn.failures = 0
        if not turn.gone:
            turn.version += 1
            turn.state, turn.at, turn.ready = "more", now, next(self._numbers)
            turn.place = self._place_of(turn.job)
            self._at(turn.place).more.append((turn.version, turn))

    def until(self, turn: Turn[J], at: float) -> None:
        """End a successful turn of a job that looks again at ``at``."""
        self._over(turn, away=False)
        turn.failures = 0
        if not turn.gone:
            self._wait(turn, at)

    def failed(self, turn: Turn[J], now: float, away: bool) -> float:
        """End a failed turn; return the seconds until the retry.

        ``away`` means that there was no answer, rather than a refusal.
        """
        self._over(turn, away=away)
        turn.failures += 1
        longest = min(FIRST_RETRY * 2.0 ** min(turn.failures - 1, 30), LONGEST_RETRY)
        pause = longest * self._rng.uniform(0.5, 1.0)
        if not turn.gone:
            self._wait(turn, now + pause)
        return pause

    def _at(self, name: Hashable) -> _Place[J]:
        return self._places.setdefault(name, _Place())

    def _over(self, turn: Turn[J], away: bool) -> None:
        place = self._at(turn.place)
        place.busy -= 1
        place.away = away

    def _wait(self, turn: Turn[J], at: float) -> None:
        turn.version += 1
        turn.state, turn.at = "waiting", at
        heapq.heappush(self._waiting, (at, next(self._numbers), turn.version, turn))

    def _wake(self, now: float) -> None:
        while (wait := self.wait(now)) is not None and wait <= 0:
            *_, turn = heapq.heappop(self._waiting)
            turn.state, turn.ready = "look", next(self._numbers)
            turn.place = self._place_of(turn.job)
            looks = self._at(turn.place).looks
            heapq.heappush(looks, (turn.turn, turn.ready, turn.version, turn))
