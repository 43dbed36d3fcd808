"""Rows of one message: after split(), each of them must be mentioned."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import DuplicateMessageError, InvalidBatchError
from acker_redis.spark import Acker, BoltWriter, FileQueue, MicroBatch, Split
from acker_redis.spark.splitting import Empty
from tests.spark.conftest import MakeSparkAcker, outcomes

PLACES = [("driver", 1), ("executors", 4)]
ORDERS = {
    "whole": ["apple", "pear", "plum"],
    "one lost": ["apple", "moon", "plum"],
    "all lost": ["moon", "moon"],
    "single": ["pear"],
    "empty": [],
    "null": None,
}
"""Orders with their items; the moon has no price."""


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}")
def acker(request: pytest.FixtureRequest, make_spark_acker: MakeSparkAcker) -> Acker:
    mode, shards = request.param
    return make_spark_acker({"shards": shards, "edges": ("price", "item")}, mode=mode)


def tracked(spark: SparkSession, acker: Acker) -> DataFrame:
    rows = spark.createDataFrame(list(ORDERS.items()), "order_id STRING, items ARRAY<STRING>")
    with acker.batch(rows, 0, query_id="ingest") as b:
        messages = b.track(source="t", source_id="order_id", edges="price")
    return messages


def priced(df: DataFrame) -> DataFrame:
    """Return the rows that have a price: an inner join."""
    spark = df.sparkSession
    prices = spark.createDataFrame([("apple", 1), ("pear", 2), ("plum", 3)], "items STRING, p INT")
    return df.join(prices, "items")


def emit(b: MicroBatch, lines: DataFrame) -> DataFrame:
    return b.emit(priced(lines), edge="invoice")


def acks(b: MicroBatch, lines: DataFrame) -> None:
    b.ack(priced(lines))


def last(spark: SparkSession, acker: Acker, out: DataFrame) -> None:
    """Ack the messages that were emitted, as the next job."""
    acker.ack(out, 0, query_id="last")


def verdicts(acker: Acker) -> dict[str, str]:
    return {source_id: verdict for verdict, _, source_id, _ in outcomes(acker.client)}


@pytest.mark.parametrize("does", [emit, acks])
@pytest.mark.parametrize("empty", ["vanish", "ack"])
def test_message_that_lost_one_of_its_rows_is_nacked(
    spark: SparkSession, acker: Acker, does: Callable[..., DataFrame | None], empty: str
) -> None:
    with acker.batch(tracked(spark, acker), 0) as b:
        out = does(b, b.split(b.df, "items", edge="item", empty=empty))
    if out is not None:
        last(spark, acker, out)
    left_out = "ack" if empty == "ack" else "nack"
    assert verdicts(acker) == {
        "whole": "ack",
        "one lost": "nack",
        "all lost": "nack",
        "single": "ack",
        "empty": left_out,
        "null": left_out,
    }
    assert b.report
    assert b.report.vanished == (2 if empty == "ack" else 4)


def test_lost_rows_are_acked_without_split_and_the_log_says_so_once(
    spark: SparkSession, acker: Acker, caplog: pytest.LogCaptureFixture
) -> None:
    """A loss that stays unseen: a row of the message is left, and mentions it."""
    messages = tracked(spark, acker)
    with caplog.at_level(logging.WARNING, "acker_redis.spark"):
        for batch_id, query_id in ((0, "q"), (0, "q")):
            with acker.batch(messages, batch_id, query_id=query_id) as b:
                lines = b.df.withColumn("items", F.explode("items"))
                b.ack(priced(lines))
    assert verdicts(acker)["one lost"] == "ack"
    assert b.report
    assert b.report.mentioned == 3
    words = [each.getMessage() for each in caplog.records if "use split" in each.getMessage()]
    assert len(words) == 1
    assert "rows of one message were mentioned up to 3 times in batch 0" in words[0]


@pytest.mark.parametrize("all_rows", [True, False], ids=["b.ack()", "b.ack(b.df)"])
def test_ack_of_all_messages_acks_no_part(
    spark: SparkSession, acker: Acker, all_rows: bool
) -> None:
    with acker.batch(tracked(spark, acker), 0) as b:
        acks(b, b.split(b.df, "items"))
        b.ack(None if all_rows else b.df)
    assert verdicts(acker) == {
        "whole": "ack",
        "one lost": "nack",
        "all lost": "nack",
        "single": "ack",
        "empty": "ack",
        "null": "ack",
    }


@pytest.mark.parametrize("empty", ["vanish", "ack"])
@pytest.mark.parametrize("queued", [True, False])
def test_parts_that_all_have_a_row_are_not_compared(
    spark: SparkSession, acker: Acker, tmp_path: Path, empty: Empty, queued: bool
) -> None:
    """A projection of the split drops no part; messages without parts vanish all the same."""
    queue = FileQueue(tmp_path)
    with acker.batch(tracked(spark, acker), 0) as b:
        lines = b.split(b.df, "items", empty=empty).withColumn("price", F.lit(1))
        if queued:
            out = b.emit(lines, edge="invoice", queue=queue)
        else:
            b.write(lines, queue, ack=True)
    if queued:
        last(spark, acker, out)
    assert b.report
    assert b.report.vanished == (0 if empty == "ack" else 2)
    left_out = "ack" if empty == "ack" else "nack"
    assert verdicts(acker) == {
        **dict.fromkeys(("whole", "one lost", "all lost", "single"), "ack"),
        **dict.fromkeys(("empty", "null"), left_out),
    }


OTHERS: dict[str, Callable[[MicroBatch, DataFrame], object]] = {
    "emits some": lambda b, lines: b.emit(lines.where("items <> 'moon'"), edge="bill"),
    "acks some": lambda b, lines: b.ack(lines.where("items <> 'moon'")),
    "emits a copy": lambda b, lines: b.emit(b.freeze(lines), edge="bill"),
    "splits again": lambda b, lines: b.ack(
        b.split(lines.withColumn("items", F.split("items", "")), "items").where("true")
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_parts_that_all_have_a_row_have_rows_in_other_outputs(
    spark: SparkSession, acker: Acker, other: str
) -> None:
    """Messages without parts vanish, so the others are compared."""
    with acker.batch(tracked(spark, acker), 0) as b:
        lines = b.split(b.df, "items")
        outs = [b.emit(lines, edge="invoice"), OTHERS[other](b, lines)]
    for n, out in enumerate(outs):
        if isinstance(out, DataFrame):
            acker.ack(out, 0, query_id=f"last{n}")
    assert {name for name, verdict in verdicts(acker).items() if verdict == "nack"} == {
        "empty",
        "null",
    }


def test_split_of_other_messages_than_all_mentions_no_others(
    spark: SparkSession, acker: Acker
) -> None:
    with acker.batch(tracked(spark, acker), 0) as b:
        some = b.freeze(b.df.where("order_id <> 'single'"))
        b.ack(b.split(some, "items", empty="ack"))
    assert {name for name, verdict in verdicts(acker).items() if verdict == "nack"} == {"single"}


def test_lost_part_is_named_with_its_edge(spark: SparkSession, acker: Acker) -> None:
    with acker.batch(tracked(spark, acker).where("order_id = 'one lost'"), 0) as b:
        lines = b.split(b.df, "items", edge="item")
        acks(b, lines)
    [moon] = lines.where("items = 'moon'").collect()
    assert b.report
    assert b.report.examples == (f"{moon['anchor']}:{moon['tuple']}",)
    assert acker.client.ids.edges_of(moon["tuple"]) == ("item",)


def test_failed_part_fails_its_tree_and_vanishes_not(spark: SparkSession, acker: Acker) -> None:
    with acker.batch(tracked(spark, acker).where("order_id = 'one lost'"), 0) as b:
        lines = b.split(b.df, "items")
        emit(b, lines)
        b.fail(lines.where("items = 'moon'"), "no price")
    assert b.report
    assert b.report.vanished == 0
    assert outcomes(acker.client) == [("nack", "failed", "one lost", "no price")]


def test_part_may_be_split_again(spark: SparkSession, acker: Acker) -> None:
    rows = spark.createDataFrame(
        [("whole", [["a", "b"], ["c"]]), ("cut", [["a"], ["b", "x"]])],
        "order_id STRING, boxes ARRAY<ARRAY<STRING>>",
    )
    with acker.batch(rows, 0, query_id="ingest") as b:
        messages = b.track(source="t", source_id="order_id", edges="price")
    with acker.batch(messages, 0) as b:
        items = b.split(b.split(b.df, "boxes"), "boxes")
        b.ack(items.where("boxes <> 'x'"))
    assert verdicts(acker) == {"whole": "ack", "cut": "nack"}


def test_equal_keys_in_one_message_are_refused(spark: SparkSession, acker: Acker) -> None:
    messages = tracked(spark, acker)
    with (
        pytest.raises(DuplicateMessageError, match="elements of one array, need key="),
        acker.batch(messages, 0) as b,
    ):
        acks(b, b.split(b.df, "items", key="items"))
    assert outcomes(acker.client) == []


def test_split_needs_an_array_and_a_known_treatment(spark: SparkSession, acker: Acker) -> None:
    messages = tracked(spark, acker)
    with acker.batch(messages, 0, query_id="bad") as b:
        with pytest.raises(InvalidBatchError, match="order_id is string, but must be an array"):
            b.split(b.df, "order_id")
        with pytest.raises(InvalidBatchError, match="empty must be 'vanish' or 'ack'"):
            b.split(b.df, "items", empty="drop")  # type: ignore[arg-type]
        b.ack()


def test_rows_of_many_trees_are_split(spark: SparkSession, acker: Acker) -> None:
    """A message of two trees: each tree misses the part that was lost."""
    messages = tracked(spark, acker).where("order_id IN ('whole', 'single')")
    pairs = F.collect_list(F.struct("anchor", "tuple")).alias("anchors")
    with acker.batch(messages, 0, query_id="join") as b:
        joined = b.df.groupBy().agg(pairs).withColumn("items", F.lit("a b").cast("string"))
        out = b.emit(joined, edge="invoice", anchors="anchors")
    out = out.withColumn("items", F.split("items", " "))
    with acker.batch(out, 0) as b:
        b.ack(b.split(b.df, "items").where("items = 'a'"))
    assert b.report
    assert b.report.vanished == 2
    assert verdicts(acker) == {"whole": "nack", "single": "nack"}


def test_writer_splits_before_it_processes(
    spark: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    writer = BoltWriter(
        acker,
        lambda df, _: priced(df),
        {"invoice": FileQueue(tmp_path)},
        split=Split("items", empty="ack"),
    )
    writer(tracked(spark, acker), 0)
    schema = "items STRING, p INT, anchor BIGINT, tuple BIGINT"
    last(spark, acker, FileQueue(tmp_path).read(spark, schema))
    assert verdicts(acker) == {
        "whole": "ack",
        "one lost": "nack",
        "all lost": "nack",
        "single": "ack",
        "empty": "ack",
        "null": "ack",
    }


@pytest.mark.parametrize("keeps", ["b.df", "a join"])
def test_parts_come_from_one_evaluation(spark: SparkSession, acker: Acker, keeps: str) -> None:
    """Rows of a plan that changes are written before they are split twice."""
    with acker.batch(tracked(spark, acker), 0) as b:
        df = b.df if keeps == "b.df" else b.df.withColumn("chance", F.rand())
        lines = b.split(df, "items", empty="ack")
        b.ack(lines)
    assert set(verdicts(acker).values()) == {"ack"}
