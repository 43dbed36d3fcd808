"""Derived ids: in range, deterministic, and distinct for distinct records."""

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
    """Queues of running jobs contain such ids, so they must never change."""
    df = spark.createDataFrame([("k", 5)], "k STRING, n INT")
    row = df.select(
        anchor("k", "n"), anchor("k", "n", attempt=1), tuple_id(F.lit(7), "e"),
        tuple_id(F.lit(7), "e", F.lit(1)),
    ).first()  # fmt: skip
    assert row
    assert tuple(row) == EXPECTED


EXPECTED = (1885648740064319685, 2292977890255753032, 9096337650100072279, 3991585593720830449)


def test_names_and_columns_give_the_same_ids(spark: SparkSession) -> None:
    """Names and columns take different code paths; the ids are equal for all values."""
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


def test_edge_and_key_are_unambiguous(spark: SparkSession) -> None:
    """Also if their concatenations are equal."""
    edges = ["a", "a|b", "a|", "|", "", "a\\", "\\|", "b"]
    ids = [tuple_id("id", edge) for edge in edges]
    ids += [tuple_id("id", edge, F.lit(key)) for edge in edges for key in ("", "a", "b", "|", "\\")]
    ids += [tuple_id("id", edge, F.lit("a"), F.lit("b")) for edge in edges]
    row = spark.range(5, 6).select(*ids).first()
    assert row
    assert len(set(row)) == len(ids)


def test_null_attempt_is_attempt_0(spark: SparkSession) -> None:
    row = spark.range(1).select(anchor("id"), anchor("id", attempt=F.lit(None))).first()
    assert row
    assert row[0] == row[1]


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


def test_hash_of_zero_becomes_id_one(spark: SparkSession) -> None:
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


def test_nulls_and_negative_zero_give_different_ids(spark: SparkSession) -> None:
    """xxhash64 ignores nulls, and hashes 0.0 and -0.0 alike."""
    rows = [(1, None, 0.0), (None, 1, 0.0), (1, None, -0.0), (None, None, 0.0)]
    assert len(set(values(spark, rows, "a INT, b INT, c DOUBLE", anchor("a", "b", "c")))) == 4


def test_attempt_edge_key_and_parent_change_the_id(spark: SparkSession) -> None:
    row = spark.range(1).select(
        anchor("id"), anchor("id", attempt=1), anchor("id", attempt=F.lit(2)),
        tuple_id("id", "a"), tuple_id("id", "b"), tuple_id(F.lit(1), "a"),
        tuple_id("id", "a", F.lit(0)), tuple_id("id", "a", F.lit(1)),
        tuple_id("id", "a", F.lit(None)),
    ).first()  # fmt: skip
    assert row
    assert len(set(row)) == 9


def test_null_parent_gives_null_id(spark: SparkSession) -> None:
    assert values(spark, [(None,)], "p BIGINT", tuple_id("p", "e")) == [None]
