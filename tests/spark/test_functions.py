"""Derived ids: in range, the same every time, different for different records."""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from acker_redis.ids import ANCHOR_MAX, TUPLE_MAX
from acker_redis.spark.functions import _in_range, anchor, source_id, tuple_id, xor


def values(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str, column: Any) -> list[Any]:
    return [r[0] for r in spark.createDataFrame(rows, schema).select(column).collect()]


def test_ids_are_bigint_in_range_and_distinct(spark: SparkSession) -> None:
    df = spark.range(100_000).select(
        anchor("id").alias("a"), tuple_id("id", "edge").alias("t"), F.col("id")
    )
    assert df.dtypes[:2] == [("a", "bigint"), ("t", "bigint")]
    low_a, high_a, low_t, high_t, distinct_a, distinct_t = df.agg(
        F.min("a"), F.max("a"), F.min("t"), F.max("t"), F.count_distinct("a"), F.count_distinct("t")
    ).first()
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
    assert tuple(row) == EXPECTED


EXPECTED = (3984784885534733870, 1695834572435723576, 3627830316318546485, 2735558626469355045)


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
    assert len(set(row)) == 9


def test_without_a_parent_there_is_no_id(spark: SparkSession) -> None:
    assert values(spark, [(None,)], "p BIGINT", tuple_id("p", "e")) == [None]


def test_xor(spark: SparkSession) -> None:
    row = spark.range(1).select(xor(), xor(F.lit(5)), xor(F.lit(5), F.lit(3), F.lit(2**62))).first()
    assert tuple(row) == (0, 5, 6 ^ 2**62)
