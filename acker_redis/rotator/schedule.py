"""Whose turn is next: the schedule of a rotator, without threads, clock or I/O.

A *job* is anything that gets turns: a shard, a namespace whose configuration is read anew. One
turn is one short call to Redis. A job waits until a time, and then for a worker: either to look
whether something is due, or, for as long as it has more to do, to go on at once.

- Looks go before what goes on, so a tick does not wait for the drains of others. But between two
  turns of one job every other job that was ready had one: nobody starves, whatever the others do.
- A job has one turn at a time. A *place* (a node of a cluster) has at most half of the workers; one
  that did not answer the last time has one, and all such places together at most half. So places
  that hang leave workers to the others, unless more than one begins to hang at the same moment;
  then for as long as a call may take.
- A job that failed waits for ever longer times, with jitter.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from typing import Generic, TypeVar

FIRST_RETRY = 0.1
"""Seconds after which a job that failed is tried again, at most."""
LONGEST_RETRY = 5.0
"""Seconds to which this grows, at most; it doubles from failure to failure."""

J = TypeVar("J", bound=Hashable)


class Turn(Generic[J]):
    """A job in the schedule; as what ``take`` returns, its turn."""

    __slots__ = ("at", "failures", "gone", "job", "place", "ready", "state", "turn", "version")

    def __init__(self, job: J) -> None:
        self.job = job
        self.place: Hashable = None
        """Where it waits for a worker, or has its turn."""
        self.failures = 0
        """Turns in a row that failed."""
        self.at = 0.0
        """Since when, or from when on, it is in its state."""
        self.gone = False
        self.state = "waiting"  # waiting | look | more | turn
        self.turn = 0
        """Number of its last turn; 0 if it had none."""
        self.ready = 0
        """Number of the moment since which it has waited for a worker."""
        self.version = 0
        """Grows when it moves, so that entries of heaps that speak of the past are passed over."""


class _Place(Generic[J]):
    """Jobs that wait for a worker, and calls under way, at one place."""

    def __init__(self) -> None:
        self.looks: list[tuple[int, int, int, Turn[J]]] = []
        """Heap by last turn."""
        self.more: deque[tuple[int, Turn[J]]] = deque()
        """In order of time."""
        self.busy = 0
        self.away = False
        """Whether it did not answer the last time."""

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
    """Turns of jobs. Times are seconds of any clock that does not go back.

    >>> schedule = Schedule(workers=2)
    >>> schedule.add("shard 0", at=10.0), schedule.add("shard 1", at=11.0)
    (None, None)
    >>> schedule.take(9.0), schedule.wait(9.0)  # none is ready; the first is in a second
    (None, 1.0)
    >>> turn = schedule.take(10.0)
    >>> turn.job
    'shard 0'
    >>> schedule.more(turn, 12.0)  # there is more to do: it goes on, when the others had a turn
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
        """Give a job turns from ``at`` on; nothing if it has them."""
        if job not in self._jobs:
            self._jobs[job] = turn = Turn(job)
            self._wait(turn, at)

    def remove(self, job: J) -> None:
        """Give a job no more turns; one under way is its last. Nothing if it has none."""
        turn = self._jobs.pop(job, None)
        if turn:
            turn.gone = True
            turn.version += 1

    def hasten(self, job: J, at: float) -> None:
        """Have a job that waits until later wait until ``at`` only."""
        turn = self._jobs.get(job)
        if turn and turn.state == "waiting" and at < turn.at:
            self._wait(turn, at)

    def take(self, now: float) -> Turn[J] | None:
        """The next turn; None if nobody is ready, or the places of all who are have no room."""
        self._wake(now)
        away = sum(place.busy for place in self._places.values() if place.away)
        open_ = [
            place
            for place in self._places.values()
            if place.busy < self._most and not (place.away and (place.busy or away >= self._most))
        ]
        look = min((t for p in open_ if (t := p.look())), key=lambda t: t.turn, default=None)
        more = min((t for p in open_ if (t := p.first())), key=lambda t: t.ready, default=None)
        # A look that had its last turn after another became ready has to wait for that one.
        chosen = look if look and (more is None or look.turn < more.ready) else more
        if chosen is None:
            return None
        chosen.version += 1
        chosen.state, chosen.at, chosen.turn = "turn", now, next(self._numbers)
        self._at(chosen.place).busy += 1
        return chosen

    def wait(self, now: float) -> float | None:
        """Seconds until a job that waits is ready; None if none waits."""
        while self._waiting:
            at, _, version, turn = self._waiting[0]
            if turn.version == version:
                return max(0.0, at - now)
            heapq.heappop(self._waiting)
        return None

    def behind(self, now: float) -> float:
        """Seconds by which the latest turn is late, or for which the longest has lasted.

        Jobs that wait for a place that is away do not count; calls that it does not answer do.
        """
        self._wake(now)
        since = (
            turn.at
            for turn in self._jobs.values()
            if turn.state == "turn" or not self._at(turn.place).away
        )
        return max(0.0, now - min(since, default=now))

    def more(self, turn: Turn[J], now: float) -> None:
        """The turn is over and did well; the job goes on as soon as the others had theirs."""
        self._over(turn, away=False)
        turn.failures = 0
        if not turn.gone:
            turn.version += 1
            turn.state, turn.at, turn.ready = "more", now, next(self._numbers)
            turn.place = self._place_of(turn.job)
            self._at(turn.place).more.append((turn.version, turn))

    def until(self, turn: Turn[J], at: float) -> None:
        """The turn is over and did well; the job looks again at ``at``."""
        self._over(turn, away=False)
        turn.failures = 0
        if not turn.gone:
            self._wait(turn, at)

    def failed(self, turn: Turn[J], now: float, away: bool) -> float:
        """The turn is over and failed; seconds until the job is tried again.

        ``away`` says that there was no answer, rather than one that refuses.
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
