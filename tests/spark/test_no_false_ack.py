"""What a review of the Spark layer found: each was a false ack, or a query that could not go on."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ConfigError, HighWaterError, InvalidBatchError
from acker_redis.protocol.blocks import calls, pack_track
from acker_redis.protocol.labels import CountedLabel
from acker_redis.spark import BoltWriter, FileQueue, anchors_of, counted, tuple_id
from acker_redis.spark.fold.terms import Kind
from acker_redis.spark.tracking import Tracking
from tests.spark.conftest import MakeSparkAcker, outcomes, sealed


def numbers(spark: SparkSession, *ids: int) -> DataFrame:
    return spark.createDataFrame([(i,) for i in ids], "id BIGINT")


def counting() -> Any:
    return counted(F.lit("p"), number="id")


def records(spark: SparkSession, *ids: str) -> DataFrame:
    return spark.createDataFrame([(i,) for i in ids], "sid STRING")


def track(acker: Any, df: DataFrame, batch_id: int = 0, **more: Any) -> DataFrame:
    query_id = more.pop("query_id", "src")
    with acker.batch(df, batch_id, query_id=query_id) as b:
        messages = b.track(source="t", **{"source_id": "sid", **more})
    return messages.localCheckpoint()


def test_a_hole_is_not_told_as_an_ack(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """All are pending; two are replayed, and what lies between them is not done for that."""
    acker = make_spark_acker()
    everything = spark.range(100)
    track(acker, everything, 0, source_id=counting())
    again = track(acker, everything.where("id IN (0, 99)"), 1, source_id=counting(), attempt=1)
    acker.ack(again, 0, query_id="bolt")
    found = outcomes(acker.client)
    assert [v[2] for v in found] == ["p/0", "p/99"]
    assert acker.client.status().pending == 100


@pytest.mark.parametrize("count", [10, 100])
def test_two_queries_have_halves_of_a_topic(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, count: int
) -> None:
    acker = make_spark_acker()
    all_ids = spark.range(count)
    even = track(acker, all_ids.where("id % 2 = 0"), query_id="even", source_id=counting())
    track(acker, all_ids.where("id % 2 = 1"), query_id="odd", source_id=counting())
    acker.ack(even, 0, query_id="bolt")
    assert {v[2] for v in outcomes(acker.client)} == {f"p/{i}" for i in range(0, count, 2)}


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_holes_and_runs_in_one_batch(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    """Windows without holes are blocks, the others are loose, and each has its verdict."""
    acker = make_spark_acker({"shards": 2}, mode=mode)
    df = spark.range(10_000).where("id < 4095 OR id % 3 = 0")
    messages = track(acker, df, source_id=counting())
    status = acker.client.status()
    assert sum(sum(each.in_blocks) for each in status.shards) == 4095
    assert status.pending == df.count() == messages.count()
    acker.ack(messages, 0, query_id="bolt")
    assert {v[2] for v in outcomes(acker.client)} == {f"p/{row.id}" for row in df.collect()}


def test_a_slash_in_a_prefix(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> None:
    """Two numberings that read alike are two: records of one do not complete those of the other."""
    acker = make_spark_acker()
    ids = counted("a", "b", number="n")
    one = spark.createDataFrame(
        [("x/y", "z", i) for i in range(20)], "a STRING, b STRING, n BIGINT"
    )
    other = spark.createDataFrame([("x", "y/z", i) for i in range(20)], one.schema)
    messages = track(acker, one, 0, source_id=ids)
    track(acker, other, 1, source_id=ids)
    acker.ack(messages, 0, query_id="bolt")
    found = {v[2] for v in outcomes(acker.client)}
    assert found == {f"x\\/y/z/{i}" for i in range(20)}


def test_two_queries_track_the_same_records(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Each has trees of its own, in blocks as well: messages of one do not complete the other's."""
    acker = make_spark_acker()
    df = spark.range(20)
    first = track(acker, df, query_id="one", source_id=counting())
    track(acker, df, query_id="two", source_id=counting())
    acker.ack(first, 0, query_id="bolt")
    assert len(outcomes(acker.client)) == 20
    assert acker.client.status().pending == 20


def test_a_new_checkpoint_with_other_batches(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Blocks of the old one are pending, with other sizes: no conflict."""
    acker = make_spark_acker()
    track(acker, spark.range(100), query_id="old", source_id=counting())
    track(acker, spark.range(50), query_id="new", source_id=counting())
    assert acker.client.status().pending == 150


def test_anchors_without_a_whole_pair(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    acker = make_spark_acker()
    messages = track(acker, records(spark, "a", "b", "c"))
    half = messages.select(
        F.when(F.col("sid") != "b", F.col("anchor")).alias("anchor"),
        F.when(F.col("sid") != "c", F.col("tuple")).alias("tuple"),
    )
    with (
        pytest.raises(InvalidBatchError, match="have no"),
        acker.batch(messages, 0, query_id="bolt") as b,
    ):
        b.emit(half, edge="e", anchors=anchors_of(("anchor", "tuple")))
    assert outcomes(acker.client) == []


def test_both_kinds_of_ids(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> None:
    acker = make_spark_acker()
    messages = track(acker, records(spark, "a"))
    both = messages.withColumn("anchors", anchors_of(("anchor", "tuple")))
    with (
        pytest.raises(InvalidBatchError, match="drop one or the other"),
        acker.batch(both, 0, query_id="bolt") as b,
    ):
        b.emit(b.df, edge="e")


def test_children_of_two_rows_share_an_id(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Derived from the anchor, which both have: they would cancel, and the tree be complete."""
    acker = make_spark_acker()
    messages = track(acker, records(spark, "a"), edges=["x", "y"])
    children = messages.withColumn("child", tuple_id("anchor", "g"))
    with pytest.raises(InvalidBatchError, match="share an id"):
        acker.ack(children, 0, children="child", query_id="bolt")
    assert outcomes(acker.client) == []


def test_the_ledger_of_a_run_that_tracked_nothing(
    spark: SparkSession,
    make_spark_acker: MakeSparkAcker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It died before; the next run has other records, and they are not named after the first's."""
    acker = make_spark_acker(ledger=str(tmp_path))

    def dies(*args: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Tracking, "_track", dies)
        with pytest.raises(OSError, match="killed"):
            track(acker, records(spark, "a", "b", "c"))
    messages = track(acker, records(spark, "b", "c", "d"))
    ledger = acker.application.ledger
    assert ledger
    named = ledger.read(spark).join(messages, "anchor").select("source_id", "sid")
    assert sorted(map(tuple, named.collect())) == [("b", "b"), ("c", "c"), ("d", "d")]


def test_no_fail_trees_with_a_ledger(make_spark_acker: MakeSparkAcker, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not in the ledger"):
        make_spark_acker(ledger=str(tmp_path), on_changed_batch="fail_trees")


def test_a_changed_batch_writes_nothing(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Its first run had acked the trees; what the second would send belongs to nothing."""
    acker = make_spark_acker(on_changed_batch="fail_trees")
    messages = track(acker, records(spark, "a", "b"))
    written: list[DataFrame] = []

    class Queue:
        dies = True

        def write(self, df: DataFrame, query_id: str, batch_id: int) -> None:
            if Queue.dies:
                raise OSError("killed")
            written.extend(df.collect())  # type: ignore[arg-type]

        replace = write

    def bolt(keep: str) -> BoltWriter:
        return BoltWriter(acker, lambda df, _: df.where(keep), {"e": Queue()}, query_id="bolt")

    with pytest.raises(OSError, match="killed"):
        bolt("false")(messages, 0)
    assert len(outcomes(acker.client)) == 2
    Queue.dies = False
    again = bolt("true")
    again(messages, 0)
    assert again.last_report
    assert again.last_report.changed
    assert written == []


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_a_message_that_is_delivered_twice(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    """As queues do at times. Its tree fails, to be replayed, and the query goes on."""
    acker = make_spark_acker(mode=mode)
    messages = track(acker, records(spark, "a", "b", "c"))
    twice = messages.union(messages.where("sid = 'b'"))
    with acker.batch(twice, 0, query_id="bolt") as b:
        sent = b.emit(b.df, edge="e")
    assert [v[:3] for v in outcomes(acker.client)] == [("nack", "failed", "b")]
    acker.ack(sent.where("sid <> 'b'"), 0, query_id="last")
    assert [v[2] for v in outcomes(acker.client)] == ["a", "c"]


def test_the_order_of_failures_does_not_matter() -> None:
    """More of them than one call of a block may have."""
    base = 1 << 62 | 5 << 12
    terms = [(Kind.FAIL, base + slot, 0, "no weather") for slot in range(2000)]
    terms += [(Kind.INPUT, base + slot, 10**15 + slot, "") for slot in range(2000)]
    first = sealed(terms)[0].digest
    random.Random(1).shuffle(terms)
    assert sealed(terms)[0].digest == first


@pytest.mark.parametrize("count", [1700, 1900, 4095])
def test_a_large_block_that_comes_back_with_other_content(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, count: int
) -> None:
    acker = make_spark_acker(on_changed_batch="fail_trees")
    track(acker, spark.range(count), source_id=counting(), edges="one")
    messages = track(acker, spark.range(count), source_id=counting(), edges="other")
    assert messages.count() == 0
    found = outcomes(acker.client)
    assert len(found) == count
    assert {v[:2] for v in found} == {("nack", "failed")}


def test_no_call_is_empty() -> None:
    large = pack_track(1, "t", "x" * 255, [1] * 300, dict.fromkeys(range(300), "y" * 250))
    assert all(len(call) for call in calls([large]))


def test_a_namespace_with_other_shards(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Dropped and created anew: the next batch knows, and nobody has to run it again."""
    acker = make_spark_acker({"shards": 1})
    track(acker, records(spark, "a"))
    redis = acker.client.connection.client
    for key in redis.scan_iter(f"acker:{{{acker.namespace}:*"):
        redis.delete(key)
    from acker_redis.protocol.config import AckerConfig
    from acker_redis.sync.client import Acker as Client

    other = Client(redis, acker.namespace)
    other.create(AckerConfig(shards=4, tick_ms=3_600_000))
    track(acker, records(spark, "b", "c"), 1)
    assert other.status().pending == 2


def test_the_verdicts_of_a_batch_that_runs_again_are_waited_for(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was tracked in part; it waits for the backlog, as long as it may, and not for itself."""
    acker = make_spark_acker({"high_water": 10})
    track(acker, records(spark, *"abcdefgh"))
    seen: list[bool] = []

    def wait(client: object, task: str, trees: object, max_wait: float, again: bool) -> float:
        seen.append(again)
        return 0.0

    monkeypatch.setattr("acker_redis.spark.tracking.wait_for_room", wait)
    track(acker, records(spark, *"abcdefgh"))
    monkeypatch.undo()
    assert seen == [True]
    track(acker, records(spark, *"abcdefgh"))
    with pytest.raises(HighWaterError):
        track(acker, records(spark, *"ijkl"), 1)


def test_a_why_that_is_not_utf_8(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> None:
    acker = make_spark_acker()
    messages = track(acker, records(spark, "a"))
    with acker.batch(messages, 0, query_id="bolt") as b:
        b.fail(b.df, F.expr("cast(X'ff41' AS STRING)"))
    ((verdict, _, _, why),) = outcomes(acker.client)
    assert (verdict, why[-1]) == ("nack", "A")


def test_a_source_id_that_is_not_utf_8(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    acker = make_spark_acker()
    df = spark.range(1).select(F.expr("cast(X'ff41' AS STRING)").alias("sid"))
    with pytest.raises(InvalidBatchError, match="source id"):
        track(acker, df)


@pytest.mark.parametrize("attempt", [1, 1_700_000_000, 2**31 - 1])
@pytest.mark.parametrize("prefix", ["p", ""])
def test_attempts_and_prefixes_of_all_kinds(prefix: str, attempt: int) -> None:
    label = CountedLabel(prefix, 7, attempt)
    assert CountedLabel.parse(str(label)) == label


def test_an_attempt_below_0(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> None:
    with pytest.raises(InvalidBatchError, match="an attempt must be 0 or more"):
        track(make_spark_acker(), spark.range(3), source_id=counting(), attempt=-1)


def test_a_batch_that_failed_is_counted_when_it_comes_again(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a small one, the driver folds; if that fails, it may have been too large for it."""
    monkeypatch.setattr("acker_redis.spark.memory.DRIVER_MOST", 4)
    acker = make_spark_acker(mode="auto")
    track(acker, records(spark, "a"))
    assert acker.reports[-1].mode == "driver"
    with pytest.raises(ConfigError), acker.batch(records(spark, "b"), 1, query_id="src"):
        raise ConfigError("too large")
    track(acker, records(spark, *"bcdefg"), 1)
    assert acker.reports[-1].mode == "executors"


def test_kept_rows_are_given_back(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> None:
    """When the query's next batch begins, and not when a garbage collector gets to it."""
    acker = make_spark_acker()

    def kept() -> int:
        return int(spark.sparkContext._jsc.getPersistentRDDs().size())  # type: ignore[union-attr]

    before = None
    for batch_id in range(4):
        with acker.batch(records(spark, f"r{batch_id}"), batch_id, query_id="src") as b:
            b.track(source="t", source_id="sid").collect()
        before = kept() if before is None else before
    assert kept() <= before


def test_another_driver_writes_the_same_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has half written does not get the batch's name."""
    queue = FileQueue(tmp_path)
    half = tmp_path / "_writing-q-000000000000-other"
    half.mkdir()
    (half / "part-0").write_text("half")
    assert queue.write(records(spark, "a", "b"), "q", 0)
    assert {row.sid for row in queue.read(spark, "sid STRING").collect()} == {"a", "b"}
    assert half.exists()


def test_the_other_driver_is_first(spark: SparkSession, tmp_path: Path) -> None:
    queue = FileQueue(tmp_path)
    FileQueue(tmp_path / "other").write(records(spark, "a"), "q", 0)
    real = Path.rename

    def late(self: Path, target: Path) -> Path:
        real(tmp_path / "other" / "batch-q-000000000000", target)
        return real(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", late)
        queue.write(records(spark, "a"), "q", 0)
    assert queue.read(spark, "sid STRING").count() == 1
    assert not list(tmp_path.glob("_writing-*"))


def test_hidden_names_are_taken(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> None:
    df = records(spark, "a").withColumn("_acker_delta", F.lit(1))
    with pytest.raises(InvalidBatchError, match="_acker_"):
        make_spark_acker().batch(df, 0)


def test_few_records_of_many_windows(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> None:
    """They are counted as what they are, and not as the slots between them."""
    acker = make_spark_acker({"high_water": 100})
    df = spark.range(30).select((F.col("id") * 3000).alias("id"))
    track(acker, df, source_id=counting())
    assert acker.client.status().pending == 30


def test_two_sources_with_the_same_ids(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """In one namespace: their trees do not meet."""
    acker = make_spark_acker()
    for number, source in enumerate(("orders", "returns")):
        with acker.batch(records(spark, "a", "b"), number) as b:
            b.track(source=source, source_id="sid")
    assert acker.client.status().pending == 4
