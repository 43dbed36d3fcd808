"""The frontier (low watermark) of a partition: the offset below which every offset is complete.

::

         position: it pins the frontier        highest
            v                                     v
    cccccccc.cccc..c.cccccccccccccccccc....ccccccc      c: complete  .: not known to be

A source may commit the position. Acks arrive in any order, and more than once. The Frontier keeps
nothing below the position. Above it, pages of one byte per offset mark single offsets and short
ranges. Long ranges are stored as (first, end) pairs, sorted, at a cost that does not depend on
their length. An offset may be in both.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge

from sortedcontainers import SortedDict

from acker_redis.errors import ConfigError

PAGE = 256
"""Offsets per page. A complete offset far from all others costs a whole page."""


@dataclass(frozen=True, slots=True)
class Failures:
    """The failed attempts at one offset.

    >>> Failures()
    Failures(attempts=0, why='', first_at=None, last_at=None)
    """

    attempts: int = 0
    why: str = ""
    """Why the last attempt failed."""
    first_at: float | None = None
    """When the first failure was noted; None if there are no failures."""
    last_at: float | None = None
    """When the last failure was noted; None if there are no failures."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The offset that holds the frontier back.

    >>> Pin(1003, since=1.7e9, failures=Failures(attempts=2, why="no such city")).failures.why
    'no such city'
    """

    offset: int
    """The frontier's position."""
    since: float
    """When the offset began to hold the frontier back: the frontier was at this offset and, for
    the first time, an attempt at it had failed or an offset above it was complete. See
    :meth:`Frontier.pinned`."""
    failures: Failures
    """Failures of the offset. ``attempts`` is 0 if none was noted: the record is in flight, or the
    offset is a hole without a record."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An offset that was given up by :meth:`Frontier.quarantine`.

    >>> Quarantined(1003, at=1.7e9, why="parked", failures=Failures(attempts=5)).offset
    1003
    """

    offset: int
    at: float
    """When the offset was given up."""
    why: str
    """The reason given, or that of the last failure."""
    failures: Failures
    """The attempts that failed before."""


class Frontier:
    """The frontier of one partition, from completions in any order, single offsets or ranges.

    ``position`` is the first offset that is not known to be complete. A source commits the
    position. After a restart or a rebalance, it starts with a new Frontier there, because the state
    of a Frontier is only in memory.

    **Failures.** ``fail()`` notes a failed attempt at an offset. ``pinned()`` returns the offset
    that holds the frontier back, with its failures. When a replay completes, its failures are
    forgotten. For an offset that will never complete, first write the record to a dead-letter
    queue, then call ``quarantine()``: the frontier passes the offset.

    **Holes.** The Frontier does not know which offsets have records, so it waits for every offset.
    That includes offsets that a compacted topic has deleted, and those of transaction markers. The
    consumer completes the offsets that a poll skipped. For each record call ``complete(expected,
    record.offset)``, then set ``expected = record.offset + 1``. After the poll call
    ``complete(expected, consumer.position())``, and expect that position next. A slot of a block
    that holds no tree has no verdict, so this also completes the offsets of such slots.

    **Costs.** A single offset is O(1). A range of any length is O(log n) in the number of ranges
    above the frontier. With a million offsets in flight, acks in random order ran at 1.7 million a
    second, four fifths of a plain set.
    Memory: a byte per offset in flight, at most two pages of 256 bytes per call of complete(), and
    a note for each offset that failed and is not complete. Not thread-safe.

    Args:
        position: The first offset that may be incomplete.
        clock: Returns the time of a call without ``at``, in any unit; default: seconds since 1970.
        remember: Number of quarantined offsets, the latest ones, that :meth:`quarantined` lists.

    Raises:
        ConfigError: ``remember`` is negative.

    Examples:
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
            raise ConfigError(f"remember is a number of offsets, at least 0, not {remember}")
        self._position = position
        self._highest = position
        """One above the last complete offset."""
        self._ahead = _Ahead()
        self._clock = clock
        self._since: float | None = None
        """See Pin; None while nothing holds the frontier back."""
        self._failures: SortedDict[int, Failures] = SortedDict()
        """Failures of offsets that are not complete."""
        self._quarantined: deque[Quarantined] = deque(maxlen=remember)
        self._quarantines = 0

    @property
    def position(self) -> int:
        """The lowest offset that is not known to be complete; all offsets below are complete."""
        return self._position

    @property
    def quarantines(self) -> int:
        """Total number of offsets that were given up, including those no longer listed."""
        return self._quarantines

    def complete(self, first: int, end: int | None = None, *, at: float | None = None) -> int:
        """Mark offsets ``first`` to ``end - 1``, or only ``first``, complete; return the position.

        The call is idempotent.

        Args:
            first: The first complete offset.
            end: The offset after the last complete one; by default ``first + 1``.
            at: The time of the call; by default that of ``clock``.

        Raises:
            ConfigError: ``end`` is below ``first``.

        """
        if end is None:
            end = first + 1
        elif end <= first:
            if end < first:
                raise ConfigError(
                    f"the range {first} to {end} ends before it begins; end is exclusive"
                )
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
        """Note a failed attempt at an offset; return the number of failed attempts.

        The number is 0 if the offset is complete: completion is final, and the call is a no-op.

        Args:
            offset: The offset of the record.
            why: Why the attempt failed.
            at: The time of the failure; by default that of ``clock``.

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
        """Give up an offset, which counts as complete from now on; return the position.

        Write the record to a dead-letter queue first: if the program crashes in between, the record
        is replayed and parked twice, not lost. If the offset is complete, the call is a no-op.

        Args:
            offset: The offset of the record.
            why: The reason; by default that of the last failure.
            at: The time of the call; by default that of ``clock``.

        """
        if self._is_complete(offset):
            return self._position
        at = self._clock() if at is None else at
        failures = self._failures.get(offset, Failures())
        self._quarantined.append(Quarantined(offset, at, why or failures.why, failures))
        self._quarantines += 1
        return self.complete(offset, at=at)

    def pinned(self) -> Pin | None:
        """Return the offset that holds the frontier back, or None.

        An offset holds the frontier back if it is the position, and either an attempt at it has
        failed or some offset above it is complete. Without such evidence the record may not exist
        yet, and the result is None. ``since`` is the time of the call that made this true: the call
        that moved the frontier to this offset, or a later one.
        """
        if self._since is None:
            return None
        failures = self._failures.get(self._position, Failures())
        return Pin(self._position, self._since, failures)

    def quarantined(self) -> list[Quarantined]:
        """Return the last ``remember`` offsets that were given up, in the order of the calls."""
        return list(self._quarantined)

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Yield the incomplete ranges below complete offsets as (first, end); end is exclusive.

        The ranges are computed lazily: do not call :meth:`complete` during the iteration.
        """
        start = self._position
        for first, end in self._ahead.runs():
            if first > start:
                yield start, first
            start = max(start, end)

    def _is_complete(self, offset: int) -> bool:
        return offset < self._position or offset in self._ahead

    def _forget(self, first: int, end: int) -> None:
        """Forget the failures of offsets that are now complete."""
        if end - first == 1:
            self._failures.pop(first, None)
        else:
            for offset in list(self._failures.irange(first, end - 1)):
                del self._failures[offset]

    def _move(self, position: int, at: float | None) -> int:
        """Move to a new position, below which all is complete, and past complete offsets there."""
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
    """The complete offsets above a frontier."""

    def __init__(self) -> None:
        self._pages: SortedDict[int, bytearray] = SortedDict()
        """offset // PAGE -> one byte per offset, 1 if the offset is complete."""
        self._ranges: SortedDict[int, int] = SortedDict()
        """Ranges of at least PAGE offsets, which never touch each other: first -> end."""

    def __contains__(self, offset: int) -> bool:
        page = self._pages.get(offset // PAGE)
        if page and page[offset % PAGE]:
            return True
        before = self._ranges.bisect_right(offset) - 1
        return before >= 0 and offset < int(self._ranges.peekitem(before)[1])

    def add(self, first: int, end: int) -> None:
        """Add the offsets ``first`` to ``end - 1``."""
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
        """Return the first incomplete offset from ``position`` on, and forget all below it."""
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
        """Yield the complete ranges, ordered by their first offset; some touch or overlap."""
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
