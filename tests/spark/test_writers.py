"""The writers on small frames: what Spark runs again is applied and written once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.client import Acker
from acker_redis.errors import (
    ChangedBatchError,
    ConfigError,
    HighWaterError,
    InvalidBatchError,
    LaneError,
)
from acker_redis.spark import BoltWriter, FileQueue, TrackWriter, anchor
from acker_redis.spark.writers import FoldMode
from tests.conftest import MakeAcker
from tests.support import tick, total, verdicts

MESSAGE = "source_id STRING, anchor BIGINT, tuple BIGINT"


class MemoryQueue:
    """Keeps batches by id, and what the acker had pending when each was written."""

    def __init__(self, acker: Acker | None = None) -> None:
        self.batches: dict[int, DataFrame] = {}
        self.pending: list[int] = []
        self.dies = 0
        self._acker = acker

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> None:
        if self.dies:
            self.dies -= 1
            raise OSError("the disk is full")
        if self._acker:
            self.pending.append(self._acker.status().pending)
        self.batches.setdefault(batch_id, df.localCheckpoint())

    def ids(self, batch_id: int) -> set[str]:
        return {r.source_id for r in self.batches[batch_id].select("source_id").collect()}


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(high_water=10_000)


def records(spark: SparkSession, *ids: str) -> DataFrame:
    return spark.createDataFrame([(i,) for i in ids], "source_id STRING")


def keep(df: DataFrame, batch_id: int) -> DataFrame:
    return df


@pytest.mark.parametrize("fold", ["driver", "spark"])
def test_from_source_to_verdict(spark: SparkSession, acker: Acker, fold: FoldMode) -> None:
    """Two edges out of the source, a middle bolt that fails and drops, and a last one."""
    left, right, end = MemoryQueue(), MemoryQueue(), MemoryQueue()
    edges = {"left": left, "right": right}
    source = TrackWriter(acker, "t", edges, fold=fold, query_id="source")
    source(records(spark, "good", "bad", "forgotten"), 0)
    assert source.last_report
    assert (source.last_report.tracked, source.last_report.trees) == (3, 3)

    def process(df: DataFrame, batch_id: int) -> DataFrame:
        why = F.when(F.col("source_id") == "bad", F.lit("it is bad"))
        return df.where("source_id <> 'forgotten'").withColumn("why", why)

    middle = BoltWriter(acker, process, {"end": end}, fold=fold, query_id="middle")
    middle(left.batches[0], 0)
    assert middle.last_report
    assert middle.last_report.failed == 1
    assert end.ids(0) == {"good"}
    assert "why" not in end.batches[0].columns

    last = BoltWriter(acker, keep, fold=fold, query_id="last")
    last(end.batches[0], 0)
    assert total(acker)["acked"] == 0, "the right edge is outstanding"
    BoltWriter(acker, keep, fold=fold, query_id="right")(right.batches[0], 0)
    tick(acker, 3)
    assert {(v[0], v[1], v[3], v[4]) for v in verdicts(acker)} == {
        ("ack", "completed", "good", ""),
        ("nack", "failed", "bad", "it is bad"),
        ("nack", "expired", "forgotten", ""),
    }


def test_the_acker_hears_before_the_queue(spark: SparkSession, acker: Acker) -> None:
    queue = MemoryQueue(acker)
    TrackWriter(acker, "t", {"e": queue}, query_id="q")(records(spark, "a", "b"), 0)
    assert queue.pending == [2]


def test_a_batch_that_runs_again_is_applied_once(spark: SparkSession, acker: Acker) -> None:
    queue, end = MemoryQueue(), MemoryQueue()
    source = TrackWriter(acker, "t", {"e": queue}, query_id="source")
    bolt = BoltWriter(acker, keep, {"e": end}, query_id="bolt")
    for _ in range(3):
        source(records(spark, "a", "b"), 0)
        bolt(queue.batches[0], 0)
    assert bolt.last_report
    assert (bolt.last_report.chunks, bolt.last_report.repeated) == (1, 1)
    BoltWriter(acker, keep, query_id="last")(end.batches[0], 0)
    counters = total(acker)
    assert (counters["tracked"], counters["acked"], counters["conflict"]) == (2, 2, 0)


@pytest.mark.parametrize("order", [["a", "b", "c"], ["c", "b", "a"]])
def test_the_order_of_rows_does_not_matter(
    spark: SparkSession, acker: Acker, order: list[str]
) -> None:
    source = TrackWriter(acker, "t", {"e": MemoryQueue()}, query_id="q")
    source(records(spark, "a", "b", "c"), 0)
    source(records(spark, *order).repartition(3), 0)
    assert source.last_report
    assert source.last_report.repeated == 1


@pytest.mark.parametrize("again", [("a", "x"), ("a",), ("a", "b", "c"), ()])
def test_other_content_under_the_same_number_is_refused(
    spark: SparkSession, acker: Acker, again: tuple[str, ...]
) -> None:
    queue = MemoryQueue()
    queue.dies = 1
    source = TrackWriter(acker, "t", {"e": queue}, query_id="q")
    with pytest.raises(OSError, match="disk"):
        source(records(spark, "a", "b"), 0)
    with pytest.raises(ChangedBatchError, match="other content"):
        source(records(spark, *again), 0)
    assert queue.batches == {}
    assert total(acker)["tracked"] == 2


def many(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select(F.concat(F.lit("s"), "id").alias("source_id"))


class DiesOnce(Acker):
    """Loses the connection before a certain call."""

    calls_left = -1

    def apply_part(self, *args: object) -> object:  # type: ignore[override]
        self.calls_left -= 1
        if self.calls_left == -1:
            raise OSError("the driver was killed")
        return super().apply_part(*args)  # type: ignore[arg-type]


@pytest.mark.parametrize("shards", [1, 4])
def test_driver_killed_between_two_chunks(
    spark: SparkSession, make_any_acker: MakeAcker, shards: int
) -> None:
    acker = make_any_acker(shards=shards, high_water=100_000)
    dying = DiesOnce(acker.connection.client, acker.namespace)
    source = TrackWriter(dying, "t", {"e": MemoryQueue()}, query_id="q")
    dying.calls_left = 3
    with pytest.raises(OSError, match="killed"):
        source(many(spark, 9000), 5)
    assert 0 < total(acker)["tracked"] < 9000
    source(many(spark, 9000), 5)
    counters = total(acker)
    assert (counters["tracked"], counters["pending"], counters["conflict"]) == (9000, 9000, 0)
    assert source.last_report
    assert source.last_report.repeated == 3


def test_fewer_chunks_than_before_are_other_content(spark: SparkSession, acker: Acker) -> None:
    source = TrackWriter(acker, "t", {"e": MemoryQueue()}, query_id="q")
    source(many(spark, 5000), 0)
    with pytest.raises(ChangedBatchError, match="other content"):
        source(many(spark, 2000), 0)


def test_a_checkpoint_that_was_set_back_is_refused(spark: SparkSession, acker: Acker) -> None:
    source = TrackWriter(acker, "t", {"e": MemoryQueue()}, query_id="q")
    source(records(spark, "a"), 0)
    source(records(spark, "b"), 1)
    with pytest.raises(LaneError, match="checkpoint was set back"):
        source(records(spark, "c"), 0)


def test_a_second_driver_that_overtakes_is_noticed(
    spark: SparkSession, acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It applies a later batch between the look at the lane and the call."""
    queue = MemoryQueue()
    source = TrackWriter(acker, "t", {"e": queue}, query_id="q")
    source(records(spark, "later"), 1)
    monkeypatch.setattr("acker_redis.spark.lanes._check_lane", lambda *args: None)
    with pytest.raises(LaneError, match="second driver"):
        source(records(spark, "overtaken"), 0)
    assert list(queue.batches) == [1], "a message without a tree would get no verdict"


def test_two_queries_have_two_lanes(spark: SparkSession, acker: Acker) -> None:
    for query in ("q1", "q2"):
        source = TrackWriter(acker, "t", {"e": MemoryQueue()}, query_id=query)
        source(records(spark, query), 0)
    assert total(acker)["tracked"] == 2


def test_attempts_have_trees_of_their_own(spark: SparkSession, acker: Acker) -> None:
    source = TrackWriter(acker, "t", {"e": MemoryQueue()}, query_id="q")
    df = spark.createDataFrame([("a", 0), ("a", 1)], "source_id STRING, attempt INT")
    source(df, 0)
    assert total(acker)["pending"] == 2


def test_a_source_id_that_is_not_unique(spark: SparkSession, acker: Acker) -> None:
    source = TrackWriter(acker, "t", {"e": MemoryQueue()}, query_id="q")
    with pytest.raises(InvalidBatchError, match="source id unique"):
        source(records(spark, "a", "a"), 0)
    assert total(acker)["tracked"] == 0


@pytest.mark.parametrize("fold", ["driver", "spark"])
def test_a_bolt_that_returns_a_message_twice(
    spark: SparkSession, acker: Acker, fold: FoldMode
) -> None:
    """Its two rows would cancel, or count one message double: refused, nothing applied."""
    queue, end = MemoryQueue(), MemoryQueue()
    TrackWriter(acker, "t", {"e": queue}, query_id="source")(records(spark, "a"), 0)

    def twice(df: DataFrame, batch_id: int) -> DataFrame:
        return df.unionByName(df)

    bolt = BoltWriter(acker, twice, {"e": end}, fold=fold, query_id="bolt")
    with pytest.raises(InvalidBatchError, match="once"):
        bolt(queue.batches[0], 0)
    assert end.batches == {}


def test_nondeterministic_rows_are_evaluated_once(spark: SparkSession, acker: Acker) -> None:
    """What the acker was told and what the queue got are one evaluation of the plan."""
    queue, end = MemoryQueue(), MemoryQueue()
    TrackWriter(acker, "t", {"e": queue}, query_id="source")(many(spark, 500), 0)

    def some(df: DataFrame, batch_id: int) -> DataFrame:
        return df.where(F.rand() < 0.5)

    BoltWriter(acker, some, {"e": end}, query_id="bolt")(queue.batches[0], 0)
    written = end.batches[0].count()
    assert 100 < written < 400
    BoltWriter(acker, keep, query_id="last")(end.batches[0], 0)
    assert total(acker)["acked"] == written


def test_rejected_trees_are_not_emitted(spark: SparkSession, make_any_acker: MakeAcker) -> None:
    """Another source fills the table between the wait for room and the call."""
    acker = make_any_acker(high_water=10)
    queue = MemoryQueue()
    source = TrackWriter(acker, "t", {"e": queue}, query_id="q")
    source._wait_for_room = lambda folded: None  # type: ignore[method-assign]
    source(many(spark, 25), 0)
    assert source.last_report
    assert len(source.last_report.rejected) == 5
    rejected = {v[3] for v in verdicts(acker)}
    assert len(queue.ids(0)) == 20
    assert not queue.ids(0) & rejected


def test_waits_for_room_below_high_water(spark: SparkSession, make_any_acker: MakeAcker) -> None:
    acker = make_any_acker(high_water=10)
    queue = MemoryQueue()
    source = TrackWriter(acker, "t", {"e": queue}, max_wait=0.3, query_id="q")
    source(many(spark, 8), 0)
    with pytest.raises(HighWaterError, match="8 trees were still pending"):
        source(records(spark, "a", "b", "c"), 1)
    assert total(acker)["tracked"] == 8
    BoltWriter(acker, keep, query_id="last")(queue.batches[0], 0)
    source(records(spark, "a", "b", "c"), 1)
    assert total(acker)["tracked"] == 11


def test_a_batch_that_runs_again_does_not_wait_for_itself(
    spark: SparkSession, make_any_acker: MakeAcker
) -> None:
    """It was tracked, and its query died before the queue was written: nobody can ack it."""
    acker = make_any_acker(high_water=10)
    queue = MemoryQueue()
    queue.dies = 1
    source = TrackWriter(acker, "t", {"e": queue}, max_wait=0, query_id="q")
    with pytest.raises(OSError, match="disk"):
        source(many(spark, 8), 0)
    source(many(spark, 8), 0)
    assert len(queue.ids(0)) == 8


def test_a_batch_above_high_water_is_refused(
    spark: SparkSession, make_any_acker: MakeAcker
) -> None:
    acker = make_any_acker(high_water=10)
    with pytest.raises(ConfigError, match="does not fit under the high-water mark"):
        TrackWriter(acker, "t", {"e": MemoryQueue()}, query_id="q")(many(spark, 11), 0)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("anchor BIGINT", "column tuple is missing"),
        ("anchor INT, tuple BIGINT", "column anchor is int, it must be bigint"),
        ("anchor BIGINT, tuple STRING", "column tuple is string"),
        ("anchor BIGINT, tuple BIGINT, Why STRING", "column Why must be written why"),
        ("anchor BIGINT, tuple BIGINT, WHY STRING", "column WHY must be written why"),
        ("anchor BIGINT, tuple BIGINT, why INT", "column why is int, it must be string"),
        ("Anchor BIGINT, tuple BIGINT", "column Anchor must be written anchor"),
    ],
)
def test_wrong_columns(spark: SparkSession, acker: Acker, columns: str, words: str) -> None:
    with pytest.raises(InvalidBatchError, match=words):
        BoltWriter(acker, keep, query_id="q")(spark.createDataFrame([], columns), 0)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("source_id STRING, Attempt INT", "column Attempt must be written attempt"),
        ("source_id STRING, attempt STRING", "column attempt is string, it must be int"),
        ("source_id INT", "column source_id is int"),
    ],
)
def test_wrong_columns_of_a_source(
    spark: SparkSession, acker: Acker, columns: str, words: str
) -> None:
    with pytest.raises(InvalidBatchError, match=words):
        source = TrackWriter(acker, "t", {"e": MemoryQueue()}, query_id="q")
        source(spark.createDataFrame([], columns), 0)


@pytest.mark.parametrize("fold", ["driver", "spark"])
def test_a_source_id_that_is_null_is_refused(
    spark: SparkSession, acker: Acker, fold: FoldMode
) -> None:
    """Also where all are: such a batch was once emitted without being tracked."""
    queue = MemoryQueue()
    source = TrackWriter(acker, "t", {"e": queue}, fold=fold, query_id="q")
    with pytest.raises(InvalidBatchError, match="source_id has 1 nulls"):
        source(spark.createDataFrame([(None,)], "source_id STRING"), 0)
    assert queue.batches == {}


def test_a_new_checkpoint_does_not_meet_the_old_batches(
    spark: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """Batch ids start over: what was tracked must be written, not taken for written."""
    queue = FileQueue(tmp_path / "q")
    TrackWriter(acker, "t", {"e": queue}, query_id="old")(records(spark, "a"), 0)
    TrackWriter(acker, "t", {"e": queue}, query_id="new")(records(spark, "b"), 0)
    assert {r.source_id for r in queue.read(spark, "source_id STRING").collect()} == {"a", "b"}


def by_shard(spark: SparkSession, shard: int) -> list[str]:
    """Source ids whose anchors fall into a shard of two."""
    ids = many(spark, 100).withColumn("a", anchor("source_id", attempt=F.lit(0)))
    return [r.source_id for r in ids.where(F.col("a") % 2 == shard).collect()]


def test_other_content_on_other_shards_is_refused(
    spark: SparkSession, make_any_acker: MakeAcker
) -> None:
    """Each shard knows its own part only: all are asked before any is told."""
    acker = make_any_acker(shards=2)
    even, odd = by_shard(spark, 0), by_shard(spark, 1)
    source = TrackWriter(acker, "t", {"e": MemoryQueue()}, query_id="q")
    source(records(spark, odd[0]), 0)
    for again in ([even[0]], [even[0], odd[0]], [even[0], odd[1]]):
        with pytest.raises(ChangedBatchError):
            source(records(spark, *again), 0)
    source(records(spark, odd[2]), 1)
    with pytest.raises(LaneError):
        source(records(spark, even[3]), 0)
    assert total(acker)["tracked"] == 2


def test_room_is_judged_per_shard(spark: SparkSession, make_any_acker: MakeAcker) -> None:
    """All in one shard: it waits, or is refused, rather than being nacked."""
    acker = make_any_acker(shards=2, high_water=20)
    even = by_shard(spark, 0)
    source = TrackWriter(acker, "t", {"e": MemoryQueue()}, max_wait=0, query_id="q")
    source(records(spark, *even[:8]), 0)
    with pytest.raises(HighWaterError):
        source(records(spark, *even[8:16]), 1)
    assert total(acker)["overflow"] == 0


def test_outside_of_a_streaming_query(spark: SparkSession, acker: Acker) -> None:
    with pytest.raises(ConfigError, match="give query_id="):
        TrackWriter(acker, "t", {"e": MemoryQueue()})(records(spark, "a"), 0)


def test_a_source_without_edges(acker: Acker) -> None:
    with pytest.raises(ConfigError, match="at least one edge"):
        TrackWriter(acker, "t", {})


def test_file_queue_writes_a_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    queue = FileQueue(tmp_path / "q")
    (tmp_path / "q" / "_writing-q-000000000001").mkdir()
    assert queue.write(records(spark, "a", "b"), "q", 0)
    assert not queue.write(records(spark, "c"), "q", 0)
    assert queue.write(records(spark, "d"), "q", 1)
    rows = queue.read(spark, "source_id STRING").collect()
    assert {r.source_id for r in rows} == {"a", "b", "d"}
    assert sorted(p.name for p in queue.path.iterdir()) == [
        "batch-q-000000000000",
        "batch-q-000000000001",
    ]


def run(
    spark: SparkSession, path: Path, name: str, df: DataFrame, writer: Callable[..., None]
) -> None:
    stream = df.writeStream.foreachBatch(writer).option("checkpointLocation", str(path / name))
    stream.trigger(availableNow=True).start().awaitTermination()


def test_streaming_queries_that_die_and_start_again(
    spark: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    """Each dies between the acker and the queue in its first batch: Spark runs it again."""
    for day in range(3):
        lines = "".join(f"day{day}-{i}\n" for i in range(10))
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{day}.csv").write_text(lines)
    source = spark.readStream.schema("source_id STRING").option("maxFilesPerTrigger", 1)
    first, second = FileQueue(tmp_path / "first"), FileQueue(tmp_path / "second")
    died = []

    class Dies:
        def __init__(self, queue: FileQueue) -> None:
            self.queue = queue

        def write(self, df: DataFrame, query_id: str, batch_id: int) -> None:
            if (self.queue.path.name, batch_id) not in died:
                died.append((self.queue.path.name, batch_id))
                raise OSError("killed")
            self.queue.write(df, query_id, batch_id)

    stages = [
        ("source", source.csv(str(tmp_path / "in")), TrackWriter(acker, "t", {"e": Dies(first)})),
        ("bolt", first.read_stream(spark, MESSAGE), BoltWriter(acker, keep, {"e": Dies(second)})),
        ("last", second.read_stream(spark, MESSAGE), BoltWriter(acker, keep)),
    ]
    deaths = {"source": 3, "bolt": 1, "last": 0}
    for name, df, writer in stages:
        for _ in range(deaths[name]):
            with pytest.raises(Exception, match="killed"):
                run(spark, tmp_path, name, df, writer)
        run(spark, tmp_path, name, df, writer)
    assert len(died) == 4, "three batches of the source; the bolt takes all in one"
    found = verdicts(acker)
    assert len(found) == 30
    assert {(v[0], v[3]) for v in found} == {
        ("ack", f"day{d}-{i}") for d in range(3) for i in range(10)
    }
    counters = total(acker)
    assert counters["repeated"] == 4
    assert (counters["conflict"], counters["pending"]) == (0, 0)
