"""Regressions of the Spark layer: each was a false ack, or a query that could not continue."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ConfigError, DataLossError, HighWaterError, InvalidBatchError
from acker_redis.protocol.blocks import calls, pack_track
from acker_redis.protocol.labels import CountedLabel
from acker_redis.spark import BoltWriter, FileQueue, anchors_of, counted
from acker_redis.spark.fold.terms import Kind
from acker_redis.spark.streams import aside as queues
from acker_redis.spark.tracking import Tracking
from tests.spark.conftest import MakeSparkAcker, outcomes, sealed
from tests.support import tick


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


@pytest.mark.parametrize("replayed", ["id IN (0, 99)", "id % 4 = 3", "id % 5 = 0 OR id = 99"])
def test_gap_in_the_numbers_is_never_acked(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, replayed: str
) -> None:
    """All are pending, and some are replayed: the records between them are not acked with them."""
    acker = make_spark_acker()
    everything = spark.range(100)
    track(acker, everything, 0, source_id=counting())
    some = everything.where(replayed)
    again = track(acker, some, 1, source_id=counting(), attempt=1)
    acker.ack(again, 0, query_id="bolt")
    found = outcomes(acker.client)
    assert sorted(v[2] for v in found) == sorted(f"p/{row.id}" for row in some.collect())
    assert acker.client.status().pending == 100


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_record_of_a_gap_gets_one_verdict_in_its_own_batch(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    """Two batches share a window; while a record of a gap is pending, the block around it ends."""
    acker = make_spark_acker({"shards": 2}, mode=mode)
    everything = spark.range(1000, 1100)
    even = track(acker, everything.where("id % 2 = 0"), 0, source_id=counting())
    odd = track(acker, everything.where("id % 2 = 1"), 1, source_id=counting())
    assert acker.client.status().counters["conflict"] == 0
    acker.ack(even, 0, query_id="bolt")
    assert [v[2] for v in outcomes(acker.client)] == [f"p/{i}" for i in range(1000, 1100, 2)]
    with acker.batch(odd, 1, query_id="bolt") as b:
        b.ack(b.df.where("id % 10 <> 7"))
        b.fail(b.df.where("id % 10 = 3"), "no")
    tick(acker.client, 3)
    ends = {3: ("nack", "failed"), 7: ("nack", "failed")}
    assert sorted((v[2], *v[:2]) for v in outcomes(acker.client)) == [
        (f"p/{i}", *ends.get(i % 10, ("ack", "completed"))) for i in range(1001, 1100, 2)
    ]


@pytest.mark.parametrize(
    ("seed", "mode", "shards"),
    [
        pytest.param(0, "driver", 1, marks=pytest.mark.nightly),
        (1, "executors", 2),
        *(pytest.param(n, "executors", 2, marks=pytest.mark.nightly) for n in range(2, 9)),
    ],
)
def test_random_gaps_give_each_record_one_verdict(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str, shards: int, seed: int
) -> None:
    """Two queries number one table, a batch has any of its numbers, and some batches run again."""
    chance = random.Random(seed)
    acker = make_spark_acker({"shards": shards, "high_water": 10**6}, mode=mode)
    expected = []
    for batch_id in range(6):
        density = chance.choice([0.05, 0.13, 0.5, 0.98])
        left = [range(4000, 8300), range(60)][chance.random() < 0.3]
        ids = [i for i in left if chance.random() < density]
        query, attempt, times = chance.choice(["one", "two"]), batch_id, chance.choice([1, 1, 2])
        for _ in range(times):
            messages = track(
                acker, numbers(spark, *ids), batch_id, query_id=query, source_id=counting(),
                attempt=attempt,
            )  # fmt: skip
        fates = {i: chance.choice(["ack", "ack", "ack", "nack", "late"]) for i in ids}
        told = spark.createDataFrame(list(fates.items()), "id BIGINT, fate STRING")
        rows = messages.join(told, "id")
        with acker.batch(rows, batch_id, query_id="bolt", unmentioned="leave") as b:
            b.ack(b.df.where("fate <> 'late'"))
            b.fail(b.df.where("fate = 'nack'"), f"batch {batch_id}")
        whys = {"ack": "", "nack": f"batch {batch_id}", "late": ""}
        ends = {"ack": ("ack", "completed"), "nack": ("nack", "failed")}
        expected += [
            (*ends.get(fate, ("nack", "expired")), f"p/{i}", whys[fate])
            for i, fate in fates.items()
        ]
    tick(acker.client, 3)
    assert outcomes(acker.client) == sorted(expected)
    assert acker.client.status().pending == 0


@pytest.mark.parametrize("count", [10, 100])
def test_queries_on_halves_of_a_topic_are_independent(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, count: int
) -> None:
    acker = make_spark_acker()
    all_ids = spark.range(count)
    even = track(acker, all_ids.where("id % 2 = 0"), query_id="even", source_id=counting())
    track(acker, all_ids.where("id % 2 = 1"), query_id="odd", source_id=counting())
    acker.ack(even, 0, query_id="bolt")
    assert {v[2] for v in outcomes(acker.client)} == {f"p/{i}" for i in range(0, count, 2)}


@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_windows_with_and_without_gaps_in_one_batch(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    """Windows with few gaps are blocks, mere gaps are loose, and each tree gets its verdict."""
    acker = make_spark_acker({"shards": 2}, mode=mode)
    df = spark.range(12_285).where("id < 4095 OR (id < 8190 AND id % 3 = 0) OR id % 9 = 0")
    messages = track(acker, df, source_id=counting())
    status = acker.client.status()
    assert sum(sum(each.in_blocks) for each in status.shards) == 4095 + 4093
    assert status.pending == 4095 + 4093 + 455
    assert status.counters["tracked"] == df.count() == messages.count() == 4095 + 1365 + 455
    acker.ack(messages, 0, query_id="bolt")
    assert {v[2] for v in outcomes(acker.client)} == {f"p/{row.id}" for row in df.collect()}


def test_slash_in_a_prefix_is_escaped(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Numberings with equal concatenations stay distinct: one does not complete the other."""
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


def test_queries_that_track_the_same_records_are_independent(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Each query has its own trees, also in blocks: no message completes the other query's tree."""
    acker = make_spark_acker()
    df = spark.range(20)
    first = track(acker, df, query_id="one", source_id=counting())
    track(acker, df, query_id="two", source_id=counting())
    acker.ack(first, 0, query_id="bolt")
    assert len(outcomes(acker.client)) == 20
    assert acker.client.status().pending == 20


def test_new_checkpoint_with_other_batch_sizes_has_no_conflict(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Blocks of the old checkpoint are still pending, with other sizes."""
    acker = make_spark_acker()
    track(acker, spark.range(100), query_id="old", source_id=counting())
    track(acker, spark.range(50), query_id="new", source_id=counting())
    assert acker.client.status().pending == 150


def test_half_a_pair_of_ids_is_refused(
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


def test_both_kinds_of_id_columns_are_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    acker = make_spark_acker()
    messages = track(acker, records(spark, "a"))
    both = messages.withColumn("anchors", anchors_of(("anchor", "tuple")))
    with (
        pytest.raises(InvalidBatchError, match="drop one or the other"),
        acker.batch(both, 0, query_id="bolt") as b,
    ):
        b.emit(b.df, edge="e")


def test_children_of_two_rows_with_equal_ids_are_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """Ids derived from the shared anchor would cancel, and the tree would be complete."""
    acker = make_spark_acker()
    messages = track(acker, records(spark, "a"), edges=["x", "y"])
    children = messages.withColumn("child", acker.ids.tuple_id("anchor", "g"))
    with pytest.raises(InvalidBatchError, match="share an id"):
        acker.ack(children, 0, children="child", query_id="bolt")
    assert outcomes(acker.client) == []


def test_ledger_of_an_untracked_run_is_replaced(
    spark: SparkSession,
    make_spark_acker: MakeSparkAcker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run died before it tracked. The next run has other records, and their own source ids."""
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


def test_fail_trees_with_a_ledger_is_refused(
    make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="not in the ledger"):
        make_spark_acker(ledger=str(tmp_path), on_changed_batch="fail_trees")


def test_a_changed_batch_writes_nothing(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """The first run has acked the trees, so messages of the second run would belong to no tree."""
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
        queues = {"e": Queue()}
        return BoltWriter(
            acker, lambda df, _: df.where(keep), queues, query_id="bolt", unmentioned="ack"
        )

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
def test_message_delivered_twice_fails_its_tree(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: str
) -> None:
    """As at-least-once queues may do. Its tree fails and is replayed; the query continues."""
    acker = make_spark_acker(mode=mode)
    messages = track(acker, records(spark, "a", "b", "c"))
    twice = messages.union(messages.where("sid = 'b'"))
    with acker.batch(twice, 0, query_id="bolt") as b:
        sent = b.emit(b.df, edge="e")
    assert [v[:3] for v in outcomes(acker.client)] == [("nack", "failed", "b")]
    acker.ack(sent.where("sid <> 'b'"), 0, query_id="last")
    assert [v[2] for v in outcomes(acker.client)] == ["a", "c"]


def test_the_order_of_failures_does_not_matter() -> None:
    """With more failures than one call of a block may carry."""
    base = 1 << 62 | 5 << 12
    terms = [(Kind.FAIL, base + slot, 0, "no weather") for slot in range(2000)]
    terms += [(Kind.INPUT, base + slot, 10**15 + slot, "") for slot in range(2000)]
    first = sealed(terms)[0].digest
    random.Random(1).shuffle(terms)
    assert sealed(terms)[0].digest == first


@pytest.mark.parametrize("count", [1700, 1900, 4095])
def test_large_block_with_changed_content_fails(
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


def test_batch_after_a_recreated_namespace_uses_the_new_shards(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """The namespace was dropped and created again; the next batch is applied without a retry."""
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


def test_retry_waits_for_the_backlog_only(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was partially tracked: it waits for the backlog, but not for its own pending trees."""
    acker = make_spark_acker({"high_water": 10})
    track(acker, records(spark, *"abcdefgh"))
    seen: list[bool] = []

    def wait(client: object, source: str, trees: object, max_wait: float, again: bool) -> float:
        seen.append(again)
        return 0.0

    monkeypatch.setattr("acker_redis.spark.tracking.wait_for_room", wait)
    track(acker, records(spark, *"abcdefgh"))
    monkeypatch.undo()
    assert seen == [True]
    track(acker, records(spark, *"abcdefgh"))
    with pytest.raises(HighWaterError):
        track(acker, records(spark, *"ijkl"), 1)


def test_reason_that_is_not_utf_8_is_replaced(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    acker = make_spark_acker()
    messages = track(acker, records(spark, "a"))
    with acker.batch(messages, 0, query_id="bolt") as b:
        b.fail(b.df, F.expr("cast(X'ff41' AS STRING)"))
    ((verdict, _, _, why),) = outcomes(acker.client)
    assert (verdict, why[-1]) == ("nack", "A")


def test_source_id_that_is_not_utf_8_is_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    acker = make_spark_acker()
    df = spark.range(1).select(F.expr("cast(X'ff41' AS STRING)").alias("sid"))
    with pytest.raises(InvalidBatchError, match="source id"):
        track(acker, df)


@pytest.mark.parametrize("attempt", [1, 1_700_000_000, 2**31 - 1])
@pytest.mark.parametrize("prefix", ["p", ""])
def test_counted_label_round_trips(prefix: str, attempt: int) -> None:
    label = CountedLabel(prefix, 7, attempt)
    assert CountedLabel.parse(str(label)) == label


def test_attempt_below_0_is_refused(spark: SparkSession, make_spark_acker: MakeSparkAcker) -> None:
    with pytest.raises(InvalidBatchError, match="an attempt must be 0 or more"):
        track(make_spark_acker(), spark.range(3), source_id=counting(), attempt=-1)


def test_rows_are_counted_after_a_failed_batch(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a small batch the driver folds; a failed batch may have been too large for it."""
    monkeypatch.setattr("acker_redis.spark.shared_state.DRIVER_MOST", 4)
    monkeypatch.setattr("acker_redis.spark.shared_state.FILES_MOST", 4)
    acker = make_spark_acker(mode="auto")
    track(acker, records(spark, "a"))
    assert acker.reports[-1].mode == "driver"
    with pytest.raises(ConfigError), acker.batch(records(spark, "b"), 1, query_id="src"):
        raise ConfigError("too large")
    track(acker, records(spark, *"bcdefg"), 1)
    assert acker.reports[-1].mode == "executors"


def test_frozen_rows_are_released_by_the_next_batch(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """And not only when the garbage collector runs."""
    acker = make_spark_acker()

    def kept() -> int:
        return int(spark.sparkContext._jsc.getPersistentRDDs().size())  # type: ignore[union-attr]

    before = None
    for batch_id in range(4):
        with acker.batch(records(spark, f"r{batch_id}"), batch_id, query_id="src") as b:
            b.track(source="t", source_id="sid").collect()
        before = kept() if before is None else before
    assert kept() <= before


def test_partial_write_of_another_driver_is_not_used(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partial write does not get the name of the batch, and is removed with its driver."""
    queue = FileQueue(tmp_path)
    half = tmp_path / f"_writing-q-000000000000-other-{queues._machine()}"
    half.mkdir()
    (half / "part-0").write_text("half")
    assert queue.write(records(spark, "a", "b"), "q", 0)
    assert {row.sid for row in queue.read(spark, "sid STRING").collect()} == {"a", "b"}
    assert not half.exists()


def test_write_after_another_driver_is_a_no_op(spark: SparkSession, tmp_path: Path) -> None:
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


def test_folder_whose_files_were_deleted_is_not_taken_for_its_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By a clean-up of old files; the batch of a query that was stopped then runs again."""
    queue = FileQueue(tmp_path)
    assert queue.write(records(spark).limit(0), "q", 0)
    assert not queue.write(records(spark, "a"), "q", 0), "a batch without rows is one, too"
    folder = queue.batch_path("q", 0)
    for file in folder.glob("*.parquet"):
        file.unlink()
    with pytest.raises(DataLossError, match="has no Parquet file.*Delete the folder to write"):
        queue.write(records(spark, "a"), "q", 0)
    shutil.rmtree(folder)
    assert queue.write(records(spark, "a"), "q", 0)


def test_reserved_column_names_are_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    df = records(spark, "a").withColumn("_acker_delta", F.lit(1))
    with pytest.raises(InvalidBatchError, match="_acker_"):
        make_spark_acker().batch(df, 0)


def test_sparse_records_do_not_count_their_gaps(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """The wait for room counts the records, and not the slots between them."""
    acker = make_spark_acker({"high_water": 100})
    df = spark.range(30).select((F.col("id") * 3000).alias("id"))
    track(acker, df, source_id=counting())
    assert acker.client.status().pending == 30


def test_two_sources_with_the_same_ids_are_independent(
    spark: SparkSession, make_spark_acker: MakeSparkAcker
) -> None:
    """In one namespace their trees are distinct."""
    acker = make_spark_acker()
    for number, source in enumerate(("orders", "returns")):
        with acker.batch(records(spark, "a", "b"), number) as b:
            b.track(source=source, source_id="sid")
    assert acker.client.status().pending == 4
