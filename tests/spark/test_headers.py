"""The ids of messages in Kafka's column ``headers``, compared with ``MessageId``."""

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import InvalidBatchError
from acker_redis.integrations.core.headers import with_id
from acker_redis.protocol.ids import TUPLE_MAX
from acker_redis.spark import anchors_of, from_headers, to_headers
from acker_redis.spark.names import Names, need_ids
from acker_redis.trees.message_id import MAX_MESSAGE, MAX_TREES, MessageId
from tests.spark.conftest import MakeSparkAcker, outcomes

KAFKA = "array<struct<key:string,value:binary>>"
Headers = Sequence[tuple[str, bytes | None]]


def with_headers(spark: SparkSession, rows: Sequence[Headers | None]) -> DataFrame:
    numbered = [(n, each) for n, each in enumerate(rows)]
    return spark.createDataFrame(numbered, f"n INT, headers {KAFKA}").coalesce(1).orderBy("n")


def pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    return [(key, None if value is None else bytes(value)) for key, value in headers]


def test_headers_are_those_of_a_message_id(spark: SparkSession) -> None:
    schema = "anchor BIGINT, tuple BIGINT, other BIGINT, second BIGINT"
    none, most = (None, None), TUPLE_MAX - 1
    rows = [(7, 40, *none), (7, 40, 3, 41), (*none, *none), (most, 1, 10, 2)]
    df = spark.createDataFrame(rows, schema)
    made = df.select(
        to_headers(),
        to_headers(anchors=anchors_of(("anchor", "tuple"), ("other", "second"))).alias("two"),
    )
    assert made.schema["headers"].dataType.simpleString() == KAFKA
    assert made.columns == ["headers", "two"]
    found = made.collect()
    for (anchor, id_, other, second), row in zip(rows, found, strict=True):
        ids = {anchor: id_} if anchor else {}
        assert pairs(row["headers"]) == [
            (key, text.encode()) for key, text in MessageId(ids).to_headers().items()
        ]
        two = MessageId({**ids, other: second} if other else ids)
        assert pairs(row["two"]) == [(k, v.encode()) for k, v in two.to_headers().items()]


def test_other_headers_survive(spark: SparkSession) -> None:
    given = [
        [("trace", b"\xff\x00"), ("empty", None), ("acker-tuple", b"1:2")],
        [("Acker-Tuple", b"1:2"), ("acker-tuples", b"x")],
        [],
        None,
    ]
    df = with_headers(spark, given).withColumn("anchor", F.lit(7).cast("bigint"))
    df = df.withColumn("tuple", F.when(F.col("n") >= 0, F.lit(40)).cast("bigint"))
    ours = ("acker-tuple", b"7:40")
    found = [pairs(row[0]) for row in df.select(to_headers("headers")).collect()]
    assert found == [
        [("trace", b"\xff\x00"), ("empty", None), ours],
        [("acker-tuples", b"x"), ours],
        [ours],
        [ours],
    ]
    untracked = anchors_of((F.lit(None), F.lit(None)))
    bare = df.select(to_headers(F.col("headers"), anchors=untracked)).collect()
    assert [pairs(row[0]) for row in bare] == [each[:-1] for each in found]


VALID: list[Headers | None] = [
    None,
    [],
    [("trace", b"1:2")],
    [("acker-tuple", b"")],
    [("acker-tuple", b" ,\t")],
    [("acker-tuple", b"7:40")],
    [("ACKER-Tuple", b"\t7:40 "), ("x", None)],
    [("acker-tuple", b"3:41 , 7:40,")],
    [("acker-tuple", b"7:40"), ("a", b""), ("Acker-Tuple", b"3:41")],
    [("acker-tuple", b"%d:%d" % (TUPLE_MAX - 1, TUPLE_MAX))],
    [("acker-tuple", b"0000000000000000007:40")],
    [("acker-tuple", b"7:40".ljust(MAX_MESSAGE))],
    [("acker-tuple", b",".join(b"%d:1" % (n + 1) for n in range(MAX_TREES)))],
]


def test_spark_and_the_kafka_producer_read_and_write_the_same_headers(spark: SparkSession) -> None:
    ids = MessageId({7: 40, 3: 41})
    given = [("trace", b"x"), ("Acker-Tuple", b"1:2")]
    written: Any = with_id(given, str(ids).encode())
    (read,) = with_headers(spark, [written]).select(from_headers()).collect()
    assert dict(map(tuple, read["anchors"])) == dict(ids)
    df = with_headers(spark, [given])
    both = anchors_of(
        (F.lit(7).cast("bigint"), F.lit(40).cast("bigint")),
        (F.lit(3).cast("bigint"), F.lit(41).cast("bigint")),
    )
    (row,) = df.select(to_headers("headers", anchors=both)).collect()
    assert pairs(row["headers"]) == written


def test_headers_are_read_as_by_a_message_id(spark: SparkSession) -> None:
    """A message without ids has null, and not an empty array."""
    df = with_headers(spark, VALID).select(from_headers())
    found = [row["anchors"] for row in df.collect()]
    expected = [dict(MessageId.from_headers(each)) or None for each in VALID]
    assert [None if ids is None else dict(map(tuple, ids)) for ids in found] == expected
    assert need_ids(df, Names()), "the acker reads this column"


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_header_that_is_no_message_id_is_an_error(spark: SparkSession, ansi: str) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for value in (b"7", b"7:4 0", b"-7:40", b"7:40;", b"7:9999999999999999999", b"\xff", None):
            headers: Headers = [("acker-tuple", b"3:41"), ("acker-tuple", value)]
            with pytest.raises(InvalidBatchError):
                MessageId.from_headers(headers)
            with pytest.raises(PySparkException, match="acker-tuple needs <anchor>:<tuple>"):
                with_headers(spark, [headers]).select(from_headers()).collect()
        with pytest.raises(PySparkException, match="an anchor occurs twice"):
            with_headers(spark, [[("acker-tuple", b"7:40,7:41")]]).select(from_headers()).collect()
        longest = b"7:40".ljust(MAX_MESSAGE)
        most = b",".join(b"%d:1" % (n + 1) for n in range(MAX_TREES + 1))
        for value, words in ((longest + b",", "65536 characters"), (most, "at most 1638 trees")):
            with pytest.raises(InvalidBatchError, match=words):
                MessageId.from_headers([("acker-tuple", value)])
            with pytest.raises(PySparkException, match=words):
                with_headers(spark, [[("acker-tuple", value)]]).select(from_headers()).collect()
        half = spark.createDataFrame([(7, None)], "anchor BIGINT, tuple BIGINT")
        with pytest.raises(PySparkException, match="only one of anchor and tuple"):
            half.select(to_headers()).collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_ids_pass_through_headers_from_job_to_job(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """A source, a bolt that emits and keeps a header, and the last bolt."""
    acker = make_spark_acker()
    records = spark.createDataFrame([("a",), ("b",)], "source_id STRING")
    with acker.batch(records, 0, query_id="source") as b:
        tracked = b.track(source="t", source_id="source_id")
    trace = F.array(F.struct(F.lit("trace").alias("key"), F.lit("x").cast("binary").alias("value")))
    topic = tracked.withColumn("headers", trace).select("source_id", to_headers("headers"))
    with acker.batch(topic.withColumn("anchors", from_headers()), 0, query_id="bolt") as b:
        emitted = b.emit(b.df, edge="next")
    topic = emitted.select("source_id", to_headers("headers", anchors="anchors"))
    found = topic.collect()
    assert [[key for key, _ in row["headers"]] for row in found] == [["trace", "acker-tuple"]] * 2
    acker.ack(topic.withColumn("anchors", from_headers()), 0, query_id="last")
    assert [verdict[:3] for verdict in outcomes(acker.client)] == [
        ("ack", "completed", name) for name in ("a", "b")
    ]
