"""Queries whose plans, logs and checkpoints must show no secret of their ids; see ``Stage``."""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.spark import BoltWriter, FileQueue, Ids, TrackWriter
from acker_redis.spark.ids import _SECRET
from tests.spark.faults.work import COLUMNS, TASK, Case

Write = Callable[[DataFrame, int], None]
MODES = ("simple", "extended", "codegen", "cost", "formatted")


def secrets_of(ids: Ids, *ways: tuple[str, ...]) -> set[str]:
    """Return the salt, its digest in the JVM, and the constants of some derivations."""
    [digest] = ids._one.df.collect()
    constants = [ids._one.df.select(ids._constant(*way)).collect()[0][0] for way in ways]
    found = {ids.maker.salt, digest[_SECRET], *constants}
    assert len(found) == 2 + len(ways)
    assert all(re.fullmatch("[0-9a-f]{32}|[0-9A-Za-z+/]{22}", each) for each in found)
    return found


def explained(df: DataFrame) -> str:
    with redirect_stdout(io.StringIO()) as out:
        for mode in MODES:
            df.explain(mode)
    return out.getvalue()


def run(spark: SparkSession, case: Case) -> dict[str, list[str]]:
    """Run a source and a bolt on streams; return the secrets of its ids."""
    acker = case.acker(spark)
    rows = spark.range(50).withColumn("sid", F.concat(F.lit("r"), F.col("id").cast("string")))
    case.queue("in").write(rows.withColumnRenamed("id", "i"), "in", 0)
    tracked, done = case.queue("tracked"), case.queue("done")

    def stream(queue: FileQueue, schema: str, name: str, write: Write) -> None:
        writer = queue.read_stream(spark, schema).writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(case.folder / f"checkpoint-{name}"))
        writer.trigger(availableNow=True).start()
        for query in spark.streams.active:
            query.awaitTermination()

    source = TrackWriter(acker, TASK, {"e": tracked}, source_id="sid", query_id="source")
    stream(case.queue("in"), "i BIGINT, sid STRING", "source", source)

    def process(df: DataFrame, batch_id: int) -> DataFrame:
        return df.withColumn("k", F.col("i").cast("string"))

    bolt = BoltWriter(acker, process, {"e": done}, key=["k"], query_id="bolt")
    stream(tracked, COLUMNS, "bolt", bolt)
    read = done.read(spark, COLUMNS).withColumn("kid", acker.ids.tuple_id("tuple", "e"))
    acker.ack(read, 0, children="kid", query_id="row")
    assert acker.client.status().counters["tracked"] == 50
    explained(read)
    ways = (("anchor", TASK), ("message", "e"), ("child", "e@bolt/0"))
    return {"secrets": sorted(secrets_of(acker.ids, *ways))}


def found_in(folder: Path, secrets: list[str]) -> list[str]:
    """Return the files that contain one of the secrets."""
    wanted = [each.encode() for each in secrets]
    found = []
    for path in folder.rglob("*"):
        # Spark deletes files of shuffles at any time.
        with suppress(FileNotFoundError, IsADirectoryError):
            content = path.read_bytes()
            if any(each in content for each in wanted):
                found.append(str(path))
    return found
