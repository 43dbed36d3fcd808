"""Measure the seconds to fold and pack two columns (anchor, delta), and those of alternatives.

    python benchmarks/columns.py [--rows 10000000] [--blocks 500] [--rounds 5]

The rows are in random order. The sides take turns, round by round. The benchmark prints the median
of each side, and the median of the ratios.

- ``sum``: reads both columns once, the lower bound.
- ``argsort``: numpy computes the order of the anchors only.
- ``ColumnBatch``: fold, choose dense or sparse, pack, cut into calls that are ready to be sent. The
  target is for this figure: 10 million rows over 500 blocks in less than 1.5 s.
- ``loose``: the same rows on loose anchors, one in five of them distinct.
- ``without numpy``: a hundredth of the rows in plain Python, times a hundred.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from acker_redis import ColumnBatch
from acker_redis.batching import column_batch
from acker_redis.batching.fold_numpy import NumpyFold
from acker_redis.batching.fold_plain import PlainFold
from acker_redis.protocol.ids import ANCHOR_MAX, SLOTS


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def plain(anchors: list[int], deltas: list[int]) -> None:
    """Fold and pack without numpy."""
    column_batch.fold = PlainFold  # type: ignore[assignment]
    ColumnBatch(anchors, deltas).parts()
    column_batch.fold = NumpyFold  # type: ignore[assignment]


def measure(rows: int, blocks: int, rounds: int) -> None:
    """Print the table."""
    chance = np.random.default_rng(1)
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        numbers = chance.integers(0, 2**50, blocks)[chance.integers(0, blocks, rows)]
        anchors = ANCHOR_MAX + 1 | numbers << 12 | chance.integers(0, SLOTS, rows)
        loose = chance.integers(1, ANCHOR_MAX, rows // 5)[chance.integers(0, rows // 5, rows)]
        deltas = chance.integers(1, 2**63 - 1, rows)
        few = anchors[: rows // 100].tolist(), deltas[: rows // 100].tolist()
        for name, work in (
            ("sum", lambda a=anchors, d=deltas: (a.sum(), d.sum())),
            ("argsort", lambda a=anchors: np.argsort(a)),
            ("ColumnBatch", lambda a=anchors, d=deltas: ColumnBatch(a, d).parts()),
            ("loose", lambda a=loose, d=deltas: ColumnBatch(a, d).parts()),
        ):
            times.setdefault(name, []).append(seconds(work))
        took = seconds(lambda few=few: plain(*few))
        times.setdefault("without numpy", []).append(100 * took)
    print(f"{rows:,} rows over {blocks} blocks of {SLOTS}, numpy {np.__version__}")
    print(f"{'':14} {'s':>8} {'rows/s':>14} {'of argsort':>11}")
    for name, took_each in times.items():
        took = statistics.median(took_each)
        pairs = zip(times["argsort"], took_each, strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        print(f"{name:14} {took:8.2f} {rows / took:14,.0f} {ratio:11.2f}")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--blocks", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    measure(args.rows, args.blocks, args.rounds)


if __name__ == "__main__":
    main()
