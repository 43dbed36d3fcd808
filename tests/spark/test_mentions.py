"""A job mentions each message of its batch: what vanished in it is named, and never acked."""

import contextlib
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ChangedBatchError, ConfigError, InvalidBatchError
from acker_redis.spark import Acker, BoltWriter, FileQueue, MicroBatch, collect_anchors, micro_batch
from acker_redis.spark.fold.apply import Done, Job, Keep, Place, Terms, apply
from acker_redis.spark.fold.steps import Steps
from acker_redis.spark.fold.terms import Kind
from acker_redis.spark.fold.vanished import Unmentioned
from tests.spark.conftest import MakeSparkAcker, change, outcomes
from tests.spark.test_batch_plans import played, with_old_ones
from tests.spark.world import Pair, World, firsts, frame
from tests.support import tick, total

WHY = "vanished in batch 0 of query test@q"
PLACES = [("driver", 1), ("executors", 4)]
EVERYWHERE = [
    *PLACES,
    pytest.param("driver", 4, marks=pytest.mark.nightly),
    pytest.param("executors", 1, marks=pytest.mark.nightly),
]


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}")
def acker(request: pytest.FixtureRequest, make_spark_acker: MakeSparkAcker) -> Acker:
    mode, shards = request.param
    return make_spark_acker({"shards": shards}, mode=mode)


def orders(spark: SparkSession, acker: Acker) -> DataFrame:
    """Track 20 orders, of which every fifth is for the moon; return their messages."""
    items = F.when(F.col("id") % 5 == 2, F.lit("moon")).otherwise("apple").alias("item")
    rows = spark.range(20).select(F.format_string("order-%02d", "id").alias("order_id"), items)
    with acker.batch(rows, 0, query_id="ingest") as b:
        messages = b.track(source="t", source_id="order_id", edges="price")
    return messages.localCheckpoint()


MOON = [f"order-{n:02d}" for n in range(2, 20, 5)]


def test_rows_lost_by_an_inner_join_are_failed_by_name(
    spark: SparkSession, acker: Acker, caplog: pytest.LogCaptureFixture
) -> None:
    """The job of the how-to guide with an inner join: 4 of 20 rows vanish."""
    messages = orders(spark, acker)
    prices = spark.createDataFrame([("apple", 0.5)], "item STRING, price DOUBLE")

    def job_b(df: DataFrame) -> MicroBatch:
        with acker.batch(df, 0) as b:
            out = b.freeze(b.df.join(prices, "item"))
            invoices.append(b.emit(out.where("price IS NOT NULL"), edge="invoice"))
            b.fail(out.where("price IS NULL"), "no price")
        return b

    invoices: list[DataFrame] = []
    with caplog.at_level(logging.WARNING, "acker_redis.spark"):
        first, again = job_b(messages), job_b(messages.repartition(3))
    assert outcomes(acker.client) == [("nack", "failed", name, WHY) for name in MOON]
    report, repeat = first.report, again.report
    assert report
    assert repeat
    assert (report.messages, report.vanished, report.failed, report.acked) == (20, 4, 4, 0)
    assert (repeat.repeated, repeat.vanished) == (repeat.calls, 4), "the same digest"
    lost = {f"{row.anchor}:{row.tuple}" for row in messages.where("item = 'moon'").collect()}
    assert len(set(report.examples)) == 3
    assert set(report.examples) <= lost
    [words, _] = [each.getMessage() for each in caplog.records]
    assert "in batch 0 of query test@q messages of 4 trees vanished" in words
    anchors = ", ".join(each.partition(":")[0] for each in report.examples)
    assert f"The first anchors: {anchors}. If rows are left out" in words
    assert sorted(invoices[0].columns) == sorted([*messages.columns, "price"])
    acker.ack(invoices[1], 0, query_id="last")
    assert [v[:2] for v in outcomes(acker.client)] == [("ack", "completed")] * 16


@pytest.mark.parametrize("writes", [False, True])
def test_block_that_mentions_nothing_fails_all_trees(
    spark: SparkSession, acker: Acker, tmp_path: Path, writes: bool
) -> None:
    messages = orders(spark, acker)
    with acker.batch(messages, 0) as b:
        if writes:
            b.write(b.df.drop("anchor", "tuple"), FileQueue(tmp_path))
        b.touch(b.df)
    nacks = [each for each in outcomes(acker.client) if each[0] != "touch"]
    why = f"{WHY}: the job calls neither emit(), ack() nor fail()"
    assert nacks == [("nack", "failed", f"order-{n:02d}", why) for n in range(20)]


class Broken:
    """A sink that is down."""

    def write(self, df: DataFrame, name: str, batch_id: int) -> None:
        raise OSError("down")

    replace = write


FAILING: dict[str, Callable[[MicroBatch, DataFrame], object]] = {
    "emit": lambda b, df: b.emit(
        df.withColumn("x", F.raise_error(F.lit("no")).cast("int")), edge="e"
    ),
    "write": lambda b, df: b.write(df, Broken(), ack=True),
}


@pytest.mark.parametrize("rows", [None, "n >= 0"], ids=["all", "some"])
@pytest.mark.parametrize("call", FAILING)
def test_call_that_raises_mentions_nothing(
    spark: SparkSession, by_driver: Acker, call: str, rows: str | None
) -> None:
    """A job may catch the error, and then no message and no row of the sink was written."""
    world = World(by_driver.client)
    inputs = firsts(world.track(1, 1))
    with by_driver.batch(frame(spark, inputs), 0) as b, contextlib.suppress(Exception):
        FAILING[call](b, b.df.where(rows) if rows else b.df)
    assert b.report
    assert (b.report.acked, b.report.vanished) == (0, 2)
    assert {verdict for verdict, *_ in outcomes(by_driver.client)} == {"nack"}


def test_unmentioned_messages_expire_or_are_acked(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """As the acker is set, or the batch."""
    leave = make_spark_acker(unmentioned="leave")
    world = World(leave.client)
    inputs = firsts(world.track(1, 1))
    with leave.batch(frame(spark, inputs), 0) as b:
        b.ack(b.df.where("n = 0"))
    assert b.report
    assert (b.report.vanished, b.report.failed) == (1, 0)
    assert outcomes(leave.client) == [("ack", "completed", "s0", "")]
    tick(leave.client, 3)
    assert outcomes(leave.client) == [("nack", "expired", "s1", "")]
    world = World(leave.client)
    inputs = firsts(world.track(1, 1))
    with leave.batch(frame(spark, inputs), 1, unmentioned="ack") as b:
        b.ack(b.df.where("n = 0"))
    assert [v[:2] for v in outcomes(leave.client)] == [("ack", "completed")] * 2
    assert b.report
    assert b.report.vanished == 0


def test_unknown_treatment_is_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    acker = make_spark_acker()
    wrong: Any = "drop"
    for make in (
        lambda: make_spark_acker(unmentioned=wrong),
        lambda: acker.batch(frame(spark, []), 0, unmentioned=wrong),
        lambda: BoltWriter(acker, lambda df, _: df, unmentioned=wrong),
    ):
        with pytest.raises(ConfigError, match="unmentioned must be 'fail', 'leave' or 'ack'"):
            make()


def emit_then_ack(b: MicroBatch, df: DataFrame) -> None:
    b.emit(b.df.where("n = 0"), edge="e")
    b.ack()


ALL: dict[str, Callable[[MicroBatch, DataFrame], None]] = {
    "b.ack()": lambda b, df: b.ack(),
    "b.ack(df)": lambda b, df: b.ack(df),
    "b.ack(b.df)": lambda b, df: b.ack(b.df),
    "children": lambda b, df: b.ack(children=F.lit(None).cast("bigint")),
    "emit, then ack()": emit_then_ack,
}


@pytest.mark.parametrize("name", ALL)
def test_ack_of_all_messages_compares_nothing(
    spark: SparkSession, by_driver: Acker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It costs what it costs without a check: no terms, no columns, and no kept rows."""
    seen: list[tuple[Job, list[Terms]]] = []
    real = apply

    def noted(job: Job, terms: list[Terms], place: Place, keep: Keep, steps: Steps) -> Done:
        seen.append((job, terms))
        return real(job, terms, place, keep, steps)

    monkeypatch.setattr(micro_batch, "apply", noted)
    world = World(by_driver.client)
    df = frame(spark, firsts(world.track(1, 1)))
    with by_driver.batch(df, 0) as b:
        ALL[name](b, df)
    [(job, terms)] = seen
    assert job.unmentioned == "ack"
    assert {each.kind for each in terms} <= {Kind.INPUT, Kind.CHILD}
    assert all("parent" not in each.df.columns for each in terms)
    assert b._input.is_frozen == ("b.df" in name or "emit" in name or name == "children")
    found = outcomes(by_driver.client)
    assert [v[2] for v in found] == (["s1"] if "emit" in name else ["s0", "s1"])


def test_ack_of_rows_of_another_batch_is_refused(spark: SparkSession, by_driver: Acker) -> None:
    world = World(by_driver.client)
    [one], [other] = world.track(1, 1)
    with (
        pytest.raises(InvalidBatchError, match="no input of these trees is in this batch"),
        by_driver.batch(frame(spark, [one]), 0) as b,
    ):
        b.ack(b.df.union(frame(spark, [other])))
    assert total(by_driver.client)["pending"] == 2


def test_rows_without_ids_are_acked_by_name(spark: SparkSession, by_driver: Acker) -> None:
    """They need the flag; other messages of the batch must be mentioned all the same."""
    world = World(by_driver.client)
    inputs = firsts(world.track(1, 1))
    more = spark.createDataFrame([(None, None, 7)], "anchor BIGINT, tuple BIGINT, n INT")
    with by_driver.batch(frame(spark, inputs).union(more), 0) as b:
        b.ack(b.df.where("anchor IS NULL OR n = 0"), unanchored=True)
    assert outcomes(by_driver.client) == [
        ("ack", "completed", "s0", ""), ("nack", "failed", "s1", WHY),
    ]  # fmt: skip


def test_emitted_rows_of_this_batch_are_emitted_again(
    spark: SparkSession, by_driver: Acker
) -> None:
    """Their ids are no messages of the batch, and mention none."""
    world = World(by_driver.client)
    inputs = firsts(world.track(2, 1, 1))
    with by_driver.batch(frame(spark, inputs), 0) as b:
        first = b.emit(b.df.where("n < 3"), edge="e")
        second = b.emit(first.where("n > 0"), edge="f")
    world.processed |= set(inputs)
    world.wrote(first, second)
    assert outcomes(by_driver.client) == []
    assert total(by_driver.client)["failed"] == 1
    assert world.drain() == {"s0", "s1"}


def test_rows_of_another_batch_fail_no_tree(spark: SparkSession, by_driver: Acker) -> None:
    change(by_driver, unmentioned="fail")
    world, _ = played(spark, by_driver, with_old_ones)
    assert total(world.client)["failed"] == 0


def test_changed_batch_with_vanished_messages(spark: SparkSession, by_driver: Acker) -> None:
    """Other messages vanish in its second run: that is other content."""
    world = World(by_driver.client)
    df = frame(spark, firsts(world.track(1, 1, 1)))

    def job(kept: int) -> MicroBatch:
        with by_driver.batch(df, 0, unmentioned="leave") as b:
            b.ack(b.df.where(f"n = {kept}"))
        return b

    job(0)
    with pytest.raises(ChangedBatchError):
        job(1)
    change(by_driver, on_changed_batch="fail_trees")
    report = job(1).report
    assert report
    assert (report.changed, report.vanished) == (True, 0)
    why = "batch 0 came back with other content"
    assert outcomes(by_driver.client) == [
        ("ack", "completed", "s0", ""), ("nack", "failed", "s1", why),
        ("nack", "failed", "s2", why),
    ]  # fmt: skip


# Writers


def test_bolt_writer_mentions_the_rows_that_process_returns(
    spark: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """With a queue, with a sink, and with neither."""
    messages = orders(spark, acker)

    def process(df: DataFrame, batch_id: int) -> DataFrame:
        bad = F.when(F.col("order_id") == "order-03", F.lit("it is bad"))
        return df.where("item <> 'moon'").withColumn("why", bad)

    queue, table = FileQueue(tmp_path / "queue"), FileQueue(tmp_path / "table")
    BoltWriter(acker, process, {"invoice": queue}, query_id="q")(messages, 0)
    nacks = [("nack", "failed", name, WHY) for name in MOON]
    nacks.append(("nack", "failed", "order-03", "it is bad"))
    assert outcomes(acker.client) == sorted(nacks)
    schema = "order_id STRING, item STRING, anchor BIGINT, tuple BIGINT"
    sent = queue.read(spark, schema)
    assert sent.count() == 15
    last = BoltWriter(acker, lambda df, _: df.where("order_id > 'order-09'"), query_id="some")
    last(sent.where("order_id < 'order-11'"), 0)
    nacks = [("nack", "failed", f"order-{n:02d}", f"{WHY[:-1]}some") for n in (0, 1, 4, 5, 6, 8, 9)]
    assert outcomes(acker.client) == [("ack", "completed", "order-10", ""), *nacks]
    left = BoltWriter(
        acker, lambda df, _: df.where("order_id <> 'order-19'"), sink=table, query_id="last"
    )
    left(sent.where("order_id > 'order-10'"), 0)
    assert left.last_report
    assert (left.last_report.acked, left.last_report.vanished) == (6, 1)


def test_bolt_writer_may_drop_rows_on_purpose(
    spark: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """Rows for the sink then need no ids: they may be sums."""
    messages, table = orders(spark, acker), FileQueue(tmp_path)

    def sums(df: DataFrame, batch_id: int) -> DataFrame:
        return df.groupBy("item").count()

    writer = BoltWriter(acker, sums, sink=table, query_id="q", unmentioned="ack")
    writer(messages, 0)
    assert [v[:2] for v in outcomes(acker.client)] == [("ack", "completed")] * 20
    rows = table.read(spark, "item STRING, count BIGINT").collect()
    assert sorted(map(tuple, rows)) == [("apple", 16), ("moon", 4)]
    with pytest.raises(InvalidBatchError, match="column anchor is missing"):
        BoltWriter(acker, sums, sink=table, query_id="checked")(messages, 0)


# Random jobs


class RandomJob:
    """Messages of random trees, and for each what the job does with it."""

    def __init__(self, world: World, seed: int) -> None:
        chance = random.Random(seed)
        counts = [chance.choice([1, 1, 2, 3]) for _ in range(12)]
        trees = [*world.track(*counts), *world.track(*counts[::-1], block="b")]
        # Some messages of a tree are in another batch.
        self.rows = [
            (*pair, n, *self._fate(chance))
            for n, pair in enumerate(firsts(trees))
            if chance.random() < 0.9
        ]
        chance.shuffle(self.rows)
        self.inputs = [row[:2] for row in self.rows]
        bad = {row[0] for row in self.rows if row[-1]}
        self.lost: list[Pair] = [
            row[:2] for row in self.rows if not any(row[3:7]) and row[0] not in bad
        ]
        self.failed = {world.names[anchor] for anchor in bad}
        self.vanished = {world.names[anchor] for anchor, _ in self.lost}

    @staticmethod
    def _fate(chance: random.Random) -> tuple[int, bool, int, bool, bool]:
        """Return: rows on edge one, whether on edge two, group (or 0), acked, failed."""
        kind = chance.choice(["one", "two", "both", "group", "acked", "all", "none", "none"])
        return (
            chance.randint(1, 3) if kind in ("one", "both", "all") else 0,
            kind in ("two", "both", "all"),
            chance.randint(1, 4) if kind in ("group", "all") else 0,
            kind in ("acked", "all"),
            chance.random() < 0.05,
        )

    def run(self, b: MicroBatch) -> list[DataFrame]:
        """Emit by keys, on two edges and by groups; ack and fail."""
        keys = F.explode(F.sequence(F.lit(1), "one"))
        one = b.emit(b.df.where("one > 0").withColumn("k", keys), edge="one", key=["k"])
        two = b.emit(b.df.where("two"), edge="two")
        groups = b.df.where("g > 0").groupBy("g").agg(collect_anchors().alias("anchors"))
        three = b.emit(groups, edge="three", anchors="anchors")
        b.ack(b.df.where("acked"))
        b.fail(b.df.where("bad"), "no")
        return [one, two, three]


SCHEMA = (
    "anchor BIGINT, tuple BIGINT, n INT, one INT, two BOOLEAN, g INT, acked BOOLEAN, bad BOOLEAN"
)


@pytest.mark.parametrize("unmentioned", ["fail", "leave"])
@pytest.mark.parametrize(("mode", "shards"), EVERYWHERE)
@pytest.mark.parametrize(
    "seed", [1, *[pytest.param(n, marks=pytest.mark.nightly) for n in range(2, 20)]]
)
def test_random_jobs_fail_exactly_the_trees_with_a_vanished_message(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str, shards: int, seed: int,
    unmentioned: Unmentioned,
) -> None:  # fmt: skip
    """Compared with sets; the batch runs twice, in other partitions, with the same digest."""
    acker = make_spark_acker({"shards": shards}, mode=mode, unmentioned=unmentioned)
    world = World(acker.client, seed)
    job = RandomJob(world, seed)
    df = spark.createDataFrame(job.rows, SCHEMA)
    for rows in (df, df.repartition(5)):
        with acker.batch(rows, 0) as b:
            out = job.run(b)
        assert b.report
        assert b.report.vanished == len(job.vanished)
    assert acker.reports[-1].repeated == acker.reports[-1].calls
    found = outcomes(acker.client)
    nacks = {name: why for verdict, _, name, why in found if verdict == "nack"}
    lost = dict.fromkeys(job.vanished, WHY) if unmentioned == "fail" else {}
    assert nacks == dict.fromkeys(job.failed, "no") | lost
    assert lost or unmentioned == "leave"
    left = set(job.lost) if unmentioned == "leave" else set()
    world.processed |= set(job.inputs) - left
    world.wrote(*out)
    acked = {name for verdict, _, name, _ in found if verdict == "ack"}
    assert not acked & {world.names[anchor] for anchor, _ in world.written - world.processed}
    world.acked |= acked
    world.ack(sorted(world.written - world.processed - left))
    tick(acker.client, 3)
    world.check()
    expected = set(world.names.values()) - job.failed - job.vanished
    assert world.acked == expected
    assert total(acker.client)["pending"] == 0
