"""The pipeline of :mod:`tests.spark.faults.work` as three streaming queries, which may die."""

import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.spark.acker import Mode
from tests.spark.faults.work import (
    CHILDREN,
    COLUMNS,
    EDGE,
    RECORDS,
    TASK,
    Case,
    ids,
    process,
)

BATCHES = 3
Job = Callable[[DataFrame, int], None]


def pour(case: Case, batches: range = range(BATCHES)) -> None:
    """Write the records of the source, one file for each batch."""
    size = RECORDS // BATCHES
    for batch in batches:
        folder = case.folder / "input" / f"batch-input-{batch}"
        folder.mkdir(parents=True)
        records = pa.table({"i": range(batch * size, (batch + 1) * size)})
        pq.write_table(records, folder / "records.parquet")
        # The source reads the oldest file first.
        os.utime(folder / "records.parquet", (1_700_000_000 + batch, 1_700_000_000 + batch))


def checkpoint(case: Case, name: str) -> Path:
    return case.folder / f"checkpoint-{name}"


def drain(spark: SparkSession, case: Case, modes: dict[str, Mode]) -> None:
    """Run the named queries in these modes until they have read all their input."""
    for name, mode in modes.items():
        query(spark, replace(case, mode=mode), name)


def query(spark: SparkSession, case: Case, name: str, query_id: str | None = None) -> None:
    """Run a query, with one file per batch, until it has read all its input."""
    job, queue, schema = {
        "source": (_source, "input", "i BIGINT"),
        "middle": (_middle, "tracked", COLUMNS),
        "changing": (_changing, "tracked", COLUMNS),
        "last": (_last, "children", CHILDREN),
    }[name]
    reader = spark.readStream.schema(schema).option("recursiveFileLookup", "true")
    rows = reader.option("maxFilesPerTrigger", 1).parquet(str(case.folder / queue))
    writer = rows.writeStream.foreachBatch(job(case, spark, query_id))
    writer = writer.option("checkpointLocation", str(checkpoint(case, name)))
    started = writer.trigger(availableNow=True).start()
    try:
        started.awaitTermination()
    finally:
        started.stop()


def _source(case: Case, spark: SparkSession, query_id: str | None) -> Job:
    acker, queue = case.acker(spark), case.queue("tracked")

    def job(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df, batch_id, query_id=query_id) as b:
            out = b.track(source=TASK, source_id=ids(case.kind), edges=EDGE)
        queue.write(out.drop("edge").coalesce(1), b.query_id, batch_id)

    return job


def _middle(case: Case, spark: SparkSession, query_id: str | None) -> Job:
    acker, queue = case.acker(spark), case.queue("children")

    def job(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df, batch_id, query_id=query_id) as b:
            out = process(b)
        queue.write(out.coalesce(1), b.query_id, batch_id)

    return job


def _changing(case: Case, spark: SparkSession, query_id: str | None) -> Job:
    """Return a bolt that emits other messages in each run."""
    acker, queue = case.acker(spark), case.queue("children")

    def job(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df, batch_id, query_id=query_id) as b:
            by_chance = b.df.withColumn("k", (F.floor(1000 * F.rand()) + 1).cast("int"))
            out = b.emit(by_chance, edge="child", key=["k"])
        queue.write(out.coalesce(1), b.query_id, batch_id)

    return job


def _last(case: Case, spark: SparkSession, query_id: str | None) -> Job:
    acker, queue = case.acker(spark), case.queue("done")

    def job(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df, batch_id, query_id=query_id, unmentioned="leave") as b:
            done = b.df.where("i % 10 <> 6 or k = 0")
            b.write(done.coalesce(1), queue)
            b.ack(done)

    return job


def copy_checkpoint(case: Case, name: str) -> Path:
    """Copy a checkpoint, like a backup."""
    kept = case.folder / f"kept-{uuid.uuid4().hex}"
    shutil.copytree(checkpoint(case, name), kept)
    return kept


def restore_checkpoint(case: Case, name: str, kept: Path | None) -> None:
    """Restore a copy of a checkpoint; with None, delete the checkpoint."""
    shutil.rmtree(checkpoint(case, name))
    if kept:
        shutil.copytree(kept, checkpoint(case, name))


def written(case: Case, name: str) -> list[Any]:
    """Return the names of the batches of a queue."""
    return sorted(each.name for each in (case.folder / name).glob("batch-*"))
