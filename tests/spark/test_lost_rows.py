"""``explain`` returns the rows of the messages that are missing in expired trees."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ConfigError, InvalidBatchError
from acker_redis.protocol.ids import EDGE_BIT
from acker_redis.spark import Acker, FileQueue, Names, TrackWriter, anchors_of, counted, explain
from tests.spark.conftest import MakeSparkAcker, url_of
from tests.support import tick

PLAIN = "anchor BIGINT, tuple BIGINT, text STRING"
PAIRS = "anchors ARRAY<STRUCT<anchor: BIGINT, tuple: BIGINT>>, text STRING"
VERDICT = "anchor BIGINT, residual BIGINT"


def answers(
    spark: SparkSession, verdicts: list[Any], messages: list[Any], schema: str = PLAIN, **more: Any
) -> list[tuple[Any, ...]]:
    left = spark.createDataFrame(verdicts, VERDICT)
    found = explain(left, spark.createDataFrame(messages, schema), **more)
    return sorted((tuple(row) for row in found.collect()), key=repr)


def test_missing_messages_come_with_all_their_columns(spark: SparkSession) -> None:
    """A tree that misses one, two or three; other trees and rows without ids do not matter."""
    messages: list[Any] = [(a, 1000 * a + 7**n, f"{a}/{n}") for a in (1, 2, 3, 4) for n in range(6)]
    messages += [(9, 5, "another tree"), (None, None, "not tracked"), (1, None, "no id")]
    ids = {text: id_ for _, id_, text in messages}
    verdicts = [
        (1, ids["1/3"]),
        (2, ids["2/0"] ^ ids["2/5"]),
        (3, ids["3/1"] ^ ids["3/2"] ^ ids["3/4"]),
    ]
    found = answers(spark, verdicts, messages)
    assert {row[2] for row in found} == {"1/3", "2/0", "2/5", "3/1", "3/2", "3/4"}
    assert all(row[1] == ids[row[2]] and row[3] == "found" for row in found)


def test_trees_without_an_answer_have_one_row_that_says_so(spark: SparkSession) -> None:
    messages = [(1, 40, "a"), (2, 50, "b"), (4, 1, "c"), (4, 2, "d"), (4, 3, "e")]
    verdicts = [(1, 41), (2, None), (3, 7), (4, 3), (5, 0), (None, 9)]
    assert answers(spark, verdicts, messages) == [
        (1, None, None, "none"),
        (2, None, None, "unknown"),
        (3, None, None, "none"),
        (4, None, None, "several"),
        (5, None, None, "unknown"),
    ]


def test_only_expired_verdicts_count_and_repeats_count_once(spark: SparkSession) -> None:
    verdicts = spark.createDataFrame(
        [(1, 40, "expired"), (1, 40, "expired"), (2, 50, "failed"), (3, None, "completed")],
        VERDICT + ", reason STRING",
    )
    messages = spark.createDataFrame([(1, 40, "a"), (1, 40, "a again"), (2, 50, "b")], PLAIN)
    found = explain(verdicts, messages).collect()
    assert sorted(row["text"] for row in found) == ["a", "a again"]


def test_messages_of_many_trees_count_in_the_tree_that_misses_them(spark: SparkSession) -> None:
    """Ids of one message in one tree count as their XOR; ``anchors`` becomes two columns."""
    messages = [
        ([(1, 40), (2, 50), (1, 41)], "two inputs of tree 1"),
        ([(1, 42)], "one"),
        ([(1, 44), (3, 60)], "other"),
        ([(None, 5), (2, None)], "half pairs"),
        ([], "none"),
        (None, "null"),
    ]
    found = answers(spark, [(1, 40 ^ 41), (2, 50), (3, 61)], messages, PAIRS)
    assert found == [
        ("two inputs of tree 1", 1, 40 ^ 41, "found"),
        ("two inputs of tree 1", 2, 50, "found"),
        (None, 3, None, "none"),
    ]
    columns = explain(
        spark.createDataFrame([], VERDICT), spark.createDataFrame(messages, PAIRS)
    ).columns
    assert columns == ["text", "anchor", "tuple", "found"]


def test_each_type_of_column_survives(spark: SparkSession) -> None:
    moment = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
    row = (
        1, 40, True, 2.5, Decimal("3.25"), date(2024, 5, 1), moment, b"\x00\xff", ["a", None],
        {"k": 7}, (3, [("x",)]), None,
    )  # fmt: skip
    schema = (
        "anchor BIGINT, tuple BIGINT, b BOOLEAN, f DOUBLE, d DECIMAL(10,2), day DATE, "
        "at TIMESTAMP, raw BINARY, list ARRAY<STRING>, m MAP<STRING, INT>, "
        "s STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING>>>, nothing INT"
    )
    messages = spark.createDataFrame([row, (2, *row[1:])], schema)
    verdicts = spark.createDataFrame([(1, 40), (2, 41)], VERDICT)
    found = explain(verdicts, messages)
    assert found.drop("found").dtypes == messages.dtypes
    [hit] = found.where("found = 'found'").drop("found").collect()
    assert hit == messages.where("anchor = 1").collect()[0]
    [miss] = found.where("found = 'none'").collect()
    assert tuple(miss) == (2, *[None] * 11, "none")


def test_columns_have_the_names_of_the_acker(spark: SparkSession) -> None:
    names = Names(anchor="a", tuple="t", anchors="many")
    messages = spark.createDataFrame([(1, 40), (2, 50)], "a BIGINT, t BIGINT")
    found = explain(spark.createDataFrame([(1, 40), (2, 51)], VERDICT), messages, names=names)
    assert sorted(tuple(row) for row in found.na.fill(0).collect()) == [
        (1, 40, "found"), (2, 0, "none"),
    ]  # fmt: skip
    pairs = spark.createDataFrame([([(1, 40)],)], PAIRS.split(", text")[0])
    pairs = pairs.withColumnRenamed("anchors", "many")
    found = explain(spark.createDataFrame([(1, 40)], VERDICT), pairs, names=names)
    assert found.collect() == [(1, 40, "found")]


def test_wrong_columns_are_refused(spark: SparkSession) -> None:
    verdicts = spark.createDataFrame([(1, 40)], VERDICT)
    messages = spark.createDataFrame([(1, 40, "a")], PLAIN)
    wrong: list[tuple[DataFrame, DataFrame, str]] = [
        (verdicts.drop("residual"), messages, "column residual is missing.*acker-outcomes"),
        (verdicts.withColumn("anchor", F.lit("1")), messages, "column anchor is string"),
        (verdicts, messages.drop("tuple"), "column tuple is missing"),
        (verdicts, messages.withColumn("found", F.lit(1)), "column found of the messages: rename"),
        (verdicts, messages.withColumn("Found", F.lit(1)), "column Found must be written found"),
        (verdicts, messages.withColumn("_acker_id", F.lit(1)), "reserved"),
    ]
    for left, right, words in wrong:
        with pytest.raises(InvalidBatchError, match=words):
            explain(left, right)


def test_lost_rows_of_a_pipeline_are_found(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    """Verdicts from the stream of Redis, messages from the queues: loose trees and joins."""
    acker = make_spark_acker({"edges": ("left", "right", "both"), "shards": 2})
    queues = {edge: FileQueue(tmp_path / edge) for edge in ("left", "right")}
    orders = spark.range(300).selectExpr("id", "concat('order-', id) AS source_id")
    TrackWriter(acker, "t", queues, query_id="source")(orders, 0)
    schema = "id BIGINT, source_id STRING, anchor BIGINT, tuple BIGINT"
    left, right = (queues[edge].read(spark, schema) for edge in ("left", "right"))
    # Every tenth message on the way to the left is lost, and every 25th joined one.
    kept = left.where("id % 10 <> 3").unionByName(right)
    with acker.batch(kept, 0, query_id="join") as b:
        one = b.df.groupBy("id").agg(
            F.first("source_id").alias("source_id"),
            F.collect_list(F.struct("anchor", "tuple")).alias("anchors"),
        )
        joined = b.emit(one, edge="both", anchors="anchors")
    acker.ack(joined.where("id % 25 <> 4"), 0, query_id="last")
    tick(acker.client, 3)
    verdicts = spark.read.format("acker-outcomes").options(
        url=url_of(acker.client), namespace=acker.namespace, source="t"
    )
    expired = verdicts.load().where("verdict = 'nack'").localCheckpoint()
    edges = {row["source_id"]: row["edges"] for row in expired.collect()}
    lost_left = {f"order-{n}" for n in range(3, 300, 10)}
    lost_both = {f"order-{n}" for n in range(4, 300, 25)}
    assert {name for name, each in edges.items() if "left" in each} == lost_left
    assert {name for name, each in edges.items() if "both" in each} == lost_both
    queued = left.unionByName(right)
    found = explain(expired, queued).where("found = 'found'").collect()
    assert {row["source_id"] for row in found} == lost_left - lost_both
    assert {row["tuple"] >> EDGE_BIT for row in found} == {1}
    pairs = joined.select("source_id", "anchors")
    found = explain(expired, pairs).where("found = 'found'").collect()
    assert {row["source_id"] for row in found} == lost_both - lost_left
    flat = anchors_of(("anchor", "tuple"))
    every = queued.select("source_id", flat.alias("anchors")).unionByName(pairs)
    found = explain(expired, every).collect()
    assert {row["found"] for row in found} == {"found"}
    assert {row["source_id"] for row in found} == lost_left | lost_both
    assert len(found) == len(lost_left) + len(lost_both)


def expired_of(acker: Acker, spark: SparkSession) -> DataFrame:
    """Let all pending trees expire; return their verdicts."""
    tick(acker.client, 3)
    options = {"url": url_of(acker.client), "namespace": acker.namespace, "source": "t"}
    verdicts = spark.read.format("acker-outcomes").options(**options).load()
    return verdicts.where("reason = 'expired'").localCheckpoint()


@pytest.mark.parametrize("many", [False, True], ids=["one input", "anchors"])
def test_messages_that_no_queue_got_are_found_by_their_inputs(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, many: bool
) -> None:
    """A driver died for good after it had applied batch 7, and before it wrote the messages."""
    acker = make_spark_acker({"edges": ("price", "invoice")})
    orders = spark.range(30).selectExpr("id", "concat('order-', id) AS source_id")
    with acker.batch(orders, 0, query_id="ingest") as b:
        read = b.track(source="t", source_id="source_id", edges="price").localCheckpoint()
    if many:
        read = read.withColumn("anchors", anchors_of(("anchor", "tuple"))).drop("anchor", "tuple")
    made: dict[int, DataFrame] = {}
    for batch_id in (6, 7):
        with acker.batch(read.where(f"id % 2 = {batch_id % 2}"), batch_id, query_id="price") as b:
            anchors = "anchors" if many else None
            out = b.emit(b.df, edge="invoice", key=["id"], anchors=anchors)
            made[batch_id] = out.localCheckpoint()
    acker.ack(made[6], 0, query_id="last")
    expired = expired_of(acker, spark)
    queued = read.unionByName(made[6])
    assert {row["found"] for row in explain(expired, queued).collect()} == {"none"}
    again = acker.emitted(read, edge="invoice", key=["id"], query_id="price")
    every = explain(expired, queued.unionByName(again, allowMissingColumns=True)).collect()
    assert len(every) == 15
    found = {(row["source_id"], row["batch_id"], row["found"]) for row in every}
    assert found == {(f"order-{n}", 7, "found") for n in range(1, 30, 2)}
    others = acker.emitted(read, edge="invoice", key=["id"], query_id="price", batches=range(7))
    assert {row["found"] for row in explain(expired, others).collect()} == {"none"}
    with pytest.raises(ConfigError, match="knows no batch of query other of test"):
        acker.emitted(read, edge="invoice", query_id="other")


def test_tracked_messages_that_no_queue_got_are_found_by_the_verdicts(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Loose trees of two batches, and trees in blocks, whose ids depend on no batch."""
    acker = make_spark_acker({"edges": ("price",)})
    ids: set[int] = set()
    for batch_id, name in enumerate(["source_id", "source_id", counted(F.lit("t"), number="id")]):
        rows = spark.range(40 * batch_id, 40 * batch_id + 40)
        rows = rows.selectExpr("id", "concat('order-', id) AS source_id")
        with acker.batch(rows, batch_id, query_id="ingest") as b:
            made = b.track(source="t", source_id=name, edges="price")
        ids |= {row["tuple"] for row in made.collect()}
    expired = expired_of(acker, spark)
    again = acker.emitted(expired.select("anchor"), edge="price", query_id="ingest")
    found = explain(expired, again).collect()
    assert {row["found"] for row in found} == {"found"}
    assert {row["tuple"] for row in found} == ids
    batches = [row["batch_id"] for row in found]
    assert [batches.count(each) for each in (0, 1, None)] == [40, 40, 40]
