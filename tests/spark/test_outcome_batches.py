"""Verdicts without the data source: as a table, and in batches that are each read once."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from acker_redis.batching.batch import Batch
from acker_redis.errors import ConfigError, DataLossError, NamespaceNotFoundError
from acker_redis.ops.reshard import reshard
from acker_redis.protocol.keys import ShardKeys
from acker_redis.spark import Acker, OutcomeBatches, read_outcomes
from acker_redis.spark.acker import Mode
from acker_redis.sync.client import Acker as Client
from tests.spark.conftest import MakeSparkAcker, url_of
from tests.support import backlog, fail, tick, track, track_block
from tests.waiting import wait_until

MODES: list[Mode] = ["driver", "executors"]


def acked(client: Client, *names: str) -> None:
    """Track trees that are complete at once: each gives an entry of the stream."""
    for name in names:
        batch = Batch("t")
        batch.track(int.from_bytes(name.encode(), "big"), name, [])
        client.apply(batch)


def key_of(client: Client) -> str:
    return ShardKeys(client.namespace, 0).outcomes("t")


class Batches:
    """What ``process`` got; ``fails`` lets it raise after that."""

    def __init__(self, acker: Acker, folder: Path, **more: Any) -> None:
        self.seen: list[tuple[int, list[str]]] = []
        self.fails = False
        self.call = OutcomeBatches(acker, "t", self._process, folder, **more)

    def _process(self, df: DataFrame, batch_id: int) -> None:
        self.seen.append((batch_id, sorted(row["source_id"] for row in df.collect())))
        if self.fails:
            raise OSError("the job died")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("expand", [True, False])
def test_table_is_that_of_the_data_source(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, mode: Any, expand: bool
) -> None:
    """All kinds of verdicts, BIGINTs that no float holds, and a time zone that is not UTC."""
    acker = make_spark_acker()
    client, url = acker.client, url_of(acker.client)
    assert read_outcomes(spark, acker.namespace, "t", url=url, mode=mode).collect() == []
    acked(client, "done", "ok")
    track(client, 2**61 + 1, 2**60 + 1, "lost")
    track(client, 4, 1, "bad")
    fail(client, 4, "the reason")
    track_block(client, 3, [0, 7, 0], "page")
    tick(client, 4)
    options = {"url": url, "namespace": acker.namespace, "source": "t", "expand": expand}
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        wanted = spark.read.format("acker-outcomes").options(**options).load()
        found = read_outcomes(spark, acker.namespace, "t", url=url, expand=expand, mode=mode)
        assert found.schema == wanted.schema
        assert sorted(map(str, found.collect())) == sorted(map(str, wanted.collect()))
        assert {row["residual"] for row in found.collect()} >= {2**60 + 1, 7, None}
        assert found.where("verdict = 'nack'").count() == 3
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    assert backlog(client) == 7, "a table takes nothing"


def test_wrong_arguments_are_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    acker = make_spark_acker()
    url = url_of(acker.client)
    with pytest.raises(ConfigError, match="mode must be 'driver' or 'executors', not 'auto'"):
        read_outcomes(spark, "n", "t", url=url, mode="auto")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="source"):
        read_outcomes(spark, "n", "", url=url)
    with pytest.raises(NamespaceNotFoundError):
        read_outcomes(spark, "unknown", "t", url=url)
    for wrong in (0, 10_001):
        with pytest.raises(ConfigError, match="max_entries must be 1 to 10000"):
            OutcomeBatches(acker, "t", print, tmp_path, max_entries=wrong)


@pytest.mark.parametrize("mode", MODES)
def test_each_verdict_is_in_one_batch_and_taken_by_the_next(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path, mode: Mode
) -> None:
    acker = make_spark_acker(mode=mode)
    acked(acker.client, "a", "b", "c")
    clock, batches = spark.range(1), Batches(acker, tmp_path, max_entries=2)
    batches.call(clock, 0)
    assert backlog(acker.client) == 3, "the batch may run again"
    batches.call(clock, 1)
    assert backlog(acker.client) == 1
    batches.call(clock, 2)
    assert backlog(acker.client) == 0
    acked(acker.client, "d")
    batches.call(clock, 7)
    assert batches.seen == [(0, ["a", "b"]), (1, ["c"]), (2, []), (7, ["d"])]


def test_batch_that_runs_again_has_the_same_verdicts(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    """Also in a new driver, and when more verdicts have come."""
    acker = make_spark_acker()
    acked(acker.client, "a")
    batches = Batches(acker, tmp_path)
    batches.fails = True
    with pytest.raises(OSError, match="the job died"):
        batches.call(spark.range(1), 3)
    acked(acker.client, "b")
    again = Batches(acker, tmp_path)
    again.call(spark.range(1), 3)
    again.call(spark.range(1), 4)
    assert batches.seen + again.seen == [(3, ["a"]), (3, ["a"]), (4, ["b"])]


def test_batch_before_the_last_one_is_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    """The checkpoint was set back, or is new: its entries may be deleted."""
    acker = make_spark_acker()
    acked(acker.client, "a")
    batches = Batches(acker, tmp_path / "old")
    batches.call(spark.range(1), 5)
    with pytest.raises(DataLossError, match=r"batch 0 comes after batch 5 in .*old.*a new folder"):
        batches.call(spark.range(1), 0)
    new = Batches(acker, tmp_path / "new")
    new.call(spark.range(1), 0)
    assert new.seen == [(0, ["a"])]


@pytest.mark.parametrize("mode", MODES)
def test_deleted_entries_are_an_error(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path, mode: Mode
) -> None:
    acker = make_spark_acker(mode=mode)
    acked(acker.client, "a", "b")
    batches = Batches(acker, tmp_path)
    batches.call(spark.range(1), 0)
    redis = acker.client.connection.client
    redis.xdel(key_of(acker.client), redis.xrange(key_of(acker.client))[0][0])
    with pytest.raises(Exception, match="1 of 2 entries of shard 0 .*another reader"):
        batches.call(spark.range(1), 0)
    patient = Batches(acker, tmp_path, fail_on_data_loss=False)
    patient.call(spark.range(1), 0)
    assert patient.seen == [(0, ["b"])]


def test_folder_of_another_source_is_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    acker, other = make_spark_acker(), make_spark_acker()
    acked(acker.client, "a")
    Batches(acker, tmp_path).call(spark.range(1), 0)
    with pytest.raises(ConfigError, match="belongs to source t of namespace"):
        Batches(other, tmp_path).call(spark.range(1), 1)
    assert backlog(acker.client) == 1


def test_new_number_of_shards_is_noticed(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    acker = make_spark_acker()
    batches = Batches(acker, tmp_path)
    batches.call(spark.range(1), 0)
    reshard(acker.client, 2)
    acked(acker.client, "aa", "ba")
    batches.call(spark.range(1), 1)
    assert batches.seen == [(0, []), (1, ["aa", "ba"])]


def test_clock_of_a_streaming_query(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    """The query dies in a batch; a new one continues, and each verdict is processed."""
    acker = make_spark_acker({"shards": 2}, query_id=None)
    acked(acker.client, "a", "b", "c")
    batches = Batches(acker, tmp_path / "planned", max_entries=1)
    batches.fails = True

    def start() -> Any:
        clock = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
        writer = clock.writeStream.foreachBatch(batches.call)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    with pytest.raises(Exception, match="the job died"):
        start().awaitTermination()
    ((first, its),) = batches.seen
    batches.fails = False
    query = start()
    try:
        wait_until(lambda: backlog(acker.client) == 0, "the verdicts are taken")
    finally:
        query.stop()
    assert batches.seen[1] == (first, its), "the same batch with the same verdicts"
    processed = [name for _, names in batches.seen[1:] for name in names]
    assert sorted(processed) == ["a", "b", "c"]
