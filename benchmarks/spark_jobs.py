"""Measure whole tracked batches of Spark, each beside the same job without tracking, in turns.

    python benchmarks/spark_jobs.py [--rows 5000000] [--pairs 5] [--cores 2] [--only track-numbers]

Each job reads Parquet, projects, and writes Parquet; the tracked one also tells Redis.

- ``track-numbers``, ``track-texts``, ``track-ledger``: a first job, whose messages go to a queue.
- ``emit``, ``split``: a middle job that makes one message, or three, of each.
- ``last``: a last job that mentions each message: ``freeze``, ``write``, ``ack(rows)``.
- ``last-join``: the same after a join.
- ``last-all``: a last job that ends with ``b.ack()``.
- ``small``: batches of 1,000 and of 20,000 rows, with what a batch costs more.

``redis`` is the CPU time of Redis in the tracked job.
"""

import argparse
import contextlib
import itertools
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_flights import session
from acker_redis import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from acker_redis.spark import Acker, FileQueue, MicroBatch, counted
from acker_redis.sync import client

NAMESPACE, SOURCE = "bench-jobs", "bench"
Job = Callable[[], None]


class Bench:
    """A Redis, a session, the rows of the source, and a namespace for each tracked job."""

    def __init__(self, spark: SparkSession, url: str, folder: Path, rows: int, pairs: int) -> None:
        self.spark, self.url, self.folder, self.rows, self.pairs = spark, url, folder, rows, pairs
        self.direct = client.Acker.from_url(url, NAMESPACE, timeout=60)
        self._numbers = itertools.count()
        self.source = folder / "source"
        price = F.expr("(row * 37 % 1000) / 8.0D").alias("price")
        text = F.concat(F.lit("2024-05-01|shop|"), F.format_string("%08d", "row"))
        items = F.expr("array(row % 100, row % 77, row % 13)").alias("items")
        made = spark.range(0, rows, 1, 4).withColumnRenamed("id", "row")
        made.select("row", text.alias("name"), price, items).write.parquet(str(self.source))
        self.prices = spark.range(1000).selectExpr("id AS item", "id * 2.5D AS cost")
        self.acker = self.fresh()

    def fresh(self, **settings: Any) -> Acker:
        """Return the acker of an empty namespace."""
        self.direct.connection.client.flushall()
        huge = 10**9
        self.direct.create(AckerConfig(high_water=huge, outcomes_limit=huge, tick_ms=3_600_000))
        self.acker = Acker(self.spark, NAMESPACE, app_id="bench", url=self.url, **settings)
        return self.acker

    def new(self) -> Path:
        """Return a path of a new folder."""
        return self.folder / f"out-{next(self._numbers)}"

    def read(self, path: Path) -> DataFrame:
        """Return a new plan that reads Parquet files."""
        return self.spark.read.option("recursiveFileLookup", "true").parquet(str(path))

    def pair(self, name: str, plain: Job, tracked: Job, prepare: Job = lambda: None) -> None:
        """Run both in turns, and print medians."""
        times: list[tuple[float, float, float]] = []
        for turn in range(self.pairs + 1):
            one, _ = self._clock(plain)
            prepare()
            two, busy = self._clock(tracked)
            if turn:  # the first warms up
                times.append((one, two, busy))
            for each in self.folder.glob("out-*"):
                shutil.rmtree(each)
        ratios = sorted(two / one for one, two, _ in times)
        plains, ours, busies = (statistics.median(each) for each in zip(*times, strict=True))
        print(
            f"{name:16}{plains:9.3f} s{ours:9.3f} s{statistics.median(ratios):8.2f}x"
            f"   {ratios[0]:.2f} to {ratios[-1]:.2f}{busies:9.2f} s",
            flush=True,
        )

    def counted(self, name: str, least: int) -> None:
        """End the program unless Redis counts this number of trees or more."""
        found = self.direct.status().counters[name]
        if found < least:
            raise SystemExit(f"{name} is {found}, not {least}")

    def _clock(self, work: Job) -> tuple[float, float]:
        before, began = self._busy(), time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        return seconds, self._busy() - before

    def _busy(self) -> float:
        info = self.direct.connection.client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def projected(df: DataFrame) -> DataFrame:
    """Return what every job makes of its rows."""
    return df.withColumn("tax", F.col("price") * 0.19)


def joined(bench: Bench, df: DataFrame) -> DataFrame:
    """Return the rows with a column of a second table."""
    return projected(df).withColumn("item", F.expr("row % 1000")).join(bench.prices, "item")


def in_lines(df: DataFrame) -> DataFrame:
    """Return a row for each item."""
    return projected(df).withColumn("items", F.explode("items"))


def track(bench: Bench, source_id: Any, df: DataFrame | None = None) -> Path:
    """Track the rows of the source; return the folder of the queue of their messages."""
    path = bench.new()
    queue = FileQueue(path)
    rows = bench.read(bench.source) if df is None else df
    with bench.acker.batch(projected(rows), 0, query_id="track") as b:
        messages = b.track(source=SOURCE, source_id=source_id, queue=queue)
    b.hand_on(messages, queue)
    return path


def first(bench: Bench, name: str, source_id: Any, **settings: Any) -> None:
    """Measure a first job."""

    def prepare() -> None:
        more = {"ledger": str(bench.new())} if settings else {}
        bench.fresh(**more)

    def tracked() -> None:
        track(bench, source_id)
        bench.counted("tracked", bench.rows)

    bench.pair(name, lambda: write(bench, projected(bench.read(bench.source))), tracked, prepare)


def write(bench: Bench, df: DataFrame) -> None:
    """Write the rows as a job without tracking does: to a folder that is then renamed."""
    path = bench.new()
    df.write.parquet(str(path.with_name(f"_{path.name}")))
    path.with_name(f"_{path.name}").rename(path)


def later(
    bench: Bench, name: str, plan: Callable[[DataFrame], DataFrame],
    job: Callable[[MicroBatch, FileQueue], DataFrame | None], counter: str,
) -> None:  # fmt: skip
    """Measure a job that reads the queue of a first one."""
    inputs: list[Path] = []

    def prepare() -> None:
        bench.fresh()
        inputs[:] = [track(bench, counted(F.lit("t"), number="row"))]

    def tracked() -> None:
        queue = FileQueue(bench.new())
        rows = bench.read(inputs[0])
        with bench.acker.batch(rows, 0, query_id=name) as b:
            messages = job(b, queue)
        if messages is not None:
            b.hand_on(messages, queue)
        bench.counted(counter, bench.rows)

    bench.pair(name, lambda: write(bench, plan(bench.read(bench.source))), tracked, prepare)


def emit(b: MicroBatch, queue: FileQueue) -> DataFrame:
    """Emit one message for each."""
    return b.emit(projected(b.df), edge="next", queue=queue)


def emit_lines(b: MicroBatch, queue: FileQueue) -> DataFrame:
    """Emit one message for each item."""
    return b.emit(projected(b.split(b.df, "items")), edge="next", queue=queue)


def small(bench: Bench, rows: int, batches: int = 30) -> None:
    """Measure small batches of the three jobs; print what a batch costs more."""
    some = bench.folder / f"small-{rows}"
    bench.read(bench.source).limit(rows).coalesce(1).write.parquet(str(some))
    bench.fresh()
    out: list[Path] = []

    def first_job(n: int) -> None:
        queue = FileQueue(bench.new())
        with bench.acker.batch(projected(bench.read(some)), n, query_id="first") as b:
            messages = b.track(
                source=SOURCE, source_id=counted(F.lit(f"{n}"), number="row"), queue=queue
            )
        b.hand_on(messages, queue)
        out.append(queue.path)

    def middle(n: int) -> None:
        queue = FileQueue(bench.new())
        with bench.acker.batch(bench.read(out[-1]), n, query_id="middle") as b:
            messages = emit(b, queue)
        b.hand_on(messages, queue)
        out.append(queue.path)

    def last(n: int) -> None:
        with bench.acker.batch(bench.read(out[-1]), n, query_id="last") as b:
            last_job(b, FileQueue(bench.new()))

    times: dict[str, list[float]] = {name: [] for name in ("plain", "track", "emit", "last")}
    for n in range(batches):
        jobs: list[Callable[[int], None]] = [
            lambda _: write(bench, projected(bench.read(some))), first_job, middle, last
        ]  # fmt: skip
        for name, each in zip(times, jobs, strict=True):
            began = time.perf_counter()
            each(n)
            times[name].append(1000 * (time.perf_counter() - began))
    plain, *others = (statistics.median(each[batches // 3 :]) for each in times.values())
    more = "".join(f"{name} +{each - plain:.0f} ms  " for name, each in
                   zip(("track", "emit", "last"), others, strict=True))  # fmt: skip
    print(f"{rows:8,} rows  plain {plain:.0f} ms  {more}", flush=True)


def last_job(b: MicroBatch, queue: FileQueue) -> None:
    """Write rows of the batch to a sink, and ack them."""
    out = b.freeze(projected(b.df))
    b.write(out.drop("anchor", "tuple"), queue)
    b.ack(out)


def last_all(b: MicroBatch, queue: FileQueue) -> None:
    """Write rows of the batch to a sink, and ack all messages."""
    b.write(projected(b.df).drop("anchor", "tuple"), queue)
    b.ack()


def main() -> None:
    """Read the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=5_000_000)
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--cores", type=int, default=2)
    arguments.add_argument("--only", action="append")
    given = arguments.parse_args()
    advice = session.missing_java()
    if advice:
        raise SystemExit(advice)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis(tcp=True))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acker-bench-")))
        spark = stack.enter_context(session.started(folder / "spark", given.cores))
        bench = Bench(spark, server.url, folder, given.rows, given.pairs)
        print(
            f"{server.description}, Spark {spark.version} on {given.cores} cores, "
            f"{given.rows:,} rows, {given.pairs} pairs\n"
            f"{'':16}{'plain':>11}{'tracked':>11}{'ratio':>9}{'spread':>15}{'redis':>11}"
        )

        def last_join(b: MicroBatch, queue: FileQueue) -> None:
            out = b.freeze(joined(bench, b.df))
            b.write(out.drop("anchor", "tuple"), queue)
            b.ack(out)

        by_number = counted(F.lit("t"), number="row")
        parts: dict[str, Callable[[], None]] = {
            "track-numbers": lambda: first(bench, "track-numbers", by_number),
            "track-texts": lambda: first(bench, "track-texts", "name"),
            "track-ledger": lambda: first(bench, "track-ledger", "name", ledger=True),
            "emit": lambda: later(bench, "emit", projected, emit, "tracked"),
            "split": lambda: later(bench, "split", in_lines, emit_lines, "tracked"),
            "last": lambda: later(bench, "last", projected, last_job, "acked"),
            "last-join": lambda: later(
                bench, "last-join", lambda df: joined(bench, df), last_join, "acked"
            ),
            "last-all": lambda: later(bench, "last-all", projected, last_all, "acked"),
            "small": lambda: [small(bench, each) for each in (1_000, 20_000)] and None,
        }
        for name, part in parts.items():
            if given.only is None or name in given.only:
                part()


if __name__ == "__main__":
    main()
