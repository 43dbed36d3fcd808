"""Wrong calls of a micro-batch are refused, and nothing is applied."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import (
    ConfigError,
    InvalidBatchError,
    NamespaceNotFoundError,
)
from acker_redis.spark import Acker, MicroBatch, anchors_of
from tests.spark.conftest import MakeSparkAcker
from tests.spark.world import PLACES, frame
from tests.support import total


def columns(**kinds: str) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in kinds.items())


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("anchor BIGINT", "column tuple is missing; the columns are anchor. .*Names"),
        ("tuple BIGINT, n INT", "column anchor is missing; the columns are tuple, n"),
        ("anchor INT, tuple BIGINT", "column anchor is int, but must be bigint"),
        ("anchor BIGINT, tuple STRING", "column tuple is string, but must be bigint"),
        ("Anchor BIGINT, tuple BIGINT", "column Anchor must be written anchor"),
        ("anchor BIGINT, TUPLE BIGINT", "column TUPLE must be written tuple"),
        ("anchors BIGINT", "column anchors is bigint, but must be array"),
        ("anchors ARRAY<STRUCT<a: BIGINT, b: BIGINT>>", "made? it with|make it with anchors_of"),
        ("anchors ARRAY<STRUCT<anchor: BIGINT, tuple: INT>>", "make it with anchors_of"),
    ],
)
def test_wrong_columns_are_refused(
    spark: SparkSession, by_driver: Acker, schema: str, words: str
) -> None:
    df = spark.createDataFrame([], schema)
    uses: list[Callable[[MicroBatch], object]] = [
        lambda b: b.ack(df), lambda b: b.emit(df, edge="e"), lambda b: b.fail(df),
        lambda b: b.touch(df),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(InvalidBatchError, match=words), by_driver.batch(df, 0) as b:
            use(b)
    with pytest.raises(InvalidBatchError, match=words):
        by_driver.ack(df, 0)


def test_duplicate_column_is_refused(spark: SparkSession, by_driver: Acker) -> None:
    df = frame(spark, [(7, 8)])
    twice = df.alias("x").join(df.alias("y"), "n")
    with pytest.raises(InvalidBatchError, match="column anchor occurs more than once, as after"):
        by_driver.ack(twice, 0)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("INT", r"children must be bigint or array<bigint>, not int"),
        ("ARRAY<INT>", "not array<int>"),
        ("STRING", "not string: make them with acker.ids.tuple_id"),
    ],
)
def test_children_of_wrong_types_are_refused(
    spark: SparkSession, by_driver: Acker, kind: str, words: str
) -> None:
    df = frame(spark, [(7, 8)]).withColumn("kids", F.lit(None).cast(kind))
    with pytest.raises(InvalidBatchError, match=words):
        by_driver.ack(df, 0, children="kids")


def test_wrong_calls_of_a_batch_are_refused(spark: SparkSession, by_driver: Acker) -> None:
    df = frame(spark, [(7, 8)])
    b = by_driver.batch(df, 0)
    for use in (
        lambda: b.emit(df, edge="e"), lambda: b.ack(df), lambda: b.fail(df), lambda: b.touch(df),
        lambda: b.track(source="t", source_id="n"),
    ):  # fmt: skip
        with pytest.raises(InvalidBatchError, match="use it as: with acker.batch"):
            use()
    with pytest.raises(InvalidBatchError, match="children= does not support messages of many"):
        many = df.select(anchors_of(("anchor", "tuple")).alias("anchors"), "n")
        by_driver.ack(many, 0, children="n")
    with pytest.raises(InvalidBatchError, match="edge 'e' is empty or was already emitted"), b:
        b.emit(df, edge="e")
        b.emit(df, edge="e")
    with pytest.raises(InvalidBatchError, match="edge '' is empty"), by_driver.batch(df, 0) as b:
        b.emit(df, edge="")
    with pytest.raises(ValueError, match="needs the columns"):
        anchors_of()
    assert total(by_driver.client)["pending"] == 0


@pytest.mark.parametrize("place", PLACES)
def test_invalid_ids_are_refused_and_no_shard_is_changed(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, place: tuple[str, int]
) -> None:
    """A task finds the row, the driver raises the error, and no shard applies a call."""
    acker = make_spark_acker({"shards": place[1]}, mode=place[0])
    good = [(n, 9) for n in range(1, 9)]
    for anchor, id_, words in (
        (2**62 | 4095, 5, "an anchor must be a number"),
        (7, -5, "an id of a message"),
        (None, 5, "1 rows have no anchor"),
        (7, None, "1 rows have no tuple"),
    ):
        rows = frame(spark, [*good, (anchor, id_)])  # type: ignore[list-item]
        with pytest.raises(InvalidBatchError, match=words):
            acker.ack(rows, 0)
        assert total(acker.client)["pending"] == 0


def test_query_id_is_required_outside_a_streaming_query(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    acker = make_spark_acker(query_id=None)
    df = frame(spark, [(7, 8)])
    with pytest.raises(ConfigError, match="give query_id="):
        acker.batch(df, 0)
    with pytest.raises(ConfigError, match="query id"):
        acker.batch(df, 0, query_id="not a name")
    assert acker.batch(df, 0, query_id="given").query_id == "given"


def test_invalid_spark_acker_settings_are_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ({"mode": "both"}, {"on_changed_batch": "ignore"}, {"app_id": "a/b"}):
        with pytest.raises(ConfigError):
            make_spark_acker(**wrong)
    monkeypatch.delenv("ACKER_REDIS_URL", raising=False)
    with pytest.raises(ConfigError, match="ACKER_REDIS_URL"):
        Acker(spark, "n", app_id="a")


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_batch_of_an_unknown_namespace_is_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    acker = make_spark_acker(mode=mode)
    url, mode = acker.application.target.url, acker.application.mode
    acker = Acker(spark, "missing", app_id="a", url=url, mode=mode, query_id="q")
    with pytest.raises(NamespaceNotFoundError):
        acker.ack(frame(spark, [(7, 8)]), 0)
