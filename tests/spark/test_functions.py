"""Source ids, and the anchors of rows of several inputs."""

from typing import Any

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from acker_redis.spark.functions import (
    anchors_of,
    collect_anchors,
    counted,
    kafka_source_id,
    source_id,
)
from acker_redis.spark.names import Names, need_ids


def values(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str, column: Any) -> list[Any]:
    return [r[0] for r in spark.createDataFrame(rows, schema).select(column).collect()]


def pairs_of(spark: SparkSession, column: Any, rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    df = spark.createDataFrame(rows, "g INT, anchor BIGINT, tuple BIGINT, a2 INT, t2 BIGINT")
    return [[tuple(pair) for pair in r[0]] for r in df.select(column).collect()]


def test_anchors_of_leaves_out_null_pairs(spark: SparkSession) -> None:
    """A pair of nulls is left out. Half a pair stays, because it is an error."""
    both = anchors_of(("anchor", "tuple"), (F.col("a2"), "t2"))
    rows = [(0, 1, 2, 3, 4), (0, 1, 2, None, None), (0, None, None, None, None), (0, 1, None, 3, 4)]
    assert pairs_of(spark, both, rows) == [
        [(1, 2), (3, 4)], [(1, 2)], [], [(1, None), (3, 4)],
    ]  # fmt: skip
    df = spark.createDataFrame(rows, "g INT, anchor BIGINT, tuple BIGINT, a2 INT, t2 BIGINT")
    assert need_ids(df.select(both.alias("anchors")), Names())


def test_anchors_of_a_group_and_of_a_window(spark: SparkSession) -> None:
    rows = [(0, 1, 2), (0, None, None), (1, 3, 4), (1, 5, None), (2, None, None)]
    df = spark.createDataFrame(rows, "g INT, anchor BIGINT, tuple BIGINT")
    groups = df.groupBy("g").agg(collect_anchors().alias("x"))
    found = {r["g"]: sorted(map(tuple, r["x"])) for r in groups.collect()}
    assert found == {0: [(1, 2)], 1: [(3, 4), (5, None)], 2: []}
    over = Window.partitionBy("g")
    wide = df.withColumn("x", collect_anchors("anchor", F.col("tuple")).over(over))
    assert {r["g"]: sorted(map(tuple, r["x"])) for r in wide.collect()} == found
    assert df.withColumnRenamed("anchor", "b").groupBy("g").agg(collect_anchors("b")).count() == 3


def test_different_prefixes_give_different_counted_ids(spark: SparkSession) -> None:
    """For all values of their columns."""
    texts = [None, "", "/", "a", "b", "a/b", "\\", "\\/", "|", "a/", "/b"]
    rows = [(x, y, 5) for x in texts for y in texts]
    df = spark.createDataFrame(rows, "x STRING, y STRING, n INT")
    both = counted("x", "y", number="n")
    found = {r[0] for r in df.select(both.prefix).collect()}
    assert len(found) == len(rows)
    kafka = kafka_source_id("x", "y", F.col("n") + 1)
    row = df.where("x = 'a' AND y = 'b'").select(kafka.prefix, kafka.number).first()
    assert row
    assert tuple(row) == ("a/b", 6)


def test_functions_without_columns_are_refused(spark: SparkSession) -> None:
    for wrong in (lambda: source_id(), lambda: counted(number="n"), lambda: anchors_of()):
        with pytest.raises(ValueError, match="needs the columns"):
            wrong()


def test_different_keys_give_different_source_ids(spark: SparkSession) -> None:
    texts = [None, "", "\\N", "\\", "|", "a", "b", "a|b", "\\|", "\\\\N", "a\\", "|b"]
    rows = [(x, y) for x in texts for y in texts]
    schema = "x STRING, y STRING"
    found = values(spark, rows, schema, source_id("x", "y"))
    assert len(set(found)) == len(rows)
