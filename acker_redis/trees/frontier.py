"""Below which offset everything is complete: what a source may commit, and what holds it back.

::

         position: it pins the frontier        highest
            v                                     v
    cccccccc.cccc..c.cccccccccccccccccc....ccccccc      c: complete  .: not known to be

Acks come in any order, once or more often. Below the position nothing is kept. Above it single
offsets and short ranges are marked in pages of a byte per offset; long ranges are kept as such,
sorted, so that they cost the same however long they are. An offset may be in both.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge

from sortedcontainers import SortedDict

from acker_redis.errors import ConfigError

PAGE = 256
"""Offsets in a page. An offset that is complete far from all others costs a whole one."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed attempts at one offset.

    >>> Failures()
    Failures(attempts=0, why='', first_at=None, last_at=None)
    """

    attempts: int = 0
    why: str = ""
    """Why the last of them failed."""
    first_at: float | None = None
    last_at: float | None = None
    """When the first and the last one were noted; None if there are none."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The offset that holds the frontier back.

    >>> Pin(1003, since=1.7e9, failures=Failures(attempts=2, why="no such city")).failures.why
    'no such city'
    """

    offset: int
    """The frontier's position."""
    since: float
    """When the frontier stood here and, for the first time, an attempt at this offset had failed
    or some offset above it was complete; see :meth:`Frontier.pinned`."""
    failures: Failures
    """``attempts`` is 0 if it has not failed: it is on its way, or nobody knows of it."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An offset that was given up.

    >>> Quarantined(1003, at=1.7e9, why="parked", failures=Failures(attempts=5)).offset
    1003
    """

    offset: int
    at: float
    """When it was given up."""
    why: str
    failures: Failures
    """The attempts that failed before."""


class Frontier:
    """The frontier of one partition, from completions in any order, one by one or by ranges.

    ``position`` is the first offset that may be missing. A source commits it, and begins with a
    new Frontier there after a restart or a rebalance: what this one knows is in memory only.

    **Failures.** ``fail()`` notes that an attempt at an offset failed, ``pinned()`` names the
    offset that holds the frontier back, with what is known of its failures. A replay that
    completes makes them forgotten. An offset that never will complete is put where it can be
    looked at, a dead-letter queue, and then given up by ``quarantine()``: the frontier passes it.

    **Holes.** The Frontier does not know what was emitted, so it waits for every offset, also for
    one that a compacted topic has no more or that a transaction marker occupies. Whoever polls
    completes what a poll skipped: for each record ``complete(expected, record.offset)``, then
    ``expected = record.offset + 1``; behind the poll ``complete(expected, consumer.position())``,
    and that is expected next.

    **Costs.** A single offset is O(1), a range O(log n) in the ranges above the frontier, however
    long it is; over a million offsets in flight ``benchmarks/frontier.py`` measures both. Memory:
    a byte per offset in flight, at most two pages of 256 bytes for a call of complete(), and a
    note for each offset that failed and is not complete. Not thread-safe.

    ``clock`` gives the times that are not given ``at`` a call, in any unit; the default is seconds
    since 1970. The last ``remember`` quarantined offsets are listed.

    Raises ConfigError if ``remember`` is negative.

    >>> frontier = Frontier(100)
    >>> frontier.complete(103, 110)
    100
    >>> frontier.complete(100, 102)
    102
    >>> list(frontier.gaps())
    [(102, 103)]
    >>> frontier.fail(102, "no such city", at=12.5)
    1
    >>> frontier.pinned().offset, frontier.pinned().failures.why
    (102, 'no such city')
    >>> frontier.quarantine(102, at=13.0)
    110
    >>> [(given_up.offset, given_up.why) for given_up in frontier.quarantined()]
    [(102, 'no such city')]
    """

    def __init__(
        self,
        position: int = 0,
        *,
        clock: Callable[[], float] = time.time,
        remember: int = 1000,
    ) -> None:
        if remember < 0:
            raise ConfigError(f"remember = {remember}: give how many to list, 0 for none")
        self._position = position
        self._highest = position
        """Behind the last offset that is complete."""
        self._ahead = _Ahead()
        self._clock = clock
        self._since: float | None = None
        """See Pin; None while nothing holds the frontier back."""
        self._failures: SortedDict[int, Failures] = SortedDict()
        """Of offsets that are not complete."""
        self._quarantined: deque[Quarantined] = deque(maxlen=remember)
        self._quarantines = 0

    @property
    def position(self) -> int:
        """The lowest offset that is not known to be complete: all below it are."""
        return self._position

    @property
    def quarantines(self) -> int:
        """How many offsets were given up in all, also those that are no longer listed."""
        return self._quarantines

    def complete(self, first: int, end: int | None = None, *, at: float | None = None) -> int:
        """Offsets ``first`` to ``end - 1``, or ``first`` alone, are complete; returns the position.

        What was complete before may come again. Raises ConfigError for a range that ends before
        it begins.
        """
        if end is None:
            end = first + 1
        elif end <= first:
            if end < first:
                raise ConfigError(f"offsets {first} to {end} are no range: give the end behind it")
            return self._position
        position = self._position
        if end <= position:
            return position
        if self._failures:
            self._forget(first, end)
        if first <= position:
            return self._move(end, at)
        self._ahead.add(first, end)
        if end > self._highest:
            self._highest = end
        if self._since is None:
            self._since = self._clock() if at is None else at
        return position

    def fail(self, offset: int, why: str, *, at: float | None = None) -> int:
        """Note a failed attempt at an offset; returns how many have failed.

        That is 0 if the offset is complete: complete is final, and nothing is noted.
        """
        if self._is_complete(offset):
            return 0
        at = self._clock() if at is None else at
        before: Failures = self._failures.get(offset, Failures())
        first_at = at if before.first_at is None else before.first_at
        self._failures[offset] = Failures(before.attempts + 1, why, first_at, at)
        if offset == self._position and self._since is None:
            self._since = at
        return before.attempts + 1

    def quarantine(self, offset: int, why: str = "", *, at: float | None = None) -> int:
        """Give up an offset, which counts as complete from now on; returns the position.

        Without a ``why`` it is that of its last failure. Park the record first: if the program
        dies in between, it is replayed and parked twice, not lost. Nothing happens if the offset
        is complete.
        """
        if self._is_complete(offset):
            return self._position
        at = self._clock() if at is None else at
        failures = self._failures.get(offset, Failures())
        self._quarantined.append(Quarantined(offset, at, why or failures.why, failures))
        self._quarantines += 1
        return self.complete(offset, at=at)

    def pinned(self) -> Pin | None:
        """What holds the frontier back; None if nothing does.

        The frontier is held back while an attempt at the offset of its position has failed or
        some offset above it is complete. Both are evidence that the record is there, and late;
        without either nobody knows whether there is such a record. ``since`` is the time of the
        call by which this became so: of the one that moved the frontier here, or of a later one.
        """
        if self._since is None:
            return None
        failures = self._failures.get(self._position, Failures())
        return Pin(self._position, self._since, failures)

    def quarantined(self) -> list[Quarantined]:
        """What was given up, the last ``remember`` of it, in the order of the calls."""
        return list(self._quarantined)

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Ranges that hold the frontier back, below what is complete: first, and end.

        Each is found when it is asked for; complete nothing meanwhile.
        """
        start = self._position
        for first, end in self._ahead.runs():
            if first > start:
                yield start, first
            start = max(start, end)

    def _is_complete(self, offset: int) -> bool:
        return offset < self._position or offset in self._ahead

    def _forget(self, first: int, end: int) -> None:
        """What completes has no failures."""
        if end - first == 1:
            self._failures.pop(first, None)
        else:
            for offset in list(self._failures.irange(first, end - 1)):
                del self._failures[offset]

    def _move(self, position: int, at: float | None) -> int:
        """All below a new position is complete: move there, and behind what follows."""
        if self._highest > position:
            position = self._ahead.passed(position)
        else:
            self._highest = position
            self._ahead.clear()
        self._position = position
        if self._highest > position or position in self._failures:
            self._since = self._clock() if at is None else at
        else:
            self._since = None
        return position


class _Ahead:
    """The offsets above a frontier that are complete."""

    def __init__(self) -> None:
        self._pages: SortedDict[int, bytearray] = SortedDict()
        """offset // PAGE -> a byte per offset, 1 if it is complete."""
        self._ranges: SortedDict[int, int] = SortedDict()
        """Ranges of PAGE offsets and more, none touching another: first -> end."""

    def __contains__(self, offset: int) -> bool:
        page = self._pages.get(offset // PAGE)
        if page and page[offset % PAGE]:
            return True
        before = self._ranges.bisect_right(offset) - 1
        return before >= 0 and offset < int(self._ranges.peekitem(before)[1])

    def add(self, first: int, end: int) -> None:
        """Add ``first`` to ``end - 1``."""
        if end - first >= PAGE:
            self._add_range(first, end)
            return
        while first < end:
            number, at = divmod(first, PAGE)
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = bytearray(PAGE)
            if end - first == 1:  # twice as fast as a slice
                page[at] = 1
                return
            stop = min(PAGE, at + end - first)
            page[at:stop] = b"\1" * (stop - at)
            first += stop - at

    def passed(self, position: int) -> int:
        """The first offset from ``position`` on that is not here; forgets all below it."""
        while True:
            if self._ranges and self._ranges.peekitem(0)[0] <= position:
                position = max(position, self._ranges.popitem(0)[1])
                continue
            number, at = divmod(position, PAGE)
            page = self._pages.get(number)
            if page is None or not page[at]:
                break
            gap = page.find(0, at)
            position += (gap if gap >= 0 else PAGE) - at
        while self._pages and self._pages.peekitem(0)[0] < number:
            self._pages.popitem(0)
        return position

    def clear(self) -> None:
        """Forget everything."""
        if self._pages:
            self._pages.clear()
        if self._ranges:
            self._ranges.clear()

    def runs(self) -> Iterator[tuple[int, int]]:
        """Ranges that are here, by where they begin; some touch or overlap."""
        return merge(self._marked(), self._ranges.items())

    def _marked(self) -> Iterator[tuple[int, int]]:
        for number, page in self._pages.items():
            first = page.find(1)
            while first >= 0:
                end = page.find(0, first)
                end = PAGE if end < 0 else end
                yield number * PAGE + first, number * PAGE + end
                first = page.find(1, end)

    def _add_range(self, first: int, end: int) -> None:
        before = self._ranges.bisect_right(first) - 1
        if before >= 0 and self._ranges.peekitem(before)[1] >= first:
            first, reaches = self._ranges.popitem(before)
            end = max(end, reaches)
        after = self._ranges.bisect_left(first)
        while after < len(self._ranges) and self._ranges.peekitem(after)[0] <= end:
            end = max(end, self._ranges.popitem(after)[1])
        self._ranges[first] = end
