"""Measure the acks per second of a frontier, and of simpler structures.

    python benchmarks/frontier.py [--offsets 1000000] [--rounds 3]

One partition, single acks. The sides take turns, round by round; the benchmark prints the median of
each. The target is for ``Frontier``: 500,000 acks/s with a million offsets in flight.

The orders of the acks:

- ``random``: all offsets in random order.
- ``odd last``: the odd offsets in random order, then the even ones, with offset 0 last: half of the
  offsets are complete before the frontier moves, and no two of them are adjacent.
- ``window``: nearly in order, each ack up to 1000 places early or late.
- ``in order``: the usual order in most partitions.
- ``4095``: ranges of 4095 offsets in random order, as from blocks; the figure counts offsets.

The sides:

- ``Frontier``: that of the package.
- ``intervals``: the complete ranges, in one SortedDict.
- ``heap``: the complete offsets, in a heapq; it has to sort them to list gaps.
- ``set``: the complete offsets, in a set.

The last columns are for the worst moment of ``odd last``: MB of memory, ms to list all gaps, and ms
to list the first ten.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import random
import statistics
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from sortedcontainers import SortedDict

from acker_redis import Frontier

BLOCK = 4095


class Side(Protocol):
    """A frontier."""

    @property
    def position(self) -> int:
        """The lowest offset that is not complete."""

    def complete(self, first: int, end: int | None = None) -> int:
        """Complete one offset or a range; return the position."""

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges that hold the frontier back."""


class Intervals:
    """The complete ranges, no two of them adjacent, in a SortedDict: first -> end."""

    def __init__(self) -> None:
        self.position = 0
        self._ahead: SortedDict[int, int] = SortedDict()

    def complete(self, first: int, end: int | None = None) -> int:
        """See Side."""
        end = first + 1 if end is None else end
        first = max(first, self.position)
        if first >= end:
            return self.position
        before = self._ahead.bisect_right(first) - 1
        if before >= 0 and self._ahead.peekitem(before)[1] >= first:
            first, reaches = self._ahead.popitem(before)
            end = max(end, reaches)
        after = self._ahead.bisect_left(first)
        while after < len(self._ahead) and self._ahead.peekitem(after)[0] <= end:
            end = max(end, self._ahead.popitem(after)[1])
        if first == self.position:
            self.position = end
        else:
            self._ahead[first] = end
        return self.position

    def gaps(self) -> Iterator[tuple[int, int]]:
        """See Side."""
        start = self.position
        for first, end in self._ahead.items():
            yield start, first
            start = end


class Heap:
    """The complete offsets in a heap."""

    def __init__(self) -> None:
        self.position = 0
        self._ahead: list[int] = []

    def complete(self, first: int, end: int | None = None) -> int:
        """See Side."""
        for offset in (first,) if end is None else range(first, end):
            heapq.heappush(self._ahead, offset)
        while self._ahead and self._ahead[0] <= self.position:
            self.position = max(self.position, heapq.heappop(self._ahead) + 1)
        return self.position

    def gaps(self) -> Iterator[tuple[int, int]]:
        """See Side."""
        return between(self.position, sorted(self._ahead))


class Set:
    """The complete offsets in a set."""

    def __init__(self) -> None:
        self.position = 0
        self._ahead: set[int] = set()

    def complete(self, first: int, end: int | None = None) -> int:
        """See Side."""
        if end is None:
            if first >= self.position:
                self._ahead.add(first)
        else:
            self._ahead.update(range(max(first, self.position), end))
        while self.position in self._ahead:
            self._ahead.remove(self.position)
            self.position += 1
        return self.position

    def gaps(self) -> Iterator[tuple[int, int]]:
        """See Side."""
        return between(self.position, sorted(self._ahead))


SIDES: dict[str, type[Side]] = {
    "Frontier": Frontier,
    "intervals": Intervals,
    "heap": Heap,
    "set": Set,
}


def between(start: int, ahead: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the gaps between sorted offsets."""
    for offset in ahead:
        if offset > start:
            yield start, offset
        start = offset + 1


def seconds(kind: type[Side], acks: list[int], length: int | None) -> float:
    """Return the seconds of a side for all acks; with ``length``, each ack is a range."""
    side = kind()
    complete = side.complete
    gc.collect()
    start = time.perf_counter()
    if length is None:
        for offset in acks:
            complete(offset)
    else:
        for offset in acks:
            complete(offset, offset + length)
    took = time.perf_counter() - start
    if side.position != len(acks) * (length or 1) or list(side.gaps()):
        raise SystemExit(f"{kind.__name__} is wrong: it is at {side.position}")
    return took


def orders(offsets: int, chance: random.Random) -> dict[str, tuple[list[int], int | None]]:
    """Return by name the order of the acks, and the length of each ack if it is a range."""
    shuffled = chance.sample(range(offsets), offsets)
    odd = [offset for offset in shuffled if offset % 2]
    even = [offset for offset in shuffled if not offset % 2 and offset]
    window = sorted(range(offsets), key=lambda offset: offset + chance.random() * 1000)
    blocks = chance.sample(range(0, offsets // BLOCK * BLOCK, BLOCK), offsets // BLOCK)
    return {
        "random": (shuffled, None),
        "odd last": ([*odd, *even, 0], None),
        "window": (window, None),
        "in order": (list(range(offsets)), None),
        str(BLOCK): (blocks, BLOCK),
    }


def worst(kind: type[Side], offsets: int) -> tuple[float, float, float]:
    """Return MB, ms for all gaps and ms for ten gaps, with every other offset complete."""
    odd = random.Random(1).sample(range(1, offsets, 2), offsets // 2)
    tracemalloc.start()
    side = kind()
    for number in range(len(odd)):
        # A new int for each offset, as a source parses it from a verdict.
        side.complete(int(str(odd[number])))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    start = time.perf_counter()
    found = sum(1 for _ in side.gaps())
    everything = time.perf_counter() - start
    if found != offsets // 2:
        raise SystemExit(f"{kind.__name__} is wrong: {found} gaps")
    start = time.perf_counter()
    list(islice(side.gaps(), 10))
    return size / 1e6, everything * 1e3, (time.perf_counter() - start) * 1e3


def measure(offsets: int, rounds: int) -> None:
    """Print the table."""
    chance = random.Random(1)
    times: dict[tuple[str, str], list[float]] = {}
    names: dict[str, int] = {}
    for _ in range(rounds):
        for order, (acks, length) in orders(offsets, chance).items():
            names[order] = len(acks) * (length or 1)
            for name, kind in SIDES.items():
                times.setdefault((name, order), []).append(seconds(kind, acks, length))
    print(f"{offsets:,} offsets in flight, {rounds} rounds, acks/s")
    print(f"{'':10}" + "".join(f"{order:>14}" for order in names), end="")
    print(f"{'MB':>8}{'ms, gaps':>10}{'ten':>9}")
    for name, kind in SIDES.items():
        rates = (n / statistics.median(times[name, order]) for order, n in names.items())
        size, everything, ten = worst(kind, offsets)
        print(f"{name:10}" + "".join(f"{rate:14,.0f}" for rate in rates), end="")
        print(f"{size:8.1f}{everything:10.1f}{ten:9.3f}")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--offsets", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    measure(args.offsets, args.rounds)


if __name__ == "__main__":
    main()
