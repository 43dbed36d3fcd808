"""The writers: the acker is applied before the queue is written, and retries are idempotent."""

import errno
import fcntl
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ChangedBatchError, ConfigError, InvalidBatchError, LaneError
from acker_redis.spark import (
    Acker,
    BoltWriter,
    FileQueue,
    TrackWriter,
    anchors_of,
    collect_anchors,
    counted,
    micro_batch,
)
from acker_redis.spark.streams import aside as queues
from acker_redis.sync.client import Acker as Client
from tests.spark.conftest import MakeSparkAcker, change, outcomes
from tests.support import tick, total

MESSAGE = "source_id STRING, anchor BIGINT, tuple BIGINT"


class MemoryQueue:
    """A queue in memory; it notes the number of pending trees at each write."""

    def __init__(self, client: Client | None = None) -> None:
        self.batches: dict[int, DataFrame] = {}
        self.pending: list[int] = []
        self.dies = 0
        self._client = client

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> None:
        if self.dies:
            self.dies -= 1
            raise OSError("the disk is full")
        if self._client:
            self.pending.append(self._client.status().pending)
        if batch_id not in self.batches:
            self.batches[batch_id] = df.localCheckpoint()

    def replace(self, df: DataFrame, query_id: str, batch_id: int) -> None:
        before = self.batches.pop(batch_id, None)
        try:
            self.write(df, query_id, batch_id)
        except OSError:
            if before is not None:
                self.batches[batch_id] = before
            raise

    def ids(self, batch_id: int = 0) -> list[str]:
        return sorted(r.source_id for r in self.batches[batch_id].select("source_id").collect())


@pytest.fixture(params=[("driver", 1), ("executors", 2)], ids=["driver-1", "executors-2"])
def acker(request: pytest.FixtureRequest, make_spark_acker: MakeSparkAcker) -> Acker:
    mode, shards = request.param
    return make_spark_acker({"shards": shards}, mode=mode, query_id=None)


@pytest.fixture
def by_driver(make_spark_acker: MakeSparkAcker) -> Acker:
    return make_spark_acker(query_id=None)


def records(spark: SparkSession, *ids: str) -> DataFrame:
    return spark.createDataFrame([(i,) for i in ids], "source_id STRING")


def keep(df: DataFrame, batch_id: int) -> DataFrame:
    return df


def test_from_source_to_verdict(spark: SparkSession, acker: Acker) -> None:
    """A source with two edges, a middle bolt that fails and drops, and a last bolt."""
    left, right, end, log = (MemoryQueue() for _ in range(4))
    source = TrackWriter(acker, "t", {"left": left, "right": right}, query_id="source")
    source(records(spark, "good", "bad", "dropped"), 0)
    assert source.last_report
    assert (source.last_report.tracked, source.last_report.mode) == (3, acker.application.mode)
    assert left.batches[0].columns == ["source_id", "anchor", "tuple"]

    def process(df: DataFrame, batch_id: int) -> DataFrame:
        why = F.when(F.col("source_id") == "bad", F.lit("it is bad"))
        return df.where("source_id <> 'dropped'").withColumn("why", why)

    queues = {"end": end, "log": log}
    middle = BoltWriter(acker, process, queues, query_id="middle", unmentioned="ack")
    middle(left.batches[0], 0)
    assert middle.last_report
    assert middle.last_report.failed == 1
    assert end.ids() == log.ids() == ["good"]
    assert end.batches[0].columns == ["source_id", "anchor", "tuple"]
    seen: list[int] = []

    def last(df: DataFrame, batch_id: int) -> DataFrame:
        seen.append(df.count())
        return df

    BoltWriter(acker, last, query_id="last")(end.batches[0], 0)
    BoltWriter(acker, last, query_id="right")(right.batches[0], 0)
    assert seen == [1, 3]
    # The dropped message is acked alone. The second message of the record "good" is outstanding.
    assert outcomes(acker.client) == [
        ("ack", "completed", "dropped", ""), ("nack", "failed", "bad", "it is bad"),
    ]  # fmt: skip
    BoltWriter(acker, keep, query_id="log")(log.batches[0], 0)
    assert outcomes(acker.client) == [("ack", "completed", "good", "")]


def test_several_rows_of_a_message_need_a_key(spark: SparkSession, by_driver: Acker) -> None:
    queue, end = MemoryQueue(), MemoryQueue()
    TrackWriter(by_driver, "t", {"e": queue}, query_id="source")(records(spark, "a", "b"), 0)

    def twice(df: DataFrame, batch_id: int) -> DataFrame:
        return df.withColumn("k", F.explode(F.array(F.lit(1), F.lit(2))))

    with pytest.raises(InvalidBatchError, match="share an id"):
        BoltWriter(by_driver, twice, {"end": end}, query_id="bolt")(queue.batches[0], 0)
    assert end.batches == {}
    assert total(by_driver.client)["acked"] == 0
    BoltWriter(by_driver, twice, {"end": end}, key=["k"], query_id="bolt")(queue.batches[0], 0)
    assert end.ids() == ["a", "a", "b", "b"]
    one, two = (end.batches[0].where(F.col("k") == k) for k in (1, 2))
    BoltWriter(by_driver, keep, query_id="one")(one, 0)
    assert outcomes(by_driver.client) == []
    BoltWriter(by_driver, keep, query_id="two")(two, 0)
    assert [v[2] for v in outcomes(by_driver.client)] == ["a", "b"]


def test_bolt_that_returns_groups_of_messages(spark: SparkSession, by_driver: Acker) -> None:
    """The bolt returns ``anchors``, and fails one group."""
    queue, end = MemoryQueue(), MemoryQueue()
    source = TrackWriter(by_driver, "t", {"e": queue}, query_id="source")
    source(records(spark, "a1", "a2", "b1"), 0)

    def count(df: DataFrame, batch_id: int) -> DataFrame:
        group = F.substring("source_id", 1, 1).alias("g")
        groups = df.groupBy(group).agg(collect_anchors().alias("anchors"))
        return groups.withColumn("why", F.when(F.col("g") == "b", F.lit("no b")))

    BoltWriter(by_driver, count, {"end": end}, query_id="bolt")(queue.batches[0], 0)
    assert outcomes(by_driver.client) == [("nack", "failed", "b1", "no b")]
    assert end.batches[0].columns == ["g", "anchors"]
    BoltWriter(by_driver, keep, query_id="last")(end.batches[0], 0)
    assert [v[2] for v in outcomes(by_driver.client)] == ["a1", "a2"]


def test_acker_is_applied_before_the_queue_is_written(
    spark: SparkSession, by_driver: Acker
) -> None:
    queue, end = MemoryQueue(by_driver.client), MemoryQueue(by_driver.client)
    TrackWriter(by_driver, "t", {"e": queue}, query_id="q")(records(spark, "a", "b"), 0)
    assert queue.pending == [2]

    def one(df: DataFrame, batch_id: int) -> DataFrame:
        return df.where("source_id = 'a'")

    BoltWriter(by_driver, one, {"e": end}, query_id="b")(queue.batches[0], 0)
    assert end.pending == [1]


def test_crash_between_acker_and_queue_is_recovered(spark: SparkSession, acker: Acker) -> None:
    """Also between two queues: the retry writes each queue once, and applies nothing again."""
    one, two, end = MemoryQueue(), MemoryQueue(), MemoryQueue()
    two.dies = end.dies = 1
    source = TrackWriter(acker, "t", {"one": one, "two": two}, query_id="source")
    bolt = BoltWriter(acker, keep, {"e": end}, query_id="bolt")
    for run, queue in ((source, None), (bolt, one)):
        df = queue.batches[0] if queue else records(spark, "a", "b")
        with pytest.raises(OSError, match="disk"):
            run(df, 0)
        for _ in range(2):
            run(df.repartition(2), 0)
            assert run.last_report
            assert run.last_report.repeated == run.last_report.calls
    BoltWriter(acker, keep, query_id="last")(end.batches[0], 0)
    assert outcomes(acker.client) == []
    BoltWriter(acker, keep, query_id="two")(two.batches[0], 0)
    assert [v[:3] for v in outcomes(acker.client)] == [
        ("ack", "completed", "a"), ("ack", "completed", "b"),
    ]  # fmt: skip
    counters = total(acker.client)
    assert (counters["tracked"], counters["conflict"], counters["pending"]) == (2, 0, 0)


@pytest.mark.parametrize("again", [("a", "x"), ("a",), ("a", "b", "c"), ()])
def test_other_content_under_the_same_number_is_refused(
    spark: SparkSession, by_driver: Acker, again: tuple[str, ...]
) -> None:
    queue = MemoryQueue()
    queue.dies = 1
    source = TrackWriter(by_driver, "t", {"e": queue}, query_id="q")
    with pytest.raises(OSError, match="disk"):
        source(records(spark, "a", "b"), 0)
    with pytest.raises(ChangedBatchError, match="other content"):
        source(records(spark, *again), 0)
    assert queue.batches == {}
    assert total(by_driver.client)["tracked"] == 2
    change(by_driver, on_changed_batch="fail_trees")
    source(records(spark, *again), 0)
    assert queue.ids() == []
    assert {v[:1] for v in outcomes(by_driver.client)} == ({("nack",)} if again else set())


def test_bolt_with_changed_content_writes_nothing(spark: SparkSession, by_driver: Acker) -> None:
    """Its messages would belong to trees that have failed."""
    queue, end = MemoryQueue(), MemoryQueue()
    TrackWriter(by_driver, "t", {"e": queue}, query_id="source")(records(spark, "a", "b"), 0)
    end.dies = 1
    change(by_driver, on_changed_batch="fail_trees")
    some: list[str] = ["a"]

    def process(df: DataFrame, batch_id: int) -> DataFrame:
        return df.where(F.col("source_id").isin(some))

    bolt = BoltWriter(by_driver, process, {"e": end}, query_id="bolt", unmentioned="ack")
    with pytest.raises(OSError, match="disk"):
        bolt(queue.batches[0], 0)
    some.append("b")
    bolt(queue.batches[0], 0)
    assert bolt.last_report
    assert bolt.last_report.changed
    assert end.ids() == []
    assert [v[:3] for v in outcomes(by_driver.client)] == [
        ("ack", "completed", "b"), ("nack", "failed", "a"),
    ]  # fmt: skip


def test_a_checkpoint_that_was_set_back_is_refused(spark: SparkSession, by_driver: Acker) -> None:
    source = TrackWriter(by_driver, "t", {"e": MemoryQueue()}, query_id="q")
    source(records(spark, "a"), 0)
    source(records(spark, "b"), 1)
    with pytest.raises(LaneError, match="checkpoint was set back"):
        source(records(spark, "c"), 0)


def test_two_queries_have_two_lanes(spark: SparkSession, by_driver: Acker) -> None:
    for query in ("q1", "q2"):
        source = TrackWriter(by_driver, "t", {"e": MemoryQueue()}, query_id=query)
        source(records(spark, query), 0)
    assert total(by_driver.client)["tracked"] == 2


def test_nondeterministic_plan_is_evaluated_once(spark: SparkSession, by_driver: Acker) -> None:
    """The acker, the queues and the failures see the same rows."""
    queue, end, log = MemoryQueue(), MemoryQueue(), MemoryQueue()
    df = spark.range(300).selectExpr("concat('s', id) AS source_id")
    TrackWriter(by_driver, "t", {"e": queue}, query_id="source")(df, 0)

    def some(df: DataFrame, batch_id: int) -> DataFrame:
        dice = F.udf(lambda _: random.random(), "double").asNondeterministic()
        rows = df.withColumn("dice", dice("source_id")).where("dice < 0.7")
        return rows.withColumn("why", F.expr("CASE WHEN dice < 0.3 THEN 'unlucky' END"))

    BoltWriter(by_driver, some, {"end": end, "log": log}, query_id="bolt")(queue.batches[0], 0)
    whys = {name: why for _, _, name, why in outcomes(by_driver.client)}
    failed = {name for name, why in whys.items() if why == "unlucky"}
    dropped = {name for name, why in whys.items() if why.startswith("vanished")}
    assert failed | dropped == whys.keys()
    assert end.ids() == log.ids()
    written = set(end.ids())
    assert len(failed) + len(dropped) + len(written) == 300
    assert not failed & dropped
    assert not (failed | dropped) & written
    assert min(map(len, (failed, dropped, written))) > 10
    for query, each in (("end", end), ("log", log)):
        BoltWriter(by_driver, keep, query_id=query)(each.batches[0], 0)
    assert {name for _, _, name, _ in outcomes(by_driver.client)} == written


def test_track_writer_passes_its_arguments_on(spark: SparkSession, by_driver: Acker) -> None:
    """The writer passes the arguments of track()."""
    queue = MemoryQueue()
    df = spark.range(20).selectExpr("'p' AS p", "id AS n", "3 AS try")
    source = TrackWriter(
        by_driver, "t", {"e": queue}, source_id=counted("p", number="n"), attempt="try",
        query_id="q",
    )  # fmt: skip
    source(df, 0)
    BoltWriter(by_driver, keep, query_id="last")(queue.batches[0], 0)
    (entry,) = by_driver.client.outcomes("t").read()
    assert entry.block
    assert entry.block.label == "p@0~3"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("anchor BIGINT", "column tuple is missing"),
        ("anchor INT, tuple BIGINT", "column anchor is int, but must be bigint"),
        ("anchor BIGINT, tuple STRING", "column tuple is string"),
        ("anchor BIGINT, tuple BIGINT, Why STRING", "column Why must be written why"),
        ("anchor BIGINT, tuple BIGINT, why INT", "column why is int, but must be string"),
        ("Anchor BIGINT, tuple BIGINT", "column Anchor must be written anchor"),
        ("anchor BIGINT, tuple BIGINT, anchors ARRAY<INT>", "drop one or the other"),
    ],
)
def test_wrong_columns_are_refused(
    spark: SparkSession, by_driver: Acker, columns: str, words: str
) -> None:
    with pytest.raises(InvalidBatchError, match=words):
        BoltWriter(by_driver, keep, query_id="q")(spark.createDataFrame([], columns), 0)


def test_column_why_without_values_fails_nothing(spark: SparkSession, by_driver: Acker) -> None:
    queue, end = MemoryQueue(), MemoryQueue()
    TrackWriter(by_driver, "t", {"e": queue}, query_id="source")(records(spark, "a"), 0)

    def fine(df: DataFrame, batch_id: int) -> DataFrame:
        return df.withColumn("why", F.lit(None))

    BoltWriter(by_driver, fine, {"e": end}, query_id="bolt")(queue.batches[0], 0)
    assert end.ids() == ["a"]


def test_messages_of_another_batch_are_refused(spark: SparkSession, by_driver: Acker) -> None:
    """A bolt that returns rows of another batch: nothing is acked or written."""
    queue, end = MemoryQueue(), MemoryQueue()
    source = TrackWriter(by_driver, "t", {"e": queue}, query_id="source")
    source(records(spark, "a"), 0)
    source(records(spark, "b"), 1)

    def other(df: DataFrame, batch_id: int) -> DataFrame:
        return queue.batches[1].union(df)

    with pytest.raises(InvalidBatchError, match="no input of these trees"):
        BoltWriter(by_driver, other, {"e": end}, query_id="bolt")(queue.batches[0], 0)
    assert end.batches == {}
    tick(by_driver.client, 3)
    assert {v[:2] for v in outcomes(by_driver.client)} == {("nack", "expired")}


class Cut(Exception):
    """Raised where the query dies."""


def orders(spark: SparkSession, acker: Acker) -> DataFrame:
    """Return messages of two orders, for the last bolt."""
    queue = MemoryQueue()
    TrackWriter(acker, "t", {"e": queue}, query_id="source")(records(spark, "one", "two"), 0)
    return queue.batches[0]


def pricing(prices: dict[str, int]) -> Callable[[DataFrame, int], DataFrame]:
    """Return a last bolt with a price list that changes between two runs of a batch."""

    def process(df: DataFrame, batch_id: int) -> DataFrame:
        known = F.create_map(*[F.lit(each) for pair in prices.items() for each in pair])
        priced = df.withColumn("price", known[F.col("source_id")])
        why = F.when(F.col("price").isNull(), F.lit("no price"))
        return priced.withColumn("why", why)

    return process


def test_a_sink_has_the_rows_of_the_run_that_was_acked(
    spark: SparkSession, acker: Acker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run writes its rows and dies before its ack; the second run sees other prices."""
    messages, table = orders(spark, acker), FileQueue(tmp_path / "priced")
    prices = {"one": 1}
    last = BoltWriter(acker, pricing(prices), sink=table, query_id="last")
    with monkeypatch.context() as patch:
        patch.setattr(micro_batch, "apply", MagicMock(side_effect=Cut))
        with pytest.raises(Cut):
            last(messages, 0)
    schema = "source_id STRING, price INT"
    assert sorted(map(tuple, table.read(spark, schema).collect())) == [("one", 1)]
    prices |= {"one": 10, "two": 2}
    last(messages, 0)
    assert [v[:3] for v in outcomes(acker.client)] == [
        ("ack", "completed", "one"), ("ack", "completed", "two"),
    ]  # fmt: skip
    assert sorted(map(tuple, table.read(spark, schema).collect())) == [("one", 10), ("two", 2)]
    assert table.read(spark, schema).columns == ["source_id", "price"]
    assert batches(table) == ["batch-test@last-000000000000"]


def test_a_sink_keeps_the_rows_of_the_run_that_was_acked(
    spark: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """The first run dies after its ack. Its rows stay, although the second run sees others."""
    messages, table = orders(spark, acker), FileQueue(tmp_path / "priced")
    prices = {"one": 1, "two": 2}
    last = BoltWriter(acker, pricing(prices), sink=table, query_id="last")
    last(messages, 0)
    prices |= {"one": 10, "two": 20}
    last(messages, 0)
    assert last.last_report
    assert last.last_report.repeated == last.last_report.calls
    rows = table.read(spark, "source_id STRING, price INT").collect()
    assert sorted(map(tuple, rows)) == [("one", 1), ("two", 2)]
    del prices["two"]
    with pytest.raises(ChangedBatchError, match="came back with other content"):
        last(messages, 0)


def test_second_driver_that_acks_during_a_sink_replace_is_detected(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    by_driver = make_spark_acker(query_id=None)
    second = make_spark_acker(client=by_driver.client, query_id=None)
    messages, table = orders(spark, by_driver), FileQueue(tmp_path / "priced")
    other = BoltWriter(second, pricing({"one": 1, "two": 2}), sink=table, query_id="last")

    class Slow(FileQueue):
        def replace(self, df: DataFrame, query_id: str, batch_id: int) -> None:
            other(messages, 0)
            super().replace(df, query_id, batch_id)

    slow = BoltWriter(by_driver, pricing({"one": 1}), sink=Slow(table.path), query_id="last")
    with pytest.raises(LaneError, match="second driver"):
        slow(messages, 0)


def test_two_apps_with_queries_of_one_name_do_not_replace_each_other(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    """Also two batches of one foreachBatch with two app ids: each lane has its own batch."""
    price = make_spark_acker(query_id=None, app_id="price")
    tax = make_spark_acker(client=price.client, query_id=None, app_id="tax")
    messages, table = orders(spark, price), FileQueue(tmp_path / "table")
    for acker, name in ((price, "one"), (tax, "two")):
        mine = messages.where(f"source_id = '{name}'")
        with acker.batch(mine, 0, query_id="last") as b:
            b.write(b.df, table)
            b.ack()
    assert [v[2] for v in outcomes(price.client)] == ["one", "two"]
    rows = table.read(spark, "source_id STRING").collect()
    assert sorted(row.source_id for row in rows) == ["one", "two"]


def test_fail_trees_is_refused_for_a_query_with_a_sink(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    """With it, the acker would not know whether the sink has the rows that were acked."""
    acker = make_spark_acker(query_id=None, on_changed_batch="fail_trees")
    messages = orders(spark, acker)
    last = BoltWriter(acker, keep, sink=FileQueue(tmp_path / "table"), query_id="last")
    with pytest.raises(ConfigError, match="use 'raise'"):
        last(messages, 0)
    assert outcomes(acker.client) == []


def test_replaced_rows_stay_until_new_rows_exist(spark: SparkSession, tmp_path: Path) -> None:
    """The writer died between its two renames, also a long time ago."""
    queue = FileQueue(tmp_path / "q")
    queue.write(records(spark, "a"), "q", 0)
    replaced = queue.path / f"_replaced-_writing-q-000000000000-x-{queues._machine()}"
    queue.batch_path("q", 0).rename(replaced)
    os.utime(replaced, (0, 0))
    queue.write(records(spark, "other"), "other", 0)
    assert replaced.exists()
    queue.replace(records(spark, "b"), "q", 0)
    queue.replace(records(spark, "c"), "q", 0)
    assert not replaced.exists()


def test_second_write_of_a_batch_to_a_sink_is_refused(
    spark: SparkSession, by_driver: Acker, tmp_path: Path
) -> None:
    """The second write would replace the rows of the first, although both are acked."""
    messages = orders(spark, by_driver)
    one, other = (messages.where(f"source_id = '{each}'") for each in ("one", "two"))
    with (
        pytest.raises(InvalidBatchError, match="union the rows"),
        by_driver.batch(messages, 0, query_id="last") as b,
    ):
        b.write(one, FileQueue(tmp_path / "table"))
        b.write(other, FileQueue(tmp_path / "table"))
    assert outcomes(by_driver.client) == []


def test_batch_unknown_to_the_acker_replaces_its_rows_in_the_queue(
    spark: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """The namespace was dropped and created again, and the checkpoint was kept."""
    queue = FileQueue(tmp_path / "q")
    queue.write(orders(spark, acker).where("source_id = 'one'"), "test@q", 0)
    TrackWriter(acker, "t", {"e": queue}, query_id="q")(records(spark, "three", "four"), 0)
    names = {row.source_id for row in queue.read(spark, "source_id STRING").collect()}
    assert names == {"three", "four"}


def test_two_edges_with_one_queue_are_refused(by_driver: Acker, tmp_path: Path) -> None:
    """The queue would keep the rows of the first edge, and lose those of the second."""
    (tmp_path / "link").symlink_to(tmp_path / "q")
    one, same, linked = (FileQueue(tmp_path / name) for name in ("q", "x/../q", "link"))
    for other in (one, same, linked):
        with pytest.raises(ConfigError, match="'a' and 'b' share one queue"):
            TrackWriter(by_driver, "t", {"a": one, "b": other})
        with pytest.raises(ConfigError, match="'a' and 'b' share one queue"):
            BoltWriter(by_driver, keep, {"a": one, "b": other})
        with pytest.raises(ConfigError, match="'a' and 'the sink' share one queue"):
            BoltWriter(by_driver, keep, {"a": one}, sink=other)
    assert one != FileQueue(tmp_path / "r")


def test_queue_without_replace_is_refused(by_driver: Acker) -> None:
    class Appends:
        def write(self, df: DataFrame, query_id: str, batch_id: int) -> None: ...

    queue: Any = Appends()
    for make in (
        lambda: TrackWriter(by_driver, "t", {"e": queue}),
        lambda: BoltWriter(by_driver, keep, {"e": queue}),
        lambda: BoltWriter(by_driver, keep, sink=queue),
    ):
        with pytest.raises(ConfigError, match=r"has no replace\(df, query_id, batch_id\)"):
            make()


def test_source_without_edges_is_refused(by_driver: Acker) -> None:
    with pytest.raises(ConfigError, match="at least one edge"):
        TrackWriter(by_driver, "t", {})


def test_query_id_is_required_outside_a_streaming_query(
    spark: SparkSession, by_driver: Acker
) -> None:
    for writer in (TrackWriter(by_driver, "t", {"e": MemoryQueue()}), BoltWriter(by_driver, keep)):
        with pytest.raises(ConfigError, match="give query_id="):
            writer(records(spark, "a"), 0)


# Queues of files, and streaming queries


def batches(queue: FileQueue) -> list[str]:
    """Return all names in the directory of a queue but that of the lock."""
    return sorted(each.name for each in queue.path.iterdir() if each.name != "_lock")


def test_file_queue_writes_a_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    queue = FileQueue(tmp_path / "q")
    assert queue.write(records(spark, "a", "b"), "q", 0)
    assert not queue.write(records(spark, "c"), "q", 0)
    assert queue.write(records(spark, "d"), "q", 1)
    rows = queue.read(spark, "source_id STRING").collect()
    assert {r.source_id for r in rows} == {"a", "b", "d"}
    assert batches(queue) == ["batch-q-000000000000", "batch-q-000000000001"]


KILLED = """
import sys, time
from pathlib import Path
from pyspark.sql.types import StructType
from acker_redis.spark import FileQueue

class Rows:
    schema = StructType()
    write = sparkSession = property(lambda self: self)
    conf = {}

    def option(self, *args, **options):
        return self

    mode = options = option

    def parquet(self, path):
        Path(path).mkdir(parents=True)
        (Path(path) / "half").touch()
        print("writing", flush=True)
        time.sleep(600)

FileQueue(sys.argv[1]).replace(Rows(), "other", 5)
"""


def test_next_write_removes_leftovers_of_killed_writes_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of any query and batch, as soon as their process is dead, and never before."""
    queue = FileQueue(tmp_path / "q")
    (queue.path / f"_writing-q-000000000007-x-{queues._machine()}").mkdir()
    command = [sys.executable, "-c", KILLED, str(queue.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout
            assert running.stdout.readline() == "writing\n"
            [left] = queue.path.glob("_writing-other-*")
            assert not list(queue.path.glob("_writing-q-*")), "the other process removed it"
            queue.write(records(spark, "a"), "q", 0)
            queue.replace(records(spark, "b"), "q", 0)
            assert (left / "rows" / "half").exists()
        finally:
            running.kill()
    queue.replace(records(spark, "c"), "q", 0)
    assert batches(queue) == ["batch-q-000000000000"]


def test_leftovers_of_other_machines_stay_for_a_day(spark: SparkSession, tmp_path: Path) -> None:
    """Its write may run: many network file systems do not share locks."""
    queue = FileQueue(tmp_path / "q")
    other = queue.path / "_writing-q-000000000007-x-other"
    other.mkdir()
    queue.write(records(spark, "a"), "q", 0)
    assert other.exists()
    clock = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: clock() + 2 * 24 * 3600)
        queue.write(records(spark, "b"), "q", 1)
    assert other.exists(), (
        "the clock of the file system counts, and not a wrong one of this machine"
    )
    os.utime(other, (0, 0))
    queue.write(records(spark, "c"), "q", 2)
    assert not other.exists()


def test_write_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    queue = FileQueue(tmp_path / "q")
    broken = records(spark, "a").select(F.raise_error(F.lit("no row")).cast("string").alias("s"))
    for call in (queue.write, queue.replace):
        with pytest.raises(PySparkException, match="no row"):
            call(broken, "q", 0)
    assert batches(queue) == []


def test_file_queue_needs_no_locks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without them, leftovers stay."""
    monkeypatch.setattr(fcntl, "flock", MagicMock(side_effect=OSError(errno.ENOLCK, "no locks")))
    queue = FileQueue(tmp_path / "q")
    left = queue.path / f"_writing-q-000000000001-x-{queues._machine()}"
    left.mkdir()
    assert queue.write(records(spark, "a"), "q", 0)
    assert batches(queue) == [left.name, "batch-q-000000000000"]


def test_new_checkpoint_does_not_reuse_old_batches_of_a_queue(
    spark: SparkSession, by_driver: Acker, tmp_path: Path
) -> None:
    """Batch ids start again at 0, so an old batch must not be taken for the new one."""
    queue = FileQueue(tmp_path / "q")
    TrackWriter(by_driver, "t", {"e": queue}, query_id="old")(records(spark, "a"), 0)
    TrackWriter(by_driver, "t", {"e": queue}, query_id="new")(records(spark, "b"), 0)
    assert {r.source_id for r in queue.read(spark, "source_id STRING").collect()} == {"a", "b"}


def run(
    spark: SparkSession, path: Path, name: str, df: DataFrame, writer: Callable[..., None]
) -> None:
    stream = df.writeStream.foreachBatch(writer).option("checkpointLocation", str(path / name))
    stream.trigger(availableNow=True).start().awaitTermination()


def test_options_of_a_stream_bound_its_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Otherwise a query that starts again reads its whole backlog as one batch."""
    queue = FileQueue(tmp_path / "q")
    for number, name in enumerate("abc"):
        queue.write(records(spark, name).coalesce(1), "q", number)
    read: list[int] = []
    for name, options in ("whole", {}), ("by-file", {"maxFilesPerTrigger": "1"}):
        stream = queue.read_stream(spark, "source_id STRING", **options)
        run(spark, tmp_path, name, stream, lambda df, batch_id: read.append(df.count()))
    assert read == [3, 1, 1, 1]


class Dies:
    """A queue whose writer dies at the first write of each batch."""

    def __init__(self, queue: FileQueue, died: list[Any]) -> None:
        self.queue, self.died = queue, died

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> None:
        if (self.queue.path.name, batch_id) not in self.died:
            self.died.append((self.queue.path.name, batch_id))
            raise OSError("killed")
        self.queue.write(df, query_id, batch_id)

    replace = write


def test_restarted_queries_apply_each_batch_once(
    spark: SparkSession, by_driver: Acker, tmp_path: Path
) -> None:
    """Each dies between acker and queue at the first run of a batch; Spark runs it again."""
    for day in range(2):
        lines = "".join(f"day{day}-{i}\n" for i in range(10))
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{day}.csv").write_text(lines)
    source = spark.readStream.schema("source_id STRING").option("maxFilesPerTrigger", 1)
    first, second = FileQueue(tmp_path / "first"), FileQueue(tmp_path / "second")
    died: list[Any] = []
    tracks = TrackWriter(by_driver, "t", {"e": Dies(first, died)})
    passes = BoltWriter(by_driver, keep, {"e": Dies(second, died)})
    stages: list[tuple[str, DataFrame, Callable[..., None]]] = [
        ("source", source.csv(str(tmp_path / "in")), tracks),
        ("bolt", first.read_stream(spark, MESSAGE), passes),
        ("last", second.read_stream(spark, MESSAGE), BoltWriter(by_driver, keep)),
    ]
    deaths = {"source": 2, "bolt": 1, "last": 0}
    for name, df, writer in stages:
        for _ in range(deaths[name]):
            with pytest.raises(Exception, match="killed"):
                run(spark, tmp_path, name, df, writer)
        run(spark, tmp_path, name, df, writer)
    assert len(died) == 3, "two batches of the source; the bolt reads both in one"
    assert [v[:3] for v in outcomes(by_driver.client)] == sorted(
        ("ack", "completed", f"day{d}-{i}") for d in range(2) for i in range(10)
    )
    counters = total(by_driver.client)
    assert counters["repeated"] == 3
    assert (counters["conflict"], counters["pending"]) == (0, 0)
    lanes = {report.query_id for report in by_driver.reports}
    assert len(lanes) == 3, "each query has the name that Spark gave it"


def test_new_checkpoint_tracks_the_records_again(
    spark: SparkSession, by_driver: Acker, tmp_path: Path
) -> None:
    """The records are tracked a second time, as separate attempts: each gets two verdicts."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("a\nb\n")
    source = spark.readStream.schema("source_id STRING").csv(str(tmp_path / "in"))
    queue = FileQueue(tmp_path / "queue")
    for attempt in range(2):
        writer = TrackWriter(by_driver, "t", {"e": queue}, attempt=attempt)
        run(spark, tmp_path, f"checkpoint{attempt}", source, writer)
    assert len({report.query_id for report in by_driver.reports}) == 2
    assert total(by_driver.client)["tracked"] == 4
    run(spark, tmp_path, "last", queue.read_stream(spark, MESSAGE), BoltWriter(by_driver, keep))
    assert [v[:3] for v in outcomes(by_driver.client)] == [
        ("ack", "completed", name) for name in ("a", "a", "b", "b")
    ]


def test_two_batches_on_one_lane_are_reported(
    spark: SparkSession, by_driver: Acker, tmp_path: Path
) -> None:
    """One foreachBatch acks twice: the error must not claim that the plan has changed."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("a\nb\n")
    source = spark.readStream.schema("source_id STRING").csv(str(tmp_path / "in"))
    queue = FileQueue(tmp_path / "queue")
    run(spark, tmp_path, "source", source, TrackWriter(by_driver, "t", {"e": queue}))

    def twice(df: DataFrame, batch_id: int) -> None:
        by_driver.ack(df.where("source_id = 'a'"), batch_id)
        by_driver.ack(df.where("source_id = 'b'"), batch_id)

    for words in ("foreachBatch opened two batches on one lane", "came back with other content"):
        with pytest.raises(Exception, match=words):
            run(spark, tmp_path, "last", queue.read_stream(spark, MESSAGE), twice)
        # After a restart, the first of the two batches has other content than the lane.
        by_driver.shared._applied.clear()


def test_self_join_in_a_bolt(spark: SparkSession, by_driver: Acker) -> None:
    """The bolt returns the anchors of two messages in one row."""
    queue, end = MemoryQueue(), MemoryQueue()
    TrackWriter(by_driver, "t", {"e": queue}, query_id="source")(records(spark, "x1", "x2"), 0)

    def pair(df: DataFrame, batch_id: int) -> DataFrame:
        one = df.where("source_id = 'x1'")
        other = df.where("source_id = 'x2'").selectExpr("anchor AS a2", "tuple AS t2")
        both = anchors_of(("anchor", "tuple"), ("a2", "t2"))
        return one.crossJoin(other).select("source_id", both.alias("anchors"))

    BoltWriter(by_driver, pair, {"e": end}, query_id="bolt")(queue.batches[0], 0)
    assert outcomes(by_driver.client) == []
    BoltWriter(by_driver, keep, query_id="last")(end.batches[0], 0)
    assert [v[2] for v in outcomes(by_driver.client)] == ["x1", "x2"]
