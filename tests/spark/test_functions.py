"""Derived ids: in range, the same every time, different for different records."""

from typing import Any

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from acker_redis.protocol.ids import ANCHOR_MAX, TUPLE_MAX
from acker_redis.spark.functions import (
    _in_range,
    anchor,
    anchors_of,
    collect_anchors,
    counted,
    kafka_source_id,
    source_id,
    tuple_id,
)
from acker_redis.spark.names import Names, need_ids


def values(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str, column: Any) -> list[Any]:
    return [r[0] for r in spark.createDataFrame(rows, schema).select(column).collect()]


def test_ids_are_bigint_in_range_and_distinct(spark: SparkSession) -> None:
    df = spark.range(100_000).select(
        anchor("id").alias("a"), tuple_id("id", "edge").alias("t"), F.col("id")
    )
    assert df.dtypes[:2] == [("a", "bigint"), ("t", "bigint")]
    [found] = df.agg(
        F.min("a"), F.max("a"), F.min("t"), F.max("t"), F.count_distinct("a"), F.count_distinct("t")
    ).collect()
    low_a, high_a, low_t, high_t, distinct_a, distinct_t = found
    assert low_a >= 1
    assert low_t >= 1
    assert ANCHOR_MAX // 2 < high_a <= ANCHOR_MAX
    assert ANCHOR_MAX < high_t <= TUPLE_MAX
    assert distinct_a == distinct_t == 100_000


def test_ids_do_not_change_from_run_to_run(spark: SparkSession) -> None:
    """These numbers stand in checkpoints and queues of running jobs: they may never change."""
    df = spark.createDataFrame([("k", 5)], "k STRING, n INT")
    row = df.select(
        anchor("k", "n"), anchor("k", "n", attempt=1), tuple_id(F.lit(7), "e"),
        tuple_id(F.lit(7), "e", F.lit(1)),
    ).first()  # fmt: skip
    assert row
    assert tuple(row) == EXPECTED


EXPECTED = (1885648740064319685, 2292977890255753032, 9096337650100072279, 3991585593720830449)


def test_names_and_columns_give_the_same_ids(spark: SparkSession) -> None:
    """Names go one way into Spark, columns another: whatever is in them, the ids are one."""
    texts = [None, "", "\\N", "\\", "|", "'", "a|b", "`", "\n", "é"]
    rows = [(n, x, y) for n, (x, y) in enumerate((x, y) for x in texts for y in texts)]
    df = spark.createDataFrame(rows, "n BIGINT, x STRING, `y z` STRING").where("n % 7 < 3")
    for edge in ("e", "it's", 'a "b"', "\\", "|", "e@q/7", "\n", "é", ""):
        pairs = [
            (tuple_id("n", edge, "x"), tuple_id(F.col("n"), edge, F.col("x"))),
            (tuple_id("n", edge), tuple_id(F.col("n"), edge)),
        ]
        for by_name, by_column in pairs:
            assert df.where(~by_name.eqNullSafe(by_column)).count() == 0
    by_name = anchor("x", "`y z`", attempt=3)
    assert df.where(by_name != anchor(F.col("x"), F.col("`y z`"), attempt=F.lit(3))).count() == 0


def test_an_edge_and_a_key_are_told_apart(spark: SparkSession) -> None:
    """Also where they are one when they are put side by side."""
    edges = ["a", "a|b", "a|", "|", "", "a\\", "\\|", "b"]
    ids = [tuple_id("id", edge) for edge in edges]
    ids += [tuple_id("id", edge, F.lit(key)) for edge in edges for key in ("", "a", "b", "|", "\\")]
    ids += [tuple_id("id", edge, F.lit("a"), F.lit("b")) for edge in edges]
    row = spark.range(5, 6).select(*ids).first()
    assert row
    assert len(set(row)) == len(ids)


def test_an_attempt_that_is_null_is_the_first(spark: SparkSession) -> None:
    row = spark.range(1).select(anchor("id"), anchor("id", attempt=F.lit(None))).first()
    assert row
    assert row[0] == row[1]


def pairs_of(spark: SparkSession, column: Any, rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    df = spark.createDataFrame(rows, "g INT, anchor BIGINT, tuple BIGINT, a2 INT, t2 BIGINT")
    return [[tuple(pair) for pair in r[0]] for r in df.select(column).collect()]


def test_anchors_of_a_row(spark: SparkSession) -> None:
    """Nulls are left out; but half a pair is an error, and stays."""
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


def test_counted_source_ids(spark: SparkSession) -> None:
    """Two numberings have two names, whatever stands in their columns."""
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


def test_nothing_to_name(spark: SparkSession) -> None:
    for wrong in (lambda: source_id(), lambda: counted(number="n"), lambda: anchors_of()):
        with pytest.raises(ValueError, match="needs the columns"):
            wrong()


def test_zero_becomes_one(spark: SparkSession) -> None:
    rows = [(0,), (2**62,), (-(2**63),), (5,)]
    assert values(spark, rows, "h BIGINT", _in_range(F.col("h"), ANCHOR_MAX)) == [1, 1, 1, 5]


def test_different_keys_give_different_source_ids(spark: SparkSession) -> None:
    texts = [None, "", "\\N", "\\", "|", "a", "b", "a|b", "\\|", "\\\\N", "a\\", "|b"]
    rows = [(x, y) for x in texts for y in texts]
    schema = "x STRING, y STRING"
    found = values(spark, rows, schema, source_id("x", "y"))
    assert len(set(found)) == len(rows)
    anchors = values(spark, rows, schema, anchor("x", "y"))
    assert len(set(anchors)) == len(rows)
    assert None not in anchors


def test_what_xxhash64_takes_for_one(spark: SparkSession) -> None:
    """It passes over nulls, and 0.0 and -0.0 hash alike."""
    rows = [(1, None, 0.0), (None, 1, 0.0), (1, None, -0.0), (None, None, 0.0)]
    assert len(set(values(spark, rows, "a INT, b INT, c DOUBLE", anchor("a", "b", "c")))) == 4


def test_attempt_edge_key_and_parent_tell_apart(spark: SparkSession) -> None:
    row = spark.range(1).select(
        anchor("id"), anchor("id", attempt=1), anchor("id", attempt=F.lit(2)),
        tuple_id("id", "a"), tuple_id("id", "b"), tuple_id(F.lit(1), "a"),
        tuple_id("id", "a", F.lit(0)), tuple_id("id", "a", F.lit(1)),
        tuple_id("id", "a", F.lit(None)),
    ).first()  # fmt: skip
    assert row
    assert len(set(row)) == 9


def test_without_a_parent_there_is_no_id(spark: SparkSession) -> None:
    assert values(spark, [(None,)], "p BIGINT", tuple_id("p", "e")) == [None]
