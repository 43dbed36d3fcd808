"""Streaming queries of Spark from Kafka to Kafka, tracked and untracked: messages a second.

    python benchmarks/spark_kafka.py [--messages 200000] [--rounds 3] [--only source]

Each program is a function of ``foreachBatch``, and its time is measured. The input is a topic of
four partitions with orders of 1 kB, which are read in batches of ``--batch``, and written to
another topic as they are. All processes run on one machine: Spark's, the broker's and Redis.

- ``source``: track each message as a record, and write it with its ids in a header.
- ``bolt``: read such messages, and emit one from each.
- ``last``: read such messages, write them to Parquet and ack them, beside the same write.

``unfrozen`` is the same with ``freeze=False``, for plans that give the same rows each time.

Kafka and Spark's connector come from Maven, once, to ``--jars``.
"""

import contextlib
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kafka_broker import BROKER, CONNECTOR, PARTITIONS, broker, jars
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from side_by_side import Measured, arguments, in_turns, show

from acker_flights import session
from acker_redis import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from acker_redis.spark import (
    Acker,
    FileQueue,
    from_headers,
    kafka_source_id,
    to_headers,
)
from acker_redis.sync import client

FILES = ("write_files", "last")
PROGRAMS = {
    "source": ("untracked", "source", "source, unfrozen"),
    "bolt": ("untracked", "bolt", "bolt, unfrozen"),
    "last": ("write_files", "last", "last, unfrozen"),
}


class Bench:
    """A session, a broker, and the topic of orders."""

    def __init__(
        self, spark: SparkSession, servers: str, url: str, folder: Path, count: int, batch: int
    ) -> None:
        self.spark, self.url, self.folder, self.count, self.batch = spark, url, folder, count, batch
        self.kafka = {"kafka.bootstrap.servers": servers}
        self.admin = {"bootstrap.servers": servers}
        self.direct = client.Acker.from_url(url, "bench", timeout=60)
        self._numbers = itertools.count()
        note = ", ".join(f"sha2(concat(id, '/{n}'), 256)" for n in range(15))
        order = F.expr(f"to_json(struct(id, 7 AS items, 12.5D AS price, concat({note}) AS note))")
        self.plain = self.topic = self.new()
        self.write(spark.range(count).select(order.alias("value")))

    def new(self) -> str:
        """Return the name of a new topic, or folder."""
        return f"orders-{next(self._numbers)}"

    def write(self, rows: DataFrame) -> None:
        """Write rows to the topic of this run."""
        rows.write.format("kafka").options(**self.kafka).option("topic", self.topic).save()

    def run(self, program: str) -> Measured:
        """Run a query over all messages."""
        name, _, unfrozen = program.partition(", ")
        given = self.plain
        self.acker = Acker(self.spark, "bench", app_id="bench", url=self.url)
        if name not in ("untracked", "write_files"):
            self.direct.connection.client.flushall()
            huge = 10**9
            self.direct.create(AckerConfig(high_water=huge, outcomes_limit=huge, tick_ms=3_600_000))
        if name in ("bolt", "last"):  # they need trees that are pending now
            self.topic = given = self.new()
            self.query(partial(self.source, "first", False), self.plain)
        self.topic = self.new() if name not in FILES else self.plain
        seconds = self.query(partial(getattr(self, name), name, not unfrozen), given)
        counters = self.direct.status().counters
        if name not in ("untracked", "write_files") and counters["tracked"] != self.count:
            raise SystemExit(f"{counters['tracked']} of {self.count} trees are tracked")
        if name == "last" and counters["acked"] != self.count:
            raise SystemExit(f"{counters['acked']} of {self.count} trees are acked")
        jvm: Any = self.spark.sparkContext._jvm
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(self.admin)
        admin.deleteTopics(sorted({self.topic, given} - {self.plain})).all().get()
        admin.close()
        return Measured(self.count / seconds)

    def query(self, job: Callable[[DataFrame, int], object], topic: str) -> float:
        """Run a query over a topic; return the seconds of its function."""
        seconds = 0.0

        def timed(df: DataFrame, batch_id: int) -> None:
            nonlocal seconds
            began = time.perf_counter()
            job(df, batch_id)
            seconds += time.perf_counter() - began

        reader = self.spark.readStream.format("kafka").options(**self.kafka)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        # Spark rounds down for each partition.
        reader = reader.option("maxOffsetsPerTrigger", self.batch + PARTITIONS)
        reader = reader.option("includeHeaders", "true")
        query = reader.load().writeStream.foreachBatch(timed).trigger(availableNow=True)
        place = str(self.folder / self.new())
        query.option("checkpointLocation", place).start().awaitTermination()
        return seconds

    def untracked(self, name: str, freeze: bool, df: DataFrame, batch_id: int) -> None:
        """Write orders to the next topic."""
        self.write(df.select("value", "headers"))

    def source(self, name: str, freeze: bool, df: DataFrame, batch_id: int) -> None:
        """Track each order, and write it with its ids."""
        with self.acker.batch(df, batch_id, query_id=name, freeze=freeze) as b:
            messages = b.track(source="shop", source_id=kafka_source_id(), edges="price")
        self.write(messages.select("value", to_headers("headers")))

    def bolt(self, name: str, freeze: bool, df: DataFrame, batch_id: int) -> None:
        """Emit a message from each order, and write it with its ids."""
        df = df.withColumn("anchors", from_headers())
        with self.acker.batch(df, batch_id, query_id=name, freeze=freeze) as b:
            messages = b.emit(b.df, edge="invoice")
        self.write(messages.select("value", to_headers("headers", anchors="anchors")))

    def write_files(self, name: str, freeze: bool, df: DataFrame, batch_id: int) -> None:
        """Write orders to Parquet."""
        df.select("value").write.parquet(str(self.folder / self.new()))

    def last(self, name: str, freeze: bool, df: DataFrame, batch_id: int) -> None:
        """Write orders to Parquet, and ack them."""
        df = df.withColumn("anchors", from_headers())
        with self.acker.batch(df, batch_id, query_id=name, freeze=freeze) as b:
            queue = FileQueue(self.folder / self.new())
            b.write(b.df.select("value", "anchors"), queue, ack=True)


def main() -> None:
    """Read the arguments and measure."""
    parser = arguments(__doc__, "messages", 200_000, rounds=3)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--jars", type=Path, default=Path(sys.prefix) / "jars")
    parser.add_argument("--only", choices=PROGRAMS, action="append")
    args = parser.parse_args()
    if advice := session.missing_java():
        raise SystemExit(advice)
    args.jars.mkdir(exist_ok=True)
    connector = jars(args.jars, CONNECTOR)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(connector)} pyspark-shell"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acker-bench-")))
        server = stack.enter_context(EmbeddedRedis(tcp=True))
        servers = stack.enter_context(broker(folder, jars(args.jars, BROKER)))
        spark = stack.enter_context(session.started(folder / "spark"))
        bench = Bench(spark, servers, server.url, folder, args.messages, args.batch)
        print(
            f"{server.description}, Spark {spark.version}, {BROKER}, {args.messages:,} messages of "
            f"1 kB, {args.batch:,} a batch, {args.rounds} rounds",
            flush=True,
        )
        for name in args.only or PROGRAMS:
            show(in_turns(PROGRAMS[name], args.rounds, bench.run, warm=True), "messages/s")


if __name__ == "__main__":
    main()
