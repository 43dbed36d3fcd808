"""Each writer and each data source once, in chains of queries; and a killed driver.

It is one file, so that one process runs it, with one Spark session.
"""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from acker_redis.spark import BoltWriter, FileQueue, TrackWriter
from acker_redis.spark.acker import Mode
from acker_redis.spark.streams.outcomes_source import register as register_outcomes
from acker_redis.spark.streams.sink import register as register_sink
from tests.spark.conftest import MakeSparkAcker, url_of
from tests.spark.faults.stage import Stage
from tests.spark.faults.streams import drain, pour
from tests.spark.faults.work import reconcile
from tests.spark.replay_shop import MakeShop
from tests.spark.smoke.conftest import MakeCase
from tests.support import tick, total

MESSAGE = "source_id STRING, anchor BIGINT, tuple BIGINT"
VERDICTS = [
    ("bad", "nack", "failed", "it is bad"),
    ("filtered", "ack", "completed", ""),
    ("good", "ack", "completed", ""),
    ("lost", "nack", "expired", ""),
]


def run(writer: "DataStreamWriter", checkpoint: Path) -> None:
    """Run a query until it has read all its input."""
    options = writer.option("checkpointLocation", str(checkpoint))
    options.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize(
    ("mode", "shards"), [("executors", 2), pytest.param("driver", 1, marks=pytest.mark.full)]
)
def test_each_writer_and_source_gives_each_record_its_verdict(
    spark: SparkSession,
    make_spark_acker: MakeSparkAcker,
    tmp_path: Path,
    mode: Mode,
    shards: int,
) -> None:
    """TrackWriter, BoltWriter, FileQueue, acker.batch, the sink, verdicts as table and stream."""
    register_sink(spark)
    register_outcomes(spark)
    acker = make_spark_acker({"shards": shards}, mode=mode, query_id=None)
    options = {"url": url_of(acker.client), "namespace": acker.client.namespace}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("".join(f"{name}\n" for name, *_ in VERDICTS))
    tracked, passed, done = (FileQueue(tmp_path / name) for name in ("tracked", "passed", "done"))

    records = spark.readStream.schema("source_id STRING").csv(str(tmp_path / "in"))
    source = TrackWriter(acker, "t", {"work": tracked})
    run(records.writeStream.foreachBatch(source), tmp_path / "source")

    def check(df: DataFrame, batch_id: int) -> DataFrame:
        why = F.when(F.col("source_id") == "bad", F.lit("it is bad"))
        return df.where("source_id <> 'filtered'").withColumn("why", why)

    bolt = BoltWriter(acker, check, {"checked": passed}, unmentioned="ack")
    run(tracked.read_stream(spark, MESSAGE).writeStream.foreachBatch(bolt), tmp_path / "bolt")

    def hand_on(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df.where("source_id <> 'lost'"), batch_id) as b:
            messages = b.emit(b.df, edge="done")
        done.write(messages.drop("edge"), b.query_id, batch_id)

    messages = passed.read_stream(spark, MESSAGE)
    run(messages.writeStream.foreachBatch(hand_on), tmp_path / "batch")

    sink = done.read_stream(spark, MESSAGE).select("anchor", "tuple").writeStream.format("acker")
    run(sink.options(**options, app="shop", query="last"), tmp_path / "sink")

    tick(acker.client, 3)
    verdicts = spark.read.format("acker-outcomes").options(**options, source="t", expand=True)
    columns = ("source_id", "verdict", "reason", "why")
    waiting = verdicts.load().select(*columns).collect()
    assert sorted(map(tuple, waiting)) == VERDICTS
    seen: list[tuple[str, ...]] = []

    def note(df: DataFrame, batch_id: int) -> None:
        seen.extend(tuple(row) for row in df.select(*columns).collect())

    stream = spark.readStream.format("acker-outcomes").options(**options, source="t", expand=True)
    run(stream.load().writeStream.foreachBatch(note), tmp_path / "verdicts")
    assert sorted(seen) == VERDICTS
    counters = total(acker.client)
    assert (counters["acked"], counters["failed"], counters["expired"]) == (2, 1, 1)
    assert (counters["conflict"], counters["pending"], counters["repeated"]) == (0, 0, 0)


def test_nacks_are_replayed_until_the_last_attempt(make_shop: MakeShop) -> None:
    """ReplayWriter, with OutcomeBatches: one record fails once, another one each time."""
    shop = make_shop(attempts=2)
    shop.track(3)
    shop.bolt(lambda n: n > 0)
    shop.replay()
    shop.bolt(lambda n: n > 1)
    shop.replay()
    assert shop.sent() == {"p/0": 1, "p/1": 2, "p/2": 2}
    assert shop.given_up() == [("p/2", 1, "attempts", "bad 2")]
    counters = total(shop.client)
    assert (counters["tracked"], counters["acked"], counters["failed"]) == (5, 2, 3)


def test_a_killed_driver_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, make_case: MakeCase
) -> None:
    """It is killed after Redis has applied a batch and before Spark knows; a new one continues."""
    case, client = make_case(2, "loose")
    pour(case)
    with Stage(tmp_path / "stage") as stage:
        fault = stage.plan("sent", 2, "kill-driver")
        with pytest.raises(EOFError):
            stage.run(drain, case, {"source": "driver"})
        assert fault.happened
    drain(spark, case, {"source": "driver", "middle": "executors", "last": "driver"})
    assert client.status().counters["repeated"] > 0
    reconcile(case, client, None)
