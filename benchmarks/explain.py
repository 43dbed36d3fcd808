"""Measure ``acker_redis.spark.explain`` beside a plain join of the same tables, in one run.

    python benchmarks/explain.py [--messages 10000000] [--trees 100000] [--rounds 3] [--cores 2]

The tables are Parquet: the verdicts of expired trees (anchor, residual), and messages with their
anchor, tuple and a text. Of the trees, 85 % miss one message, 10 % two and 5 % three.

- ``few``: five messages to a tree. Most messages belong to trees that did not expire.
- ``all``: all messages belong to expired trees.

``join`` is the floor: the messages joined to the verdicts, and counted. With ``broadcast`` the
verdicts have that hint. Each answer is compared with the messages that were left out.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_flights import session
from acker_redis.spark import explain

Ints = npt.NDArray[np.int64]


def write(folder: Path, messages: int, trees: int, per_tree: int) -> int:
    """Write messages and verdicts; return the number of messages that are missing."""
    chance = np.random.default_rng(1)
    every = messages // per_tree
    anchors = chance.integers(1, 2**62, every)
    ids = chance.integers(1, 2**55, (every, per_tree)) | 1 << 55
    counts = chance.choice([1, 2, 3], trees, p=[0.85, 0.1, 0.05])
    missing = np.arange(per_tree) < counts[:, None]
    residuals = np.bitwise_xor.reduce(np.where(missing, ids[:trees], 0), axis=1)
    folder.mkdir()
    verdicts = pa.table({"anchor": anchors[:trees], "residual": residuals})
    pq.write_table(verdicts, folder / "verdicts.parquet")
    order = chance.permutation(every * per_tree)
    columns = {"anchor": np.repeat(anchors, per_tree)[order], "tuple": ids.reshape(-1)[order]}
    texts = pa.array([f"order-{n:08d}" for n in range(1000)])
    columns["text"] = texts.take(pa.array(order % 1000))
    pq.write_table(pa.table(columns), folder / "messages.parquet", row_group_size=1_000_000)
    return int(counts.sum())


class Bench:
    """A session and two tables."""

    def __init__(self, spark: SparkSession, folder: Path, missing: int, rounds: int) -> None:
        self._spark, self._folder, self._missing, self._rounds = spark, folder, missing, rounds

    def read(self, name: str) -> DataFrame:
        """Return a new plan that reads a table."""
        return self._spark.read.parquet(str(self._folder / f"{name}.parquet"))

    def join(self, verdicts: DataFrame) -> None:
        """Join all messages to the verdicts, and count them with a column that is used."""
        joined = self.read("messages").join(verdicts, "anchor")
        joined.agg(F.count("*"), F.max("text"), F.bit_xor("tuple")).collect()

    def explain(self, verdicts: DataFrame) -> None:
        """Explain all verdicts. Exits with an error if the answer is wrong."""
        found = explain(verdicts, self.read("messages"))
        counts = found.groupBy("found").agg(F.count("*"), F.max("text")).collect()
        answers = {row[0]: row[1] for row in counts}
        if answers != {"found": self._missing}:
            raise SystemExit(f"{self._missing} messages are missing, and explain says {answers}")

    def turns(self, what: str) -> None:
        """Time both sides in turns, and print the medians."""
        works: dict[str, Callable[[], None]] = {
            "join": lambda: self.join(self.read("verdicts")),
            "explain": lambda: self.explain(self.read("verdicts")),
            "join, broadcast": lambda: self.join(F.broadcast(self.read("verdicts"))),
            "explain, broadcast": lambda: self.explain(F.broadcast(self.read("verdicts"))),
        }
        times: dict[str, list[float]] = {name: [] for name in works}
        for turn in range(self._rounds + 1):
            for name, work in works.items():
                began = time.perf_counter()
                work()
                if turn:  # the first warms up
                    times[name].append(time.perf_counter() - began)
        for name, each in times.items():
            load = os.getloadavg()[0]
            print(
                f"{what:6}{name:22}{statistics.median(each):8.1f} s   load {load:.1f}", flush=True
            )


def main() -> None:
    """Read the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=10_000_000)
    arguments.add_argument("--trees", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--cores", type=int, default=2)
    arguments.add_argument("--only", choices=["few", "all"])
    given = arguments.parse_args()
    if advice := session.missing_java():
        raise SystemExit(advice)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acker-bench-")))
        spark = stack.enter_context(session.started(folder / "spark", given.cores))
        print(
            f"Spark {spark.version} on {given.cores} cores, {given.trees:,} expired trees, "
            f"{given.messages:,} messages, {given.rounds} rounds"
        )
        for what, per_tree in (("few", 5), ("all", given.messages // given.trees)):
            if given.only in (None, what):
                missing = write(folder / what, given.messages, given.trees, per_tree)
                Bench(spark, folder / what, missing, given.rounds).turns(what)


if __name__ == "__main__":
    main()
