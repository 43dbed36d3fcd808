"""Measure acks from Spark, each compared with the same read alone, in one run.

    python benchmarks/spark.py [--messages 10000000] [--rounds 5] [--cores 2]

A Parquet table of messages (anchor, tuple), five to a tree, is read and acked through
``acker.ack(df)``, and read and counted in Python (``mapInArrow``, the *no-op*), in turns.

- ``blocks``: trees in blocks, the messages of a tree adjacent (clustered) or in random order.
- ``gaps``: Redis's memory for a hundredth as many records, of which the numbers have gaps: in
  blocks, and in loose trees.
- ``loose``: a tenth of the messages, of loose trees with one record each in Redis, compared with a
  read, shuffle and ``bit_xor`` that end in the no-op.
- ``ids``: ids of half as many strings, derived with the salt, compared with a plain ``xxhash64``.
- ``memory``: the driver's heap and the memory of its Python after a batch, for two sizes.

``redis`` is the CPU time of Redis, from INFO, as a share of the run.
"""

import argparse
import contextlib
import gc
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_flights import session
from acker_redis import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.ids import SLOTS
from acker_redis.spark import Acker, Ids, counted
from acker_redis.sync import client

NAMESPACE, SOURCE = "bench-spark", "bench"
PER_TREE = 5
Ints = npt.NDArray[np.int64]


class Bench:
    """A Redis, a session, and the tables."""

    def __init__(self, spark: SparkSession, url: str, folder: Path, rounds: int) -> None:
        self.spark, self.url, self.folder, self.rounds = spark, url, folder, rounds
        self.direct = client.Acker.from_url(url, NAMESPACE, timeout=60)
        self.batches = 0
        self._random = np.random.default_rng(1)

    def begin(self) -> Acker:
        """Start with an empty namespace; return its acker."""
        self.direct.connection.client.flushall()
        huge = 10**9
        self.direct.create(AckerConfig(high_water=huge, outcomes_limit=huge, tick_ms=3_600_000))
        return Acker(self.spark, NAMESPACE, app_id="bench", url=self.url, mode="executors")

    def batch(self) -> int:
        """Return a number that no batch had."""
        self.batches += 1
        return self.batches

    def table(self, name: str, **columns: Any) -> DataFrame:
        """Write a Parquet table, and return it as a DataFrame."""
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            pq.write_table(pa.table(columns), path, row_group_size=1_000_000)
        return self.spark.read.parquet(str(path))

    def messages(self, anchors: Ints, clustered: bool, name: str) -> tuple[str, Ints]:
        """Write messages of these trees; return the table's name and the delta of each track."""
        ids = self._random.integers(1, 2**63 - 1, PER_TREE * len(anchors))
        deltas = np.bitwise_xor.reduceat(ids, np.arange(0, len(ids), PER_TREE))
        column = np.repeat(anchors, PER_TREE)
        if not clustered:
            order = self._random.permutation(len(ids))
            column, ids = column[order], ids[order]
        self.table(name, anchor=column, tuple=ids)
        return name, deltas

    def read(self, name: str) -> DataFrame:
        """Return a new plan that reads a table."""
        return self.spark.read.parquet(str(self.folder / f"{name}.parquet"))

    def turns(
        self, what: str, plain: Callable[[], Any], ours: Callable[[], Any], count: int,
        prepare: Callable[[], Any] = lambda: None,
    ) -> None:  # fmt: skip
        """Time both sides in turns, and print the medians."""
        times: list[tuple[float, float, float]] = []
        for turn in range(self.rounds + 1):
            prepare()
            first, _ = self.clock(plain)
            second, busy = self.clock(ours)
            if turn:  # the first warms up
                times.append((first, second, busy))
        plains, owns, busies = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(own / plain for plain, own, _ in times)
        print(
            f"{what:22}{plains:9.2f} s{owns:9.2f} s{ratio:8.2f}x"
            f"{count / owns / 1e6:9.2f} M/s{busies / owns:9.0%}",
            flush=True,
        )

    def clock(self, work: Callable[[], Any]) -> tuple[float, float]:
        """Return the seconds of the clock, and the CPU seconds of Redis."""
        before, began = self._busy(), time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        return seconds, self._busy() - before

    def used(self) -> int:
        """Return the bytes that Redis uses."""
        return int(self.direct.connection.client.info("memory")["used_memory"])

    def _busy(self) -> float:
        info = self.direct.connection.client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def noop(df: DataFrame) -> None:
    """Read all rows into Python, and drop them."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"n": pa.array([rows], pa.int64())})

    df.mapInArrow(count, "n BIGINT").collect()


def block_anchors(trees: int) -> tuple[Ints, list[tuple[str, int]]]:
    """Return the anchors of trees in full blocks, and the labels and numbers of the blocks."""
    labels = [f"bench {base}" for base in range(0, trees, SLOTS)]
    numbers = np.arange(len(labels)) + 10**12
    places = np.arange(trees)
    anchors = 1 << 62 | numbers[places // SLOTS] << 12 | places % SLOTS
    return anchors, list(zip(labels, numbers.tolist(), strict=True))


def acks_in_blocks(bench: Bench, messages: int, clustered: bool) -> None:
    """Measure acks of all messages of trees in blocks."""
    anchors, blocks = block_anchors(messages // PER_TREE)
    kind = "clustered" if clustered else "random"
    name, deltas = bench.messages(anchors, clustered, f"blocks-{kind}")
    acker = bench.begin()

    def prepare() -> None:
        bench.begin()
        for at, (label, number) in enumerate(blocks):
            bench.direct.track_block(SOURCE, label, deltas[at * SLOTS : (at + 1) * SLOTS], number)

    def ours() -> None:
        acker.ack(bench.read(name), bench.batch(), query_id="acks")
        acked = bench.direct.status().counters["acked"]
        if acked != len(anchors):
            raise SystemExit(f"{acked} of {len(anchors)} trees are acked")

    bench.turns(f"acks, {kind}", lambda: noop(bench.read(name)), ours, messages, prepare)


def gaps(bench: Bench, records: int) -> None:
    """Print Redis's memory for records whose numbers have gaps, in blocks and in loose trees."""
    print(f"\n{records:,} records{'in blocks':>12}{'loose':>12}")
    loose = F.concat_ws("/", F.lit("bench"), "offset")
    for step in (1, 2, 4, 8):
        name = f"gaps-{step}"
        bench.table(name, offset=np.arange(0, records * step, step))
        used = []
        for ids in (counted(F.lit("bench"), number="offset"), loose):
            acker = bench.begin()
            before = bench.used()
            with acker.batch(bench.read(name), bench.batch(), query_id="gaps") as b:
                b.track(source=SOURCE, source_id=ids)
            used.append((bench.used() - before) / records)
        print(f"1 of {step} numbers  {used[0]:12.1f} B{used[1]:10.1f} B", flush=True)


def acks_of_loose(bench: Bench, messages: int) -> None:
    """Measure acks of all messages of loose trees."""
    anchors = np.unique(np.random.default_rng(3).integers(1, 2**62 - 1, messages // PER_TREE))
    name, deltas = bench.messages(anchors, clustered=False, name="loose")
    acker = bench.begin()

    def prepare() -> None:
        bench.begin()
        rows = bench.spark.createDataFrame(
            pa.table({"anchor": anchors, "delta": deltas, "text": [f"{n:x}" for n in anchors]})
        )
        from acker_redis.spark.fold.apply import Job, Terms, apply
        from acker_redis.spark.fold.terms import Kind

        job = Job(
            acker.application.target,
            1,
            acker.application.lane("prepare"),
            bench.batch(),
            source=SOURCE,
        )
        apply(job, [Terms(Kind.TRACK, lambda: rows)], "driver")

    def plain() -> None:
        folded = bench.read(name).groupBy("anchor").agg(F.bit_xor("tuple").alias("delta"))
        noop(folded)

    def ours() -> None:
        acker.ack(bench.read(name), bench.batch(), query_id="loose")
        acked = bench.direct.status().counters["acked"]
        if acked != len(anchors):
            raise SystemExit(f"{acked} of {len(anchors)} trees are acked")

    bench.turns("acks, loose", plain, ours, len(anchors) * PER_TREE, prepare)


def ids(bench: Bench, count: int) -> None:
    """Measure derived ids, compared with hashes of public inputs that anybody can compute."""
    bench.begin()
    maker = Ids(bench.spark, bench.direct.ids)
    numbers = np.arange(count)
    texts = pa.array([f"2024-05-01|shop|{n:08d}" for n in numbers])
    bench.table("strings", sid=texts, parent=numbers * 7919 + 1)

    def read(id_: Column) -> Callable[[], None]:
        # Not into an aggregate: some evaluate their argument twice.
        made = bench.read("strings").select(id_.alias("id"))
        return lambda: made.write.format("noop").mode("overwrite").save()

    name, key = F.concat_ws("|", F.lit("anchor|bench|"), "sid"), "sid"
    plain = F.xxhash64(F.lit(0), name)
    bench.turns("ids: anchors", read(plain), read(maker.anchor(key, source=SOURCE)), count)
    plain = F.xxhash64("parent", name)
    bench.turns("ids: children, key", read(plain), read(maker.tuple_id("parent", "e", key)), count)
    plain = F.xxhash64("parent", F.lit("tuple|e|"))
    bench.turns("ids: children", read(plain), read(maker.tuple_id("parent", "e")), count)
    bench.turns("ids: read alone", read(F.length("sid")), read(F.length("sid")), count)


def memory(bench: Bench, messages: int) -> None:
    """Print the driver's heap and the memory of its Python after batches of two sizes."""
    bench.messages(block_anchors(messages // PER_TREE)[0], clustered=False, name="blocks-random")
    print(f"\n{'driver, after':22}{'heap':>11}{'Python':>11}")
    acker = bench.begin()
    for count in (messages // 10, messages):
        rows = (
            bench.read("blocks-random").limit(count)
            if count < messages
            else bench.read("blocks-random")
        )
        acker.ack(rows, bench.batch(), query_id="memory")
        runtime = bench.spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        bench.spark.sparkContext._jvm.java.lang.System.gc()  # type: ignore[union-attr]
        gc.collect()
        heap = (runtime.totalMemory() - runtime.freeMemory()) / 2**20
        python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(f"{count:14,} messages{heap:8.0f} MiB{python:8.0f} MiB", flush=True)


def main() -> None:
    """Read the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=10_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--cores", type=int, default=2)
    arguments.add_argument("--only", choices=["blocks", "gaps", "loose", "ids", "memory"])
    given = arguments.parse_args()
    advice = session.missing_java()
    if advice:
        raise SystemExit(advice)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis(tcp=True))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acker-bench-")))
        spark = stack.enter_context(session.started(folder / "spark", given.cores))
        bench = Bench(spark, server.url, folder, given.rounds)
        print(
            f"{server.description}, Spark {spark.version} on {given.cores} cores, "
            f"{given.messages:,} messages of {given.messages // PER_TREE:,} trees, "
            f"{given.rounds} rounds\n{'':22}{'plain':>11}{'acker':>11}{'':9}{'':13}{'redis':>9}"
        )
        if given.only in (None, "blocks"):
            acks_in_blocks(bench, given.messages, clustered=True)
            acks_in_blocks(bench, given.messages, clustered=False)
        if given.only in (None, "gaps"):
            gaps(bench, given.messages // PER_TREE // 20)
        if given.only in (None, "loose"):
            acks_of_loose(bench, given.messages // 10)
        if given.only in (None, "ids"):
            ids(bench, given.messages // 2)
        if given.only in (None, "memory"):
            memory(bench, given.messages)


if __name__ == "__main__":
    main()
