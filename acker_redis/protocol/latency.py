"""Complete latency as in Storm: the time from a tree's first row to its ack, as a histogram.

The scripts count it, so every reader gets the same figures. A tree in a block is acked when its
block completes or expires; its latency includes that wait.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from acker_redis.protocol.stored import counted

DIGITS = 32
"""Maximum binary digits of an age: 2^31 ms (24 days) or longer counts as 2^31 - 1 ms."""


@dataclass(frozen=True, slots=True)
class Latency:
    """A histogram of acked trees by the number of binary digits of their latency in milliseconds.

    >>> latency = Latency((0, 1, 0, 3), 20)  # one took 1 ms, three 4 to 7 ms
    >>> latency.count, latency.upper_ms, latency.mean_ms, latency.quantile_ms(0.5)
    (4, (1, 2, 4, 8), 5.0, 5.333333333333333)
    """

    counts: tuple[int, ...] = ()
    """Number of trees by digits: 0 ms, 1, 2 to 3, 4 to 7, .. ms; without zeros at the end."""
    sum_ms: int = 0
    """Sum of the latencies of all trees, in ms."""

    @classmethod
    def from_meta(cls, meta: Mapping[str, str]) -> "Latency":
        """Return the histogram in the fields ``latency:<digits>`` and ``latency_ms``.

        An invalid count (tampered with) is read as 0, so that it does not prevent reading the
        state.
        """
        counts = [counted(meta.get(f"latency:{digits}", "")) for digits in range(DIGITS)]
        return cls(_cut(counts), counted(meta.get("latency_ms", "")))

    @classmethod
    def total(cls, parts: Iterable["Latency"]) -> "Latency":
        """Return the sum of the histograms of all shards."""
        each = list(parts)
        counts = zip_longest(*(one.counts for one in each), fillvalue=0)
        return cls(tuple(map(sum, counts)), sum(one.sum_ms for one in each))

    def plus(self, age_ms: int, trees: int = 1) -> "Latency":
        """Return the histogram with ``trees`` more of this age, counted as the scripts do."""
        age_ms = min(max(0, age_ms), 2 ** (DIGITS - 1) - 1)
        added = (0,) * age_ms.bit_length() + (trees,)
        return Latency.total([self, Latency(added, age_ms * trees)])

    @property
    def count(self) -> int:
        """Number of trees."""
        return sum(self.counts)

    @property
    def upper_ms(self) -> tuple[int, ...]:
        """The exclusive upper bound of each of ``counts``, in ms."""
        return tuple(2**digits for digits in range(len(self.counts)))

    @property
    def mean_ms(self) -> float:
        """Mean latency in ms; nan if there are no trees."""
        return self.sum_ms / self.count if self.count else math.nan

    def quantile_ms(self, q: float) -> float:
        """Return the quantile ``q`` (0 .. 1) of the latency in ms; nan if there are no trees.

        The quantile is interpolated linearly within a count, as Prometheus's histogram_quantile
        does. It is correct to a factor of two, and usually better.
        """
        rank, below = q * self.count, 0
        for upper, count in zip(self.upper_ms, self.counts, strict=True):
            if count and below + count >= rank:
                lower = upper // 2 if upper > 1 else 0
                return lower + (upper - lower) * max(0.0, rank - below) / count
            below += count
        return math.nan


def _cut(counts: list[int]) -> tuple[int, ...]:
    while counts and not counts[-1]:
        counts.pop()
    return tuple(counts)
