"""Acks per second that a frontier takes in, beside what else one might do.

    python benchmarks/frontier.py [--offsets 1000000] [--rounds 3]

One partition, single acks. The sides take turns, round by round; the median of each is printed.
``Frontier`` has the target: 500,000 acks/s with a million offsets in flight.

- ``random``: all offsets in random order.
- ``odd last``: the odd ones in random order, then the even ones, the first of all last: half of
  the offsets are complete before the frontier moves, none beside another.
- ``window``: nearly in order, each ack up to 1000 places early or late.
- ``in order``: what most partitions see, most of the time.
- ``4095``: ranges of that many offsets in random order, as blocks give them; offsets a second.

- ``Frontier``: ours.
- ``intervals``: the ranges that are complete, in one SortedDict.
- ``heap``: what is complete, in a heapq; it can tell no gaps.
- ``set``: what is complete, in a set.

Behind them, at the worst moment of ``odd last``: MB that a side holds, ms until it has named
all gaps, and until it has named the first ten.
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
        """The lowest offset that is not known to be complete."""

    def complete(self, first: int, end: int | None = None) -> int:
        """Complete one offset, or a range; returns the position."""

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Ranges that hold the frontier back."""


class Intervals:
    """The ranges ahead, none touching another, in a SortedDict: first -> end."""

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
    """Offsets ahead in a heap."""

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
    """Offsets ahead in a set."""

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
    """Gaps between sorted offsets."""
    for offset in ahead:
        if offset > start:
            yield start, offset
        start = offset + 1


def seconds(kind: type[Side], acks: list[int], length: int | None) -> float:
    """Seconds that a side takes for all acks, or for a range of that length from each on."""
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
    """Name -> order of acks, and the length of each if it is a range."""
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
    """MB, ms for all gaps, ms for ten, while every other offset is complete."""
    odd = random.Random(1).sample(range(1, offsets, 2), offsets // 2)
    tracemalloc.start()
    side = kind()
    for number in range(len(odd)):
        # A source has not kept the number that it read from a verdict.
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
