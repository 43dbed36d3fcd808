"""Tracking a batch of a source: loose trees and blocks, and the messages to write."""

import logging
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import (
    BacklogError,
    ChangedBatchError,
    ConfigError,
    HighWaterError,
    InvalidBatchError,
    LaneError,
)
from acker_redis.protocol.ids import block_anchor, split_anchor
from acker_redis.protocol.labels import CountedLabel, source_id_of
from acker_redis.spark import (
    Acker,
    Counted,
    Ledger,
    Names,
    admission,
    counted,
    kafka_source_id,
    source_id,
    tracking,
)
from acker_redis.spark import shared_state as acker_module
from tests.spark.conftest import MakeSparkAcker, change, outcomes
from tests.support import block_outcomes, tick, total

SID = "concat('s', id) AS sid"
Row = tuple[str, int, int]
"""edge, anchor, tuple"""


@pytest.fixture(params=[("driver", 1), ("executors", 2)], ids=["driver-1", "executors-2"])
def acker(request: pytest.FixtureRequest, make_spark_acker: MakeSparkAcker) -> Acker:
    mode, shards = request.param
    return make_spark_acker({"shards": shards, "high_water": 50_000}, mode=mode)


@pytest.fixture
def by_driver(make_spark_acker: MakeSparkAcker) -> Acker:
    return make_spark_acker({"high_water": 50_000})


def track(
    acker: Acker,
    df: DataFrame,
    ids: str | Column | Counted,
    batch_id: int = 0,
    edges: Any = "e",
    **more: Any,
) -> DataFrame:
    """Track a batch; return its messages, evaluated once."""
    with acker.batch(df, batch_id) as b:
        out = b.track(source="t", source_id=ids, edges=edges, **more)
    assert b.report is acker.reports[-1]
    return out.localCheckpoint()


def rows(messages: DataFrame) -> list[Row]:
    return sorted((r["edge"], r["anchor"], r["tuple"]) for r in messages.collect())


def done(acker: Acker, *messages: DataFrame) -> list[str]:
    """Ack all messages; return the source ids of all acks that were reported."""
    for number, each in enumerate(messages):
        acker.ack(each, number, query_id="done")
    found = outcomes(acker.client)
    assert {verdict for verdict, *_ in found} <= {"ack"}
    return sorted(name for _, _, name, _ in found)


def numbered(spark: SparkSession, *numbers: int, prefix: str = "p") -> DataFrame:
    return spark.createDataFrame([(prefix, n) for n in numbers], "p STRING, n BIGINT")


def by_number() -> Counted:
    return counted("p", number="n")


def blocks(messages: DataFrame) -> set[int]:
    """Return the numbers of the blocks that contain trees."""
    places = [split_anchor(r["anchor"]) for r in messages.select("anchor").collect()]
    return {place[0] for place in places if place}


# Loose trees


def test_loose_trees_on_two_edges(spark: SparkSession, acker: Acker) -> None:
    df = spark.range(5).selectExpr("*", SID)
    out = track(acker, df, "sid", edges=["left", 'it\'s \\ the "right" one'])
    assert set(out.columns) == {"id", "sid", "anchor", "tuple", "edge"}
    assert out.count() == 10
    (report,) = acker.reports
    assert (report.tracked, report.trees, report.messages, report.acked) == (5, 5, 5, 0)
    expected = df.select(acker.ids.anchor("sid", source="t").alias("a")).collect()
    assert {r["anchor"] for r in out.collect()} == {r["a"] for r in expected}
    assert len({r["tuple"] for r in out.collect()}) == 10
    left = out.where("edge = 'left'")
    assert done(acker, left) == []
    assert done(acker, left, out.where("edge <> 'left'")) == [f"s{n}" for n in range(5)]


def test_each_attempt_has_its_own_tree(spark: SparkSession, by_driver: Acker) -> None:
    df = spark.createDataFrame([("a", 0), ("a", 1), ("b", 1)], "sid STRING, try INT")
    first = track(by_driver, df, "sid", attempt="try")
    again = track(by_driver, df.where("try = 1"), "sid", 1, attempt=F.col("try") + 1)
    third = track(by_driver, df.where("try = 0"), "sid", 2, attempt=7)
    anchors = [a for each in (first, again, third) for _, a, _ in rows(each)]
    assert len(set(anchors)) == 6
    assert done(by_driver, first, again, third) == sorted("aababa")


@pytest.mark.parametrize("attempt", [2**31, 2**32, 2**63])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_attempt_that_is_no_int_is_refused(
    spark: SparkSession, by_driver: Acker, ansi: str, attempt: int
) -> None:
    """A cast without ANSI mode would make it another attempt, whose tree may be pending."""
    df = spark.range(20).selectExpr("*", SID, "'p' AS p", "id AS n")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for source_id in ("sid", by_number()):
            with pytest.raises(InvalidBatchError, match=f"must fit an INT, not {attempt}"):
                track(by_driver, df, source_id, attempt=attempt)
            if attempt < 2**63:
                column = F.lit(attempt).cast("bigint")
                with pytest.raises(Exception, match=r"must fit an INT|CAST_OVERFLOW"):
                    track(by_driver, df, source_id, attempt=column)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert total(by_driver.client)["tracked"] == 0


def test_retried_batch_is_applied_once(spark: SparkSession, acker: Acker) -> None:
    """With other partitions and another order: the same messages, and no tree is tracked twice."""
    df = spark.range(20).selectExpr("*", SID)
    first = rows(track(acker, df, "sid"))
    again = rows(track(acker, df.orderBy(F.desc("id")).repartition(3, "sid"), "sid"))
    assert again == first
    assert acker.reports[-1].repeated == acker.reports[-1].calls > 0
    assert total(acker.client)["tracked"] == 20
    with pytest.raises(ChangedBatchError):
        track(acker, df.where("id > 0"), "sid")
    track(acker, df.limit(0), "sid", 1)
    track(acker, df.where("id = 0"), "sid", 2, attempt=1)
    with pytest.raises(LaneError):
        track(acker, df, "sid", 1)


def test_batch_with_invalid_source_ids_is_refused(spark: SparkSession, by_driver: Acker) -> None:
    names = [f"s{n}" for n in range(8)]
    for wrong, words in (
        (None, "1 rows have no source id: it must not be null"),
        ("s3", "1 source ids occur more than once"),
        ("x" * 256, "1 to 255 bytes, this one 256"),
        ("", "1 to 255 bytes, this one 0"),
        ("a\tb", "control characters"),
    ):
        df = spark.createDataFrame([(name,) for name in [*names, wrong]], "sid STRING")
        with pytest.raises(InvalidBatchError, match=words):
            track(by_driver, df, "sid")
        assert total(by_driver.client)["tracked"] == 0


def test_changed_batch_is_refused_or_fails_its_trees(spark: SparkSession, acker: Acker) -> None:
    """All its trees fail, and no message is written; other trees of the first content expire."""
    change(acker, on_changed_batch="fail_trees")
    df = spark.range(30).selectExpr("*", SID)
    track(acker, df.where("id < 20"), "sid")
    for _ in range(2):
        assert track(acker, df.where("id >= 10"), "sid").count() == 0
        assert acker.reports[-1].changed
    found = outcomes(acker.client)
    assert {v[2] for v in found} == {f"s{n}" for n in range(10, 30)}
    assert {v[:2] for v in found} == {("nack", "failed"), ("nack", "conflict")}
    assert track(acker, df.where("id = 1"), "sid", 1, attempt=1).count() == 1


# Trees in blocks


def test_kafka_records_are_tracked_in_blocks(spark: SparkSession, by_driver: Acker) -> None:
    """Two partitions, with consecutive offsets across the border of a window."""
    df = spark.range(4070, 4120).select(
        F.lit("orders").alias("topic"), F.lit(3).alias("partition"), F.col("id").alias("offset")
    )
    df = df.union(df.withColumn("partition", F.lit(4)).where("offset < 4100"))
    out = track(by_driver, df, kafka_source_id(), edges=["a", "b"])
    assert out.columns[:3] == ["topic", "partition", "offset"]
    assert set(out.columns[3:]) == {"anchor", "edge", "tuple"}
    # Partition 4 has five records after the border: too few for a block.
    assert len(blocks(out)) == 3
    assert by_driver.reports[-1].tracked == 80
    expected = [f"orders/3/{n}" for n in range(4070, 4120)]
    expected += [f"orders/4/{n}" for n in range(4070, 4100)]
    labels = set()
    by_driver.ack(out.where("edge = 'a'"), 0, query_id="one")
    by_driver.ack(out.where("edge = 'b'"), 0, query_id="two")
    for entry in by_driver.client.outcomes("t").read():
        if entry.block:
            labels.add((entry.block.label, entry.block.slots))
    assert labels == {("orders/3@4070", 25), ("orders/3@4095", 25), ("orders/4@4070", 25)}
    assert done(by_driver) == sorted(expected)


@pytest.mark.parametrize("attempt", [0, 2**31 - 1])
def test_source_ids_of_the_longest_topic_fit(
    spark: SparkSession, by_driver: Acker, attempt: int
) -> None:
    """From offset 1000 on source ids would exceed 255 bytes, and labels with attempts earlier."""
    topics = ["x" * 248 + end for end in "ab"]
    df = spark.range(980, 1020).select(
        F.explode(F.array(*map(F.lit, topics))).alias("topic"),
        F.lit(7).alias("partition"),
        F.col("id").alias("offset"),
    )
    out = track(by_driver, df, kafka_source_id(), attempt=attempt)
    assert by_driver.reports[-1].tracked == 80
    # The label of a whole topic has no room for an attempt: those trees are loose.
    assert len(blocks(out)) == (2 if attempt else 4)
    by_driver.ack(out, 0, query_id="one")
    names = done(by_driver)
    assert len(set(names)) == 80
    assert max(len(name.encode()) for name in names) <= 255
    assert {f"{topic}/7/999" for topic in topics} <= set(names)
    short = [name.split("/") for name in names if name.endswith("/7/1000")]
    assert sorted(topic for topic, _, _ in short) == sorted(
        f"{'x' * 180}#{sha256(topic.encode()).hexdigest()[:32]}" for topic in topics
    )


def test_prefix_that_becomes_too_long_refuses_the_whole_batch(
    spark: SparkSession, by_driver: Acker
) -> None:
    prefix = "x" * 251
    rows = [*range(990, 1001)]
    df = numbered(spark, *rows, prefix=prefix).union(numbered(spark, *range(20), prefix="short"))
    with pytest.raises(InvalidBatchError, match="use a shorter prefix, for example counted"):
        track(by_driver, df, by_number())
    assert by_driver.client.status().counters["tracked"] == 0
    track(by_driver, numbered(spark, *rows[:-1], prefix=prefix), by_number(), 1)
    assert by_driver.client.status().counters["tracked"] == 10


def test_slots_follow_the_numbers(spark: SparkSession, by_driver: Acker) -> None:
    """The record with the number base + slot is in that slot, for any order of rows."""
    df = spark.range(100, 150).selectExpr("'p' AS p", "id AS n").orderBy(F.desc("n"))
    out = track(by_driver, df, by_number())
    for r in out.collect():
        place = split_anchor(r["anchor"])
        assert place is not None
        assert source_id_of("p@100", r["anchor"]) == f"p/{r['n']}"


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 1, 5],
        [7],
        [0, 4094, 4095, 9_000_000_000],
        [2**63 - 1],
        [*range(4080, 4095)],
        [*range(0, 144, 9)],
        [*range(100, 115), 228],
    ],
)
def test_wide_gaps_and_few_records_give_loose_trees(
    spark: SparkSession, by_driver: Acker, numbers: list[int]
) -> None:
    """A block has at least 16 records, and at most 8 slots for each."""
    out = track(by_driver, numbered(spark, *numbers), by_number())
    assert blocks(out) == set()
    assert by_driver.reports[-1].tracked == len(numbers)
    assert total(by_driver.client)["pending"] == len(numbers)
    assert done(by_driver, out) == sorted(f"p/{n}" for n in numbers)


@pytest.mark.parametrize(
    ("numbers", "slots"),
    [
        ([*range(30), 31], 32),
        ([*range(1, 60, 2)], 59),
        ([*range(100, 115), 227], 128),
        ([*range(4000, 4095, 3), *range(4095, 4195, 3)], 94 + 100),
        ([*range(0, 4095, 8)], 4089),
        ([*range(2**63 - 136, 2**63 - 8, 7)], 127),
    ],
)
def test_records_with_gaps_are_tracked_in_blocks(
    spark: SparkSession, acker: Acker, numbers: list[int], slots: int
) -> None:
    """Also when the batch runs again. A gap counts as pending, and gets no verdict."""
    df = numbered(spark, *numbers)
    out = track(acker, df, by_number())
    assert len(blocks(out)) == len({n // 4095 for n in numbers})
    assert rows(track(acker, df.repartition(3), by_number())) == rows(out)
    assert acker.reports[-1].repeated == acker.reports[-1].calls > 0
    assert {report.trees for report in acker.reports} == {len(numbers)}
    counters = total(acker.client)
    assert (counters["tracked"], counters["pending"]) == (len(numbers), slots)
    assert done(acker, out) == sorted(f"p/{n}" for n in numbers)
    counters = total(acker.client)
    assert (counters["acked"], counters["pending"]) == (len(numbers), 0)


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_block_with_gaps_expires_without_verdicts_for_them(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    """Some trees are acked, some fail, and the others expire."""
    acker = make_spark_acker({"high_water": 50_000}, mode=mode)
    out = track(acker, numbered(spark, *range(1000, 1100, 2)), by_number())
    assert len(blocks(out)) == 1
    with acker.batch(out.where("n % 10 <> 4"), 0, query_id="bolt") as b:
        b.fail(b.df.where("n % 10 = 2"), "no")
        b.ack()
    tick(acker.client, 3)
    fates = {2: ("nack", "failed", "no"), 4: ("nack", "expired", "")}
    ack = ("ack", "completed", "")
    found = verdict_rows(spark, acker)
    ends = [(r["verdict"], r["reason"], r["why"], r["source_id"]) for r in found.collect()]
    assert sorted(ends) == sorted((*fates.get(n % 10, ack), f"p/{n}") for n in range(1000, 1100, 2))
    assert {r["trees"] for r in found.select("trees").collect()} == {1}
    left = {name: n for name, n in total(acker.client).items() if n}
    assert left == {"tracked": 50, "acked": 30, "failed": 10, "expired": 10}


def test_blocks_and_loose_trees_of_one_batch(spark: SparkSession, acker: Acker) -> None:
    """With several numberings, attempts, null prefixes, and all types of whole numbers."""
    parts = [
        spark.range(20).selectExpr("'p' AS p", "id AS n", "0 AS try"),
        spark.range(20).selectExpr("'p' AS p", "id AS n", "2 AS try"),
        spark.range(40, 43).selectExpr("'q' AS p", "id AS n", "0 AS try"),
        spark.range(4090, 4120).selectExpr("NULL AS p", "id AS n", "NULL AS try"),
    ]
    df = parts[0].union(parts[1]).union(parts[2]).union(parts[3])
    out = track(acker, df.withColumn("n", F.col("n").cast("int")), by_number(), attempt="try")
    assert len(blocks(out)) == 3
    first = rows(out)
    again = df.repartition(3, "n").withColumn("n", F.col("n").cast("smallint"))
    assert rows(track(acker, again, by_number(), attempt="try")) == first
    assert acker.reports[-1].repeated == acker.reports[-1].calls
    expected = [f"p/{n}" for n in range(20)] * 2 + [f"q/{n}" for n in (40, 41, 42)]
    expected += [f"\\N/{n}" for n in range(4090, 4120)]
    assert done(acker, out) == sorted(expected)


def test_one_numbering_in_blocks_and_loose_trees(spark: SparkSession, by_driver: Acker) -> None:
    """Windows between the blocks, or outside their range, give loose trees."""
    numbers = [5, *range(4100, 4130), 9000, *range(12300, 12320), 20_000]
    out = track(by_driver, numbered(spark, *numbers), by_number())
    assert len(blocks(out)) == 2
    assert done(by_driver, out) == sorted(f"p/{n}" for n in numbers)


def test_numbering_in_a_block_beside_a_loose_one(spark: SparkSession, by_driver: Acker) -> None:
    df = numbered(spark, *range(20)).union(numbered(spark, 0, 1, prefix="q"))
    out = track(by_driver, df, by_number())
    assert len(blocks(out)) == 1
    assert done(by_driver, out) == sorted([f"p/{n}" for n in range(20)] + ["q/0", "q/1"])


def test_no_two_batches_share_a_block(
    spark: SparkSession, by_driver: Acker, make_spark_acker: MakeSparkAcker
) -> None:
    """Neither of one window, nor of one label, nor of another query with the same records."""
    one = track(by_driver, numbered(spark, *range(20)), by_number())
    two = track(by_driver, numbered(spark, *range(20, 40)), by_number(), 1)
    three = track(by_driver, numbered(spark, *range(0, 40, 2)), by_number(), 2)
    other = make_spark_acker(client=by_driver.client, query_id="other")
    same = track(other, numbered(spark, *range(20)), by_number())
    assert len(blocks(one) | blocks(two) | blocks(three) | blocks(same)) == 4
    assert total(by_driver.client)["conflict"] == 0
    found = done(by_driver, one, two, three, same)
    numbers = [*range(20), *range(20, 40), *range(0, 40, 2), *range(20)]
    assert found == sorted(f"p/{n}" for n in numbers)


def test_invalid_numbers_are_refused(spark: SparkSession, by_driver: Acker) -> None:
    df = spark.range(20).selectExpr("'p' AS p", "id AS n")
    extra = spark.createDataFrame([("p", None), ("p", -1), ("p", 3)], "p STRING, n BIGINT")
    for more, words in (
        (extra.where("n IS NULL"), "records of p at least one has no number"),
        (extra.where("n = -1"), "or a number below 0"),
        (extra.where("n = 3"), "more than once|have the number of another record"),
    ):
        with pytest.raises(InvalidBatchError, match=words):
            track(by_driver, df.union(more), by_number())
    twice = df.union(df.where("n = 3")).union(df.where("n = 3"))
    with pytest.raises(InvalidBatchError, match="more than once|the number of another record"):
        track(by_driver, twice, by_number())
    with pytest.raises(InvalidBatchError, match="an attempt must be 0 or more, not -1"):
        track(by_driver, df, by_number(), attempt=-1)
    assert total(by_driver.client)["tracked"] == 0


@pytest.mark.parametrize("kind", ["DECIMAL(20,0)", "DOUBLE", "STRING", "DATE"])
def test_numbers_of_wrong_types_are_refused(
    spark: SparkSession, by_driver: Acker, kind: str
) -> None:
    df = spark.createDataFrame([], f"p STRING, n {kind}")
    with pytest.raises(InvalidBatchError, match="a record's number must be a whole number, not"):
        track(by_driver, df, by_number())


def test_invalid_prefixes_are_refused(spark: SparkSession, by_driver: Acker) -> None:
    for prefix, words in (("x" * 256, "255 bytes"), ("a\nb", "control characters")):
        for count in (3, 20):
            with pytest.raises(InvalidBatchError, match=words):
                track(by_driver, numbered(spark, *range(count), prefix=prefix), by_number())
    with pytest.raises(ValueError, match="needs the columns"):
        counted(number="n")


def test_labels() -> None:
    for prefix in ("p", "a@5", "a~3@7", "", "orders/3"):
        for attempt in (0, 1, 2**31 - 1):
            label = CountedLabel(prefix, 17, attempt)
            assert CountedLabel.parse(str(label)) == label
            assert source_id_of(str(label), block_anchor(9, 3)) == f"{prefix}/20"


@pytest.mark.parametrize("step", [1, 3])
def test_changed_batch_of_blocks_fails_its_trees(
    spark: SparkSession, acker: Acker, step: int
) -> None:
    """Also with gaps, which get no verdict."""
    change(acker, on_changed_batch="fail_trees")
    first, second = range(0, 20 * step, step), range(0, 22 * step, step)
    track(acker, numbered(spark, *first), by_number())
    for _ in range(2):
        out = track(acker, numbered(spark, *second), by_number())
        assert out.count() == 0
        assert acker.reports[-1].changed
    found = outcomes(acker.client)
    assert [v[2] for v in found] == sorted(f"p/{n}" for n in second)
    assert {v[:2] for v in found} == {("nack", "failed")}
    tick(acker.client, 3)
    assert [v[:3] for v in outcomes(acker.client)] == sorted(
        ("nack", "expired", f"p/{n}") for n in first
    )


def test_records_of_the_gaps_of_a_failed_batch_are_tracked_later(
    spark: SparkSession, by_driver: Acker
) -> None:
    change(by_driver, on_changed_batch="fail_trees")
    track(by_driver, numbered(spark, *range(0, 40, 2)), by_number(), edges="one")
    track(by_driver, numbered(spark, *range(0, 40, 2)), by_number(), edges="other")
    out = track(by_driver, numbered(spark, *range(1, 40, 2)), by_number(), 1)
    by_driver.ack(out, 0, query_id="done")
    tick(by_driver.client, 3)
    odd = [("ack", "completed", f"p/{n}") for n in range(1, 40, 2)]
    even = [("nack", reason, f"p/{n}") for n in range(0, 40, 2) for reason in ("failed", "expired")]
    assert [v[:3] for v in outcomes(by_driver.client)] == sorted(odd + even)


# Errors before a call is sent


def test_existing_id_columns_are_refused(spark: SparkSession, make_spark_acker: Any) -> None:
    acker = make_spark_acker()
    for name in ("anchor", "tuple", "edge"):
        for column, words in ((name, f"column {name} exists already"), (name.title(), "written")):
            df = spark.createDataFrame([], f"sid STRING, {column} BIGINT")
            with pytest.raises(InvalidBatchError, match=words):
                track(acker, df, "sid")
    df = spark.createDataFrame([("a", 1)], "sid STRING, anchor INT")
    acker = make_spark_acker(
        client=acker.client,
        names=Names(anchor="a"),
    )
    with acker.batch(df, 0) as b:
        assert b.track(source="t", source_id="sid").select("a", "anchor").count() == 1


def test_source_ids_of_wrong_types_are_refused(spark: SparkSession, by_driver: Acker) -> None:
    df = spark.range(1).selectExpr("*", SID)
    with pytest.raises(InvalidBatchError, match="a source id must be a string, not bigint"):
        track(by_driver, df, "id")
    with pytest.raises(InvalidBatchError, match="column sid must be written SID"):
        track(by_driver, df, "SID")
    out = track(by_driver, df, source_id("id", "sid"))
    assert done(by_driver, out) == ["0|s0"]


@pytest.mark.parametrize("edges", [[], [""], "", ["a", "a"], ["a", ""]])
def test_invalid_edges_of_a_batch_are_refused(
    spark: SparkSession, by_driver: Acker, edges: Any
) -> None:
    with pytest.raises(InvalidBatchError, match="edges must be one or more distinct names"):
        track(by_driver, spark.range(1).selectExpr("*", SID), "sid", edges=edges)


def test_a_batch_tracks_once(spark: SparkSession, by_driver: Acker) -> None:
    df = spark.range(1).selectExpr("*", SID)
    with by_driver.batch(df, 0) as b:
        out = b.track(source="t", source_id="sid")
        with pytest.raises(InvalidBatchError, match="a batch tracks once"):
            b.track(source="t", source_id="sid")
        for use in (lambda: b.emit(out, edge="x"), lambda: b.ack(out), lambda: b.fail(out)):
            with pytest.raises(InvalidBatchError, match="neither acks nor emits"):
                use()
    with pytest.raises(InvalidBatchError, match="a batch tracks once"), by_driver.batch(df, 1) as b:
        b.ack(out)
        b.track(source="t", source_id="sid")
    with pytest.raises(ConfigError, match="source"), by_driver.batch(df, 2) as b:
        b.track(source="not a name", source_id="sid")
    assert total(by_driver.client)["pending"] == 1


def test_no_rows(spark: SparkSession, acker: Acker) -> None:
    df = spark.range(0).selectExpr("*", SID)
    assert track(acker, df, "sid").count() == 0
    assert track(acker, numbered(spark), by_number(), 1).count() == 0
    assert [each.calls for each in acker.reports] == [0, 0]


# Room


def no_wait(*args: Any) -> float:
    return 0.0


@pytest.mark.parametrize(("high_water", "count", "rejected"), [(10, 25, 5), (1500, 4200, 1200)])
def test_rejected_trees_are_left_out(
    spark: SparkSession,
    make_spark_acker: MakeSparkAcker,
    monkeypatch: pytest.MonkeyPatch,
    high_water: int,
    count: int,
    rejected: int,
) -> None:
    """Another source fills the table between the wait for room and the call."""
    monkeypatch.setattr(tracking, "wait_for_room", no_wait)
    acker = make_spark_acker({"high_water": high_water})
    df = spark.range(count).selectExpr("*", SID)
    kept = None
    for _ in range(2):
        messages = track(acker, df, "sid", edges=["a", "b"])
        assert len(acker.reports[-1].rejected) == rejected
        sids = {r["sid"] for r in messages.select("sid").collect()}
        assert messages.count() == 2 * len(sids) == 2 * (count - rejected)
        assert kept in (None, sids), "the retry leaves out the same trees"
        kept = sids
    nacked = {name for verdict, reason, name, _ in outcomes(acker.client)}
    assert len(nacked) == rejected
    assert not nacked & (kept or set())


@pytest.mark.parametrize(
    ("high_water", "prefixes", "fit", "step"), [(40, 8, 4, 1), (160, 1100, 16, 1), (77, 8, 4, 2)]
)
def test_rejected_blocks_are_left_out(
    spark: SparkSession,
    make_spark_acker: MakeSparkAcker,
    monkeypatch: pytest.MonkeyPatch,
    high_water: int,
    prefixes: int,
    fit: int,
    step: int,
) -> None:
    """Also blocks with gaps."""
    monkeypatch.setattr(tracking, "wait_for_room", no_wait)
    acker = make_spark_acker({"high_water": high_water})
    number = f"id % 20 * {step} AS n"
    df = spark.range(20 * prefixes).selectExpr("concat('p', id div 20) AS p", number)
    loose = numbered(spark, 7, prefix="one")
    kept = None
    for _ in range(2):
        messages = track(acker, df.union(loose), by_number())
        assert len(acker.reports[-1].rejected_blocks) >= prefixes - fit
        found = {(r["p"], r["n"]) for r in messages.select("p", "n").collect()}
        assert kept in (None, found)
        kept = found
    told = list(block_outcomes(acker.client))
    nacked = {outcome.label.partition("@")[0] for outcome in told}
    assert {outcome.count for outcome in told} == {20}
    assert len(nacked) == len(acker.reports[0].rejected_blocks)
    assert not nacked & {p for p, _ in kept or ()}
    assert ("one", 7) in (kept or ())
    assert len(kept or ()) == 20 * (prefixes - len(nacked)) + 1


def waiting(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Any]) -> list[float]:
    """Replace the sleep of the wait for room: it calls ``meanwhile`` and advances the clock."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        meanwhile()

    clock = SimpleNamespace(monotonic=lambda: 10 * sum(slept), sleep=sleep)
    monkeypatch.setattr(admission, "time", clock)
    return slept


@pytest.mark.parametrize(("mode", "kind"), [("driver", "blocks"), ("executors", "loose")])
def test_batch_waits_for_room(
    spark: SparkSession,
    make_spark_acker: MakeSparkAcker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    kind: str,
) -> None:
    acker = make_spark_acker({"high_water": 40}, mode=mode, max_wait=40.0)
    df = spark.range(60).selectExpr(SID, "'p' AS p", "id AS n")
    ids: Any = "sid" if kind == "loose" else by_number()
    first = track(acker, df.where("n < 30"), ids)
    slept = waiting(monkeypatch, lambda: None)
    with pytest.raises(HighWaterError, match=r"30 trees were still pending.*high water is 40"):
        track(acker, df.where("n >= 30"), ids, 1)
    assert len(slept) > 3
    assert "is waiting for room: 30 trees to track, 30 pending, high water 40" in caplog.text
    assert total(acker.client)["tracked"] == 30
    bolt = make_spark_acker(client=acker.client, query_id="bolt")
    slept = waiting(monkeypatch, lambda: slept[2:3] and bolt.ack(first, 0))
    second = track(acker, df.where("n >= 30"), ids, 1)
    assert len(slept) == 3, "the third pause made room"
    assert acker.reports[-1].waited_ms > 0
    assert second.count() == 30
    assert total(acker.client)["overflow"] == 0


def test_retry_does_not_wait_for_its_own_trees(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """The query died before it wrote the messages, so no bolt can ack the trees."""
    acker = make_spark_acker({"high_water": 30})
    df = spark.range(25).selectExpr("*", SID)
    for _ in range(2):
        assert track(acker, df, "sid").count() == 25
    assert acker.reports[-1].repeated == 1


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_batch_larger_than_high_water_is_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    acker = make_spark_acker({"high_water": 40, "shards": 2}, mode=mode)
    df = spark.range(41).selectExpr("'p' AS p", "id AS n").withColumn("sid", F.expr("p || n"))
    for ids in ("sid", by_number()):
        with pytest.raises(ConfigError, match="a batch of 41 trees does not fit"):
            track(acker, df, ids)
    with pytest.raises(ConfigError, match=r"a batch of 41 trees .* counts the gaps"):
        track(acker, df.where("n % 2 = 0"), by_number())
    assert total(acker.client)["tracked"] == 0


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_gaps_wait_for_room_too(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    """Otherwise the whole block would be rejected: Redis counts its slots as pending."""
    acker = make_spark_acker({"high_water": 60}, mode=mode)
    first = track(acker, numbered(spark, *range(0, 50, 2)), by_number())
    more = numbered(spark, *range(50, 100, 2), *range(10**6, 10**6 + 3))
    with pytest.raises(HighWaterError, match=r"49 trees were still pending"):
        track(acker, more, by_number(), 1)
    assert total(acker.client)["overflow"] == 0
    acker.ack(first, 0, query_id="done")
    assert track(acker, more, by_number(), 1).count() == 28


def test_room_is_checked_per_shard(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> None:
    """A batch on one shard waits, or is refused; its trees are not nacked."""
    acker = make_spark_acker({"shards": 2, "high_water": 20})
    on_shard_0 = acker.ids.anchor("sid", source="t") % 2 == 0
    df = spark.range(100).selectExpr("*", SID).where(on_shard_0).limit(38)
    ids = [r["sid"] for r in df.collect()]
    track(acker, df.where(F.col("sid").isin(ids[:8])), "sid")
    with pytest.raises(HighWaterError):
        track(acker, df.where(F.col("sid").isin(ids[8:16])), "sid", 1)
    assert total(acker.client)["overflow"] == 0


def test_batch_waits_until_verdicts_are_taken(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker = make_spark_acker({"outcomes_limit": 5})
    df = spark.range(10).selectExpr("*", SID)
    acker.ack(track(acker, df.where("id < 5"), "sid"), 0, query_id="bolt")
    with pytest.raises(BacklogError, match="5 verdicts of t were not taken"):
        track(acker, df.where("id >= 5"), "sid", 1)
    change(acker, max_wait=100.0)
    waiting(monkeypatch, lambda: outcomes(acker.client))
    assert track(acker, df.where("id >= 5"), "sid", 1).count() == 5


def test_short_ticks_give_one_warning_per_query(
    spark: SparkSession,
    make_spark_acker: MakeSparkAcker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For each query whose batches are more than a third of N-1 ticks apart."""
    acker = make_spark_acker({"tick_ms": 10_000})
    now = [100.0]
    monkeypatch.setattr(acker_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for query, seconds in (("slow", 7.0), ("quick", 6.0)):
        caplog.clear()
        for _ in range(4):
            with caplog.at_level(logging.WARNING):
                acker.shared.begins(query, spark.range(1))
            now[0] += seconds
        warnings = caplog.text.count(
            "a tree may expire after 20 s, and the batches of this query are 7 s apart"
        )
        assert warnings == (query == "slow")
        assert ("longer tick_ms" in caplog.text) == (query == "slow")


# The ledger


def verdict_rows(spark: SparkSession, acker: Acker) -> DataFrame:
    """Return the verdicts like ``format("acker-outcomes")``, with ranges not expanded."""
    from acker_redis.spark.streams.outcome_rows import SCHEMA, rows_of

    waiting, found = acker.client.outcomes("t"), []
    while entries := waiting.read(1000):
        for entry in entries:
            found += [
                (
                    acker.namespace, "t", r.verdict, r.reason, r.why, r.anchor, r.source_id,
                    r.age_ms, None, r.trees, r.label, None, None, None, None,
                )
                for r in rows_of(entry, expand=False)
            ]  # fmt: skip
        waiting.take(entries)
    return spark.createDataFrame(found, SCHEMA)


def named(ledger: Ledger, verdicts: DataFrame) -> list[tuple[str, str]]:
    return sorted((r["verdict"], r["source_id"]) for r in ledger.name(verdicts).collect())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def test_ledger_names_records_without_numbers(
    spark: SparkSession, acker: Acker, ledger: Ledger
) -> None:
    change(acker, ledger=ledger)
    df = spark.range(30).withColumn("sid", F.concat(F.lit("key "), F.col("id") * 7919 % 31))
    expected = sorted(r["sid"] for r in df.collect())
    first = track(acker, df, "sid", edges=["a", "b"])
    assert set(first.columns) == {"id", "sid", "anchor", "edge", "tuple"}
    assert len(blocks(first)) == 1
    again = track(acker, df.orderBy("sid").repartition(3), "sid", edges=["a", "b"])
    assert rows(again) == rows(first)
    assert acker.reports[-1].repeated == 1
    assert ledger.read(spark).count() == 30
    acker.ack(first.where("edge = 'a'"), 0, query_id="one")
    with acker.batch(first.where("edge = 'b'"), 0, query_id="two") as b:
        b.fail(b.df.where("id = 3"), "no")
        b.ack()
    found = named(ledger, verdict_rows(spark, acker))
    bad = f"key {3 * 7919 % 31}"
    assert found == sorted(("nack" if sid == bad else "ack", sid) for sid in expected)


def test_a_ledger_of_more_than_a_block(
    spark: SparkSession, by_driver: Acker, ledger: Ledger
) -> None:
    change(by_driver, ledger=ledger)
    df = spark.range(9000).selectExpr("*", SID)
    out = track(by_driver, df, "sid")
    assert len(blocks(out)) >= 3
    again = track(by_driver, df.repartition(5), "sid")
    assert again.join(out, ["sid", "anchor", "tuple"]).count() == 9000
    by_driver.ack(out, 0, query_id="bolt")
    assert named(ledger, verdict_rows(spark, by_driver)) == sorted(
        ("ack", f"s{n}") for n in range(9000)
    )


def test_ledger_written_before_a_crash_is_replaced(
    spark: SparkSession, by_driver: Acker, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry has other records: no verdict names a record of the first run."""
    change(by_driver, ledger=ledger)
    df = spark.range(40).selectExpr("*", SID)

    def dies(*args: Any) -> Any:
        raise OSError("the driver was killed")

    with monkeypatch.context() as patch:
        patch.setattr(tracking.Tracking, "_track", dies)
        with pytest.raises(OSError, match="killed"):
            track(by_driver, df.where("id < 20"), "sid")
    out = track(by_driver, df.where("id >= 20"), "sid")
    by_driver.ack(out, 0, query_id="bolt")
    assert named(ledger, verdict_rows(spark, by_driver)) == sorted(
        ("ack", f"s{n}") for n in range(20, 40)
    )


def test_ledger_refuses_null_and_duplicate_source_ids(
    spark: SparkSession, by_driver: Acker, ledger: Ledger
) -> None:
    change(by_driver, ledger=ledger)
    df = spark.range(20).selectExpr("*", SID)
    for more, words in ((None, "1 rows have no source id"), ("s3", "occurs 2 times")):
        extra = spark.createDataFrame([(99, more)], "id BIGINT, sid STRING")
        with pytest.raises(InvalidBatchError, match=words):
            track(by_driver, df.union(extra), "sid")
    with pytest.raises(InvalidBatchError, match="a source id must be a string"):
        track(by_driver, df, "id")
    assert total(by_driver.client)["tracked"] == 0


def test_a_ledger_names_verdicts(spark: SparkSession, ledger: Ledger) -> None:
    """Ranges are expanded; a row that is not in the ledger keeps its source id."""
    trees = spark.createDataFrame(
        [(100 + n, f"s{n}") for n in range(5)], "anchor LONG, source_id STRING"
    )
    ledger.write(trees, "q", 0)
    ledger.write(trees.limit(1), "q", 0)
    assert ledger.read(spark).count() == 5, "a batch is written once"
    ledger.write(
        trees.selectExpr("anchor + 50 AS anchor", "concat('r', source_id) AS source_id"), "q", 1
    )
    schema = (
        "namespace STRING, source STRING, verdict STRING, reason STRING, why STRING, "
        "anchor BIGINT, source_id STRING, age_ms BIGINT, at TIMESTAMP, trees BIGINT, label STRING"
    )
    plain = ("n", "t", "ack", "completed", "")
    outcomes_ = spark.createDataFrame(
        [
            (*plain, 100, "x/0", 5, None, 3, "x@0"),
            (*plain, 104, "x/4", 5, None, 1, "x@0"),
            ("n", "t", "nack", "failed", "no", 103, "x/3", 5, None, 1, "x@0"),
            (*plain, 152, "y/0", 5, None, 1, "y@0"),
            (*plain, 7, "loose", 5, None, 1, None),
        ],
        schema,
    )
    found = ledger.name(outcomes_)
    assert found.columns == outcomes_.columns
    rows_ = [(r["anchor"], r["verdict"], r["source_id"], r["trees"]) for r in found.collect()]
    assert sorted(rows_) == [
        (7, "ack", "loose", 1), (100, "ack", "s0", 1), (101, "ack", "s1", 1), (102, "ack", "s2", 1),
        (103, "nack", "s3", 1), (104, "ack", "s4", 1), (152, "ack", "rs2", 1),
    ]  # fmt: skip
