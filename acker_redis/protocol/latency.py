"""How long trees took from their first row to their ack: Storm's complete latency, as a histogram.

The scripts count it, so it is the same whoever asks. A tree that has waited for its block, or for
its block's expiry, took until then: that is when its source was told.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

DIGITS = 32
"""Binary digits that an age has at most: what took 2^31 ms or longer, 24 days, counts as that."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Acked trees by the number of binary digits of the milliseconds that they took.

    >>> latency = Latency((0, 1, 0, 3), 20)  # one took 1 ms, three 4 to 7 ms
    >>> latency.count, latency.upper_ms, latency.mean_ms, latency.quantile_ms(0.5)
    (4, (1, 2, 4, 8), 5.0, 5.333333333333333)
    """

    counts: tuple[int, ...] = ()
    """Trees by digits: 0 ms, 1, 2 to 3, 4 to 7, .. ms; without zeros at the end."""
    sum_ms: int = 0
    """What all of them took together."""

    @classmethod
    def from_meta(cls, meta: Mapping[str, str]) -> "Latency":
        """Read the fields ``latency:<digits>`` and ``latency_ms``.

        What is no count, because somebody has tampered with it, is 0: a figure keeps nobody from
        reading the state.
        """
        counts = [_count(meta.get(f"latency:{digits}", "")) for digits in range(DIGITS)]
        return cls(_cut(counts), _count(meta.get("latency_ms", "")))

    @classmethod
    def total(cls, parts: Iterable["Latency"]) -> "Latency":
        """Those of all shards together."""
        each = list(parts)
        counts = zip_longest(*(one.counts for one in each), fillvalue=0)
        return cls(tuple(map(sum, counts)), sum(one.sum_ms for one in each))

    def plus(self, age_ms: int, trees: int = 1) -> "Latency":
        """With trees that took so long, as the scripts count them."""
        age_ms = min(max(0, age_ms), 2 ** (DIGITS - 1) - 1)
        added = (0,) * age_ms.bit_length() + (trees,)
        return Latency.total([self, Latency(added, age_ms * trees)])

    @property
    def count(self) -> int:
        """Trees."""
        return sum(self.counts)

    @property
    def upper_ms(self) -> tuple[int, ...]:
        """For each of ``counts``, what its trees took less than."""
        return tuple(2**digits for digits in range(len(self.counts)))

    @property
    def mean_ms(self) -> float:
        """What one took on average; nan if there is none."""
        return self.sum_ms / self.count if self.count else math.nan

    def quantile_ms(self, q: float) -> float:
        """What the share ``q`` of the trees took at most, in ms; nan if there is none.

        Within a count trees are taken to be spread evenly, as Prometheus's histogram_quantile does:
        a figure that is right to a factor of two, and mostly better.
        """
        rank, below = q * self.count, 0
        for upper, count in zip(self.upper_ms, self.counts, strict=True):
            if count and below + count >= rank:
                lower = upper // 2 if upper > 1 else 0
                return lower + (upper - lower) * max(0.0, rank - below) / count
            below += count
        return math.nan


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0


def _cut(counts: list[int]) -> tuple[int, ...]:
    while counts and not counts[-1]:
        counts.pop()
    return tuple(counts)
