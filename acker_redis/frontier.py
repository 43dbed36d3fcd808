"""Below which offset everything is complete: what a source may commit."""

from collections.abc import Iterator

from sortedcontainers import SortedDict

from acker_redis.errors import ConfigError


class Frontier:
    """The frontier of one partition, from completions in any order, one by one or by ranges.

    A range costs O(log n) in the ranges that are complete above the frontier, however many
    offsets it has; what was complete before may come again.

    >>> frontier = Frontier(100)
    >>> frontier.complete(103, 110)
    100
    >>> frontier.complete(100, 102)
    102
    >>> list(frontier.gaps())
    [(102, 103)]
    >>> frontier.complete(102)
    110
    """

    def __init__(self, position: int = 0) -> None:
        self._position = position
        self._ahead: SortedDict[int, int] = SortedDict()
        """Ranges above the frontier that are complete, none touching another: first -> end."""

    @property
    def position(self) -> int:
        """The lowest offset that is not known to be complete: all below it are."""
        return self._position

    def complete(self, first: int, end: int | None = None) -> int:
        """Offsets ``first`` to ``end - 1``, or ``first`` alone, are complete; returns the position.

        Raises ConfigError for a range that ends before it begins.
        """
        end = first + 1 if end is None else end
        if end < first:
            raise ConfigError(f"offsets {first} to {end} are no range")
        first = max(first, self._position)
        if first >= end:
            return self._position
        before = self._ahead.bisect_right(first) - 1
        if before >= 0 and self._ahead.peekitem(before)[1] >= first:
            first, reaches = self._ahead.popitem(before)
            end = max(end, reaches)
        after = self._ahead.bisect_left(first)
        while after < len(self._ahead) and self._ahead.peekitem(after)[0] <= end:
            end = max(end, self._ahead.popitem(after)[1])
        if first == self._position:
            self._position = end
        else:
            self._ahead[first] = end
        return self._position

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Ranges that hold the frontier back, below what is complete: first, and end."""
        start = self._position
        for first, end in self._ahead.items():
            yield start, first
            start = end
