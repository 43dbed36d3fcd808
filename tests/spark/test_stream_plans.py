"""The log warns of plans with which trees expire, or are acked again."""

import logging
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.spark import collect_anchors
from tests.spark.conftest import MakeSparkAcker

SCHEMA = "at TIMESTAMP, anchor BIGINT, tuple BIGINT"


@pytest.mark.parametrize(
    ("watermark", "mode", "says"),
    [
        ("2 hours", "append", ["the watermark of this query is 7200 s, and a tree may expire"]),
        ("1 minute", "append", []),
        ("1 minute", "update", ["this query is in update mode"]),
        ("", "append", []),
    ],
)
def test_plan_that_lets_trees_expire_is_named_once(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path,
    caplog: pytest.LogCaptureFixture, watermark: str, mode: str, says: list[str],
) -> None:  # fmt: skip
    acker = make_spark_acker({"tick_ms": 450_000, "buckets": 3})  # 15 minutes
    rows = spark.range(2).selectExpr("current_timestamp() AS at", "id AS anchor", "id AS tuple")
    for _ in range(2):
        rows.limit(0).coalesce(1).write.mode("append").parquet(str(tmp_path / "source"))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
    df = stream.parquet(str(tmp_path / "source"))
    if watermark:
        df = df.withWatermark("at", watermark).groupBy(F.window("at", "1 minute"))
        df = df.agg(collect_anchors().alias("anchors"))

    def job(batch: DataFrame, batch_id: int) -> None:
        with acker.batch(batch, batch_id, unmentioned="ack"):
            pass

    writer = df.writeStream.foreachBatch(job).outputMode(mode)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with caplog.at_level(logging.WARNING, "acker_redis.spark"):
        writer.trigger(availableNow=True).start().awaitTermination()
    found = [each.getMessage() for each in caplog.records]
    assert len(found) == len(says), found
    assert all(words in each for words, each in zip(says, found, strict=True))
