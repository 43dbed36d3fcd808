"""One evaluation is a set of committed files: where they are, what they hold, when they go."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ConfigError, DataLossError
from acker_redis.spark import (
    Acker,
    BoltWriter,
    FileQueue,
    MicroBatch,
    TrackWriter,
    folders,
    staging,
)
from acker_redis.spark.fold.id_columns import IdColumns
from tests.spark.conftest import MakeSparkAcker, outcomes
from tests.waiting import wait_until

SCHEMA = "order_id STRING, anchor BIGINT, tuple BIGINT"
CHECKPOINTED: dict[str, Any] = {"query_id": None, "app_id": "app"}


def records(spark: SparkSession, count: int = 20) -> DataFrame:
    return spark.range(count).select(F.format_string("o-%02d", "id").alias("order_id"))


def run(stream: DataFrame, checkpoint: Path, call: Callable[[DataFrame, int], object]) -> None:
    """Run a query on all rows that wait."""
    writer = stream.writeStream.foreachBatch(call).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


@pytest.fixture
def queue(spark: SparkSession, by_driver: Acker, tmp_path: Path) -> FileQueue:
    """Return a queue with the messages of 20 orders, which two batches have tracked."""
    made = FileQueue(tmp_path / "queue")
    track = TrackWriter(by_driver, "t", {"price": made}, source_id="order_id", query_id="ingest")
    track(records(spark).where("order_id < 'o-10'"), 0)
    track(records(spark).where("order_id >= 'o-10'"), 1)
    return made


def test_rows_are_kept_in_the_checkpoint_until_the_next_batch(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, queue: FileQueue, by_driver: Acker,
    tmp_path: Path,
) -> None:  # fmt: skip
    acker = make_spark_acker(client=by_driver.client, **CHECKPOINTED)
    kept: list[list[Path]] = []

    def job(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df, batch_id) as b:
            b.ack(b.freeze(b.df.withColumn("chance", F.rand())))
        kept.append(files(tmp_path / "checkpoint" / "acker-staging"))

    stream = queue.read_stream(spark, SCHEMA, maxFilesPerTrigger="1")
    run(stream, tmp_path / "checkpoint", job)
    assert len(kept) > 1
    assert all(kept)
    first, second = kept[:2]
    assert not set(first) & set(second), "a batch deletes the files of the batch before"
    assert len(outcomes(acker.client)) == 20


CHANGES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "unchanged": lambda df: df,
    "selected": lambda df: df.select("tuple", "anchor"),
    "renamed": lambda df: df.withColumnRenamed("order_id", "name"),
    "filtered": lambda df: df.where("order_id <> 'o-03'"),
    "computed": lambda df: df.withColumn("chance", F.rand()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_rows_of_a_file_source_are_copied_only_if_the_stream_changes_them(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, queue: FileQueue, by_driver: Acker,
    tmp_path: Path, change: str,
) -> None:  # fmt: skip
    acker = make_spark_acker(client=by_driver.client, **CHECKPOINTED)
    stream = CHANGES[change](queue.read_stream(spark, SCHEMA))
    rows: set[tuple[Any, ...]] = set()

    def job(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df, batch_id) as b:
            assert b.df.columns == stream.columns
            assert sorted(b.df.collect()) == sorted(df.collect()) or change == "computed"
            rows.update((row.anchor, row.tuple) for row in b.df.collect())
            b.ack(b.df)

    run(stream, tmp_path / "checkpoint", job)
    copied = bool(files(tmp_path / "checkpoint" / "acker-staging"))
    assert copied is (change in ("filtered", "computed"))
    expected = CHANGES[change](queue.read(spark, SCHEMA)).select("anchor", "tuple")
    assert rows == {tuple(row) for row in expected.collect()}
    assert len(outcomes(acker.client)) == len(rows)


def test_rows_whose_file_was_replaced_are_left_out_as_by_the_source(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, queue: FileQueue, by_driver: Acker,
    tmp_path: Path,
) -> None:  # fmt: skip
    """The query has listed a file that replace() deletes; it must not end, now or later."""
    acker = make_spark_acker(client=by_driver.client, **CHECKPOINTED)
    seen: list[int] = []

    def job(df: DataFrame, batch_id: int) -> None:
        for each in files(queue.path)[:1]:
            each.unlink()
        with acker.batch(df, batch_id) as b:
            b.ack(b.df)
            seen.append(b.df.count())

    left = sum(pq.read_metadata(each).num_rows for each in files(queue.path)[1:])
    run(queue.read_stream(spark, SCHEMA), tmp_path / "checkpoint", job)
    assert seen == [left]
    assert len(outcomes(acker.client)) == left


def test_checkpoint_of_other_rows_is_not_taken_for_the_rows_of_the_source(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, queue: FileQueue, by_driver: Acker,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Its plan is an RDD with the columns of the source, like the rows of foreachBatch."""
    acker = make_spark_acker(client=by_driver.client, **CHECKPOINTED)
    seen: list[int] = []

    def job(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df.where("order_id = 'o-03'").localCheckpoint(), batch_id) as b:
            seen.append(b.df.count())
            b.ack(b.df)

    run(queue.read_stream(spark, SCHEMA), tmp_path / "checkpoint", job)
    assert seen == [1]
    assert [v[2] for v in outcomes(acker.client)] == ["o-03"]


def test_rows_of_a_file_that_is_overwritten_are_not_acked(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, queue: FileQueue, by_driver: Acker,
    tmp_path: Path,
) -> None:  # fmt: skip
    """The new file has other messages under the same name, which the job has not seen."""
    acker = make_spark_acker(client=by_driver.client, **CHECKPOINTED)
    first, second = (pq.read_table(each) for each in sorted(queue.path.glob("batch-*")))
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    pq.write_table(first, inbox / "new.parquet")
    seen: list[str] = []

    def job(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df, batch_id) as b:
            b.ack(b.df)
            seen.extend(row.order_id for row in b.df.collect())
            pq.write_table(second, inbox / "new.parquet")

    stream = spark.readStream.schema(SCHEMA).parquet(str(inbox))
    run(stream, tmp_path / "checkpoint", job)
    assert [v[2] for v in outcomes(acker.client)] == sorted(seen)


@pytest.mark.parametrize("changed", [False, True])
def test_messages_are_written_once_and_renamed(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, queue: FileQueue, by_driver: Acker,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool,
) -> None:  # fmt: skip
    """Of a middle job from a queue of files to another: nothing else is written."""
    written: list[str] = []
    real = staging.written

    def notes(df: DataFrame, folder: str) -> Any:
        written.append(folder)
        return real(df, folder)

    monkeypatch.setattr(staging, "written", notes)
    monkeypatch.setattr("acker_redis.spark.streams.aside.written", notes)
    acker = make_spark_acker(client=by_driver.client, **CHECKPOINTED)
    after = FileQueue(tmp_path / "after")

    def job(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df, batch_id) as b:
            messages = b.emit(b.df.where("anchor > 0"), edge="next", queue=after)
        if changed:
            messages = messages.where("order_id >= 'o-00'")
        b.hand_on(messages, after)

    run(queue.read_stream(spark, SCHEMA), tmp_path / "checkpoint", job)
    assert len(written) == (2 if changed else 1)
    assert all(Path(each).parent.name.startswith("_writing-") for each in written)
    assert not list(after.path.glob("_writing-*")) or changed
    acker.ack(after.read(spark, SCHEMA), 0, query_id="last")
    assert [v[:2] for v in outcomes(acker.client)] == [("ack", "completed")] * 20


def test_writer_with_one_queue_publishes_what_it_applied(
    spark: SparkSession, queue: FileQueue, by_driver: Acker, tmp_path: Path
) -> None:
    """Of a plan that changes: each message in the queue is one that the acker knows."""
    after = FileQueue(tmp_path / "after")
    writer = BoltWriter(
        by_driver, lambda df, _: df.where(F.rand() < 0.5), {"next": after}, unmentioned="ack"
    )
    writer(queue.read(spark, SCHEMA), 0)
    by_driver.ack(after.read(spark, SCHEMA), 0, query_id="last")
    found = outcomes(by_driver.client)
    assert [v[:2] for v in found] == [("ack", "completed")] * 20


def test_messages_of_a_failed_block_are_not_published(
    spark: SparkSession, queue: FileQueue, by_driver: Acker, tmp_path: Path
) -> None:
    after = FileQueue(tmp_path / "after")

    def batch() -> MicroBatch:
        return by_driver.batch(queue.read(spark, SCHEMA), 0)

    with pytest.raises(ValueError, match="stop"), batch() as b:
        b.emit(b.df, edge="next", queue=after)
        raise ValueError("stop")
    assert not list(after.path.glob("batch-*"))
    with batch() as b:
        messages = b.emit(b.df, edge="next", queue=after)
    b.hand_on(messages, after)
    assert len(list(after.path.glob("_writing-*"))) == 0, "the next batch deletes leftovers"
    assert after.read(spark, SCHEMA).count() == 20


def test_columns_of_any_name_and_without_a_type_are_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(3).select(
        F.col("id").alias("n"), F.lit(None).alias("why"), (F.col("id") * 2).alias("N"),
        F.col("id").alias("a b.c"), F.lit(None).alias("n"),
    )  # fmt: skip
    kept = staging.written(rows, str(tmp_path / "kept")).df
    assert kept.columns == rows.columns
    assert [f.dataType for f in kept.schema] == [f.dataType for f in rows.schema]
    assert sorted(map(tuple, kept.collect())) == [
        (0, None, 0, 0, None), (1, None, 2, 1, None), (2, None, 4, 2, None),
    ]  # fmt: skip


def test_values_do_not_depend_on_settings_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = {name: bad for name, (bad, _) in staging._LOSSY.items()}
    before = {name: spark.conf.get(name) for name in settings}
    rows = spark.sql("SELECT timestamp_micros(1234567) AS at, DATE'0001-01-01' AS since")
    try:
        for name, bad in settings.items():
            spark.conf.set(name, bad)
        kept = staging.written(rows, str(tmp_path / "kept")).df
        assert {name: spark.conf.get(name) for name in settings} == settings
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
    assert kept.collect() == rows.collect()


def test_folder_that_is_deleted_during_the_write_is_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark commits the files that are left, and reports no error."""
    folder = tmp_path / "kept"

    @F.udf("long")
    def deletes(n: int) -> int:
        if n == 3:  # the second task, when the first has committed its file
            wait_until(lambda: any(folder.glob("_temporary/0/task_*")))
            shutil.rmtree(folder)
        return n

    rows = spark.range(0, 4, 1, 2).select(deletes("id").alias("id"))
    with pytest.raises(DataLossError, match="the folder was deleted meanwhile"):
        staging.written(rows, str(folder))


def test_folder_has_the_place_and_the_rights_that_hadoop_gives_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of the process of Python: its folder and its umask may differ from the JVM's."""
    reached = folders._hadoop(spark, str(tmp_path))
    assert reached
    settings, name = reached[0].getConf(), "fs.permissions.umask-mode"
    monkeypatch.chdir(tmp_path)
    relative = os.path.relpath(tmp_path / "relative", _working_folder(spark))
    try:
        for umask, mode in (("077", 0o700), ("000", 0o777)):
            settings.set(name, umask)
            folders.mark(spark, f"{relative}/{umask}/q")
            assert folders.unmark(spark, f"{relative}/{umask}/q")
            made = [tmp_path / "relative" / umask, tmp_path / "relative" / umask / "q"]
            assert [each.stat().st_mode & 0o777 for each in made] == [mode, mode]
    finally:
        settings.unset(name)


def _working_folder(spark: SparkSession) -> str:
    system: Any = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    return str(system.getProperty("user.dir"))


@pytest.mark.parametrize("lost", ["_began", "part-00000-*"])
def test_write_is_complete_only_with_its_mark_and_its_first_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Executors with another disk leave the driver's folder without a file."""
    real = DataFrameWriter.parquet

    def loses(self: Any, path: str, *more: Any) -> None:
        real(self, path, *more)
        for each in Path(path).glob(lost):
            each.rmdir() if each.is_dir() else each.unlink()

    monkeypatch.setattr(DataFrameWriter, "parquet", loses)
    with pytest.raises(DataLossError, match="do not share it with the driver"):
        staging.written(spark.range(0, 4, 1, 2).toDF("n"), str(tmp_path / "kept"))


def test_old_folders_of_dead_runs_are_deleted_and_young_ones_stay(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, queue: FileQueue, by_driver: Acker,
    tmp_path: Path,
) -> None:  # fmt: skip
    root = tmp_path / "staging"
    acker = make_spark_acker(client=by_driver.client, staging=str(root))
    old, young, other = root / "test@q" / "old", root / "test@q" / "young", root / "test@r" / "old"
    for each in (old, young, other):
        each.mkdir(parents=True)
    for each in (old, other):
        os.utime(each, (0, 0))
    with acker.batch(queue.read(spark, SCHEMA), 0) as b:
        b.ack(b.df.where("true"))
    assert not old.exists()
    assert young.exists()
    assert other.exists(), "of another query"


def test_folder_from_the_future_does_not_make_others_old(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, queue: FileQueue, by_driver: Acker,
    tmp_path: Path,
) -> None:  # fmt: skip
    """A machine with a fast clock made it. This run, and that of another driver, keep theirs."""
    root = tmp_path / "staging"
    acker = make_spark_acker(client=by_driver.client, staging=str(root))
    future, other = root / "test@q" / "future", root / "test@q" / "other"
    for each in (future, other):
        each.mkdir(parents=True)
    os.utime(future, (4e9, 4e9))
    with acker.batch(queue.read(spark, SCHEMA), 0) as b:
        b.ack(b.df.where("true"))
    assert other.exists()
    assert len(outcomes(acker.client)) == 20


def test_queue_with_its_own_writes_is_called(
    spark: SparkSession, queue: FileQueue, by_driver: Acker, tmp_path: Path
) -> None:
    """A rename would pass it by."""
    called: list[str] = []

    class Audited(FileQueue):
        def replace(self, df: DataFrame, query_id: str, batch_id: int) -> None:
            called.append(query_id)
            super().replace(df, query_id, batch_id)

    BoltWriter(by_driver, lambda df, _: df, {"next": Audited(tmp_path / "after")})(
        queue.read(spark, SCHEMA), 0
    )
    assert called == ["test@q"]


def test_cluster_needs_a_folder_that_its_executors_share(
    spark: SparkSession, queue: FileQueue, by_driver: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "is_local", lambda _: False)
    for checkpoint in (None, "file:/data/checkpoint"):
        monkeypatch.setattr(staging, "checkpoint_of", lambda _, found=checkpoint: found)
        with (
            pytest.raises(ConfigError, match=r"give Acker\(.., staging=\)"),
            by_driver.batch(queue.read(spark, SCHEMA), 0) as b,
        ):
            b.ack(b.df.where("true"))


@pytest.mark.parametrize("path", ["s3a://bucket/queue", "hdfs://name/queue", "dbfs:/queue"])
def test_queue_of_files_needs_an_atomic_rename(path: str) -> None:
    with pytest.raises(ConfigError, match="DeltaQueue"):
        FileQueue(path)


def test_ids_are_read_as_spark_reads_them(tmp_path: Path) -> None:
    """A column of another case, and one that a file lacks."""
    pq.write_table(pa.table({"Anchor": [1, 2], "tuple": [3, 4]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"anchor": [5], "other": [6]}), tmp_path / "b.parquet")
    names = {"anchor": "anchor", "delta": "tuple"}
    both = IdColumns((tmp_path / "a.parquet", tmp_path / "b.parquet"), names)
    assert both.rows == 3
    first, second = both.tables()
    assert first.to_pydict() == {"anchor": [1, 2], "delta": [3, 4]}
    assert second.to_pydict() == {"anchor": [5], "delta": [None]}
