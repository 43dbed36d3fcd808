"""Streaming queries: two under one name, and a last job whose batch comes back with other rows."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from acker_redis.spark import FileQueue
from acker_redis.spark.fold import lanes
from tests.spark.conftest import MakeSparkAcker, outcomes
from tests.spark.world import World, firsts, frame
from tests.support import tick
from tests.waiting import LIMIT, wait_until


def test_second_query_of_one_name_is_refused_while_the_first_runs(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Also if they use two ackers."""
    one = make_spark_acker({"high_water": 1_000_000})
    two = make_spark_acker(client=one.client)

    def start(acker: Any) -> StreamingQuery:
        def job(df: DataFrame, batch_id: int) -> None:
            with acker.batch(df, batch_id) as b:
                b.track(source="t", source_id="name")

        ticks = spark.readStream.format("rate").load().selectExpr("cast(value AS STRING) AS name")
        return ticks.writeStream.foreachBatch(job).start()

    first = start(one)
    try:
        wait_until(lambda: one.reports, "a batch of the first query")
        second = start(two)
        words = f"query_id 'q' has two running queries.*{first.id} and {second.id}"
        with pytest.raises(StreamingQueryException, match=words):
            second.awaitTermination(LIMIT)
        assert first.isActive
    finally:
        first.stop()
    third = start(two)
    try:
        wait_until(lambda: two.reports or third.exception(), "a batch of the third query")
        assert "two running queries" not in str(third.exception()), "the lane is free again"
    finally:
        third.stop()


def test_last_job_skips_a_batch_that_came_back_with_other_rows(
    spark: SparkSession,
    make_spark_acker: MakeSparkAcker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first run died between two shards, and the price list has changed since."""
    acker = make_spark_acker({"shards": 4})  # anchors of this world are odd, so it uses two
    world, queue, sink = World(acker.client), FileQueue(tmp_path / "in"), FileQueue(tmp_path / "o")
    names = {}

    def arrive(batch_id: int) -> None:
        pairs = firsts(world.track(*[1] * 20))
        names.update({anchor: world.names[anchor] for anchor, _ in pairs})
        queue.write(frame(spark, pairs), "before", batch_id)

    def run(prices: str, skip: int = -1) -> None:
        def job(df: DataFrame, batch_id: int) -> None:
            if batch_id == skip:
                return
            with acker.batch(df, batch_id) as b:
                rows = b.df.where(prices).selectExpr("*", "anchor AS of")
                b.write(rows, sink, ack=True)

        writer = queue.read_stream(spark, "anchor BIGINT, tuple BIGINT, n INT").writeStream
        writer = writer.foreachBatch(job).option("checkpointLocation", str(tmp_path / "cp"))
        writer.trigger(availableNow=True).start().awaitTermination()

    send, sent = lanes.send, []

    def dying(*args: Any) -> Any:
        sent.append(args)
        if len(sent) == 2:
            raise OSError("the driver was killed")
        return send(*args)

    arrive(0)
    monkeypatch.setattr(lanes, "send", dying)
    with pytest.raises(StreamingQueryException, match="the driver was killed"):
        run("n < 15")
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="A job that calls b.write.. skips this"):
            run("n < 16")
    arrive(1)
    run("n < 16", skip=0)
    tick(acker.client, 3)
    found = outcomes(acker.client)
    acked = {name for verdict, _, name, _ in found if verdict == "ack"}
    assert {name for *_, name, _ in found} == set(names.values()), "each tree has its verdict"
    assert 16 < len(acked) < 15 + 16, "those of one shard, and of the next batch"
    files = sink.path.rglob("*.parquet")
    rows = {names[row["of"]] for file in files for row in pq.read_table(file).to_pylist()}
    assert acked <= rows
    assert len(rows) == 15 + 16
