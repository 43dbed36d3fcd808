"""What runs on each version of Spark. The first argument is a session; see ``Stage``."""

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.batching.batch import Batch
from acker_redis.errors import ConfigError
from acker_redis.spark import (
    BoltWriter,
    OutcomeBatches,
    TrackWriter,
    explain,
    from_headers,
    read_outcomes,
    register,
    to_headers,
)
from tests.spark.faults.work import CHILDREN, COLUMNS, EDGE, TASK, Case, ids, records
from tests.waiting import wait_until

BRIEF = ("source_id", "verdict", "reason", "why")


def version(spark: SparkSession) -> str:
    return spark.version


def writers(spark: SparkSession, case: Case) -> dict[str, Any]:
    """Run the pipeline by the writers; return an explained plan of ids, and the secret of ids.

    A job does not read each record whose number ends in 4 or 5, and fails those that end in 3. The
    last job does not read one of the two children of those that end in 6.
    """
    acker = case.acker(spark)
    tracked, children, done = (case.queue(name) for name in ("tracked", "children", "done"))
    source = TrackWriter(acker, TASK, {EDGE: tracked}, source_id=ids(case.kind), query_id="source")
    source(records(spark), 0)

    def process(df: DataFrame, batch_id: int) -> DataFrame:
        rows = df.withColumn("why", F.when(F.col("i") % 10 == 3, F.lit("it is a three")))
        return rows.withColumn("k", F.explode(F.array(F.lit(0), F.lit(1))))

    middle = BoltWriter(acker, process, {"child": children}, key=["k"], query_id="middle")
    middle(tracked.read(spark, COLUMNS).where("i % 10 not in (4, 5)"), 0)
    last = children.read(spark, CHILDREN).where("i % 10 <> 6 or k = 0")
    BoltWriter(acker, lambda df, batch_id: df, sink=done, query_id="last")(last, 0)
    with redirect_stdout(io.StringIO()) as shown:
        last.withColumn("kid", acker.ids.tuple_id("tuple", "e", "k")).explain(True)
    [secret] = acker.ids._one.df.collect()
    return {"plan": shown.getvalue(), "secret": secret[0]}


def lost_rows(spark: SparkSession) -> list[tuple[Any, ...]]:
    """Explain two trees; a BIGINT must not become a float, which has 53 bits."""
    verdicts = spark.createDataFrame([(2**61 + 1, 2**60 + 1), (2, 7)], "anchor LONG, residual LONG")
    messages = spark.createDataFrame(
        [(2**61 + 1, 2**60 + 1, "a", 5), (2**61 + 1, 41, "b", None), (2, 50, "c", 2**62 + 1)],
        "anchor BIGINT, tuple BIGINT, text STRING, number BIGINT",
    )
    return sorted(tuple(row) for row in explain(verdicts, messages).na.fill(0).collect())


def headers(spark: SparkSession) -> list[Any]:
    """Write ids to headers, and read them; return the headers, the ids, and an error."""
    rows = spark.createDataFrame([(7, 40), (None, None)], "anchor BIGINT, tuple BIGINT")
    written = rows.select("anchor", to_headers()).coalesce(1).orderBy("anchor")
    read = written.select("headers", from_headers()).collect()
    texts = [[(key, value.decode()) for key, value in row["headers"]] for row in read]
    ids = [row["anchors"] and [tuple(pair) for pair in row["anchors"]] for row in read]
    wrong = spark.sql("SELECT array(struct('acker-tuple' AS key, X'37' AS value)) AS headers")
    return [texts, ids, _error(lambda: wrong.select(from_headers()).collect())]


def verdicts(spark: SparkSession, case: Case, mode: Any) -> list[tuple[str, ...]]:
    found = read_outcomes(spark, case.namespace, TASK, url=case.url, expand=True, mode=mode)
    return sorted(tuple(row) for row in found.select(*BRIEF).collect())


def taken(spark: SparkSession, case: Case) -> list[tuple[str, ...]]:
    """Take all verdicts in batches; return those that were in a batch."""
    seen: list[tuple[str, ...]] = []

    def note(df: DataFrame, batch_id: int) -> None:
        seen.extend(tuple(row) for row in df.select(*BRIEF).collect())

    acker = case.acker(spark)
    batches = OutcomeBatches(acker, TASK, note, case.folder / "planned", expand=True)
    clock = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    writer = clock.writeStream.foreachBatch(batches)
    query = writer.option("checkpointLocation", str(case.folder / "checkpoint-clock")).start()
    wait_until(lambda: not acker.client.status().backlog.get(TASK), "the verdicts are taken", 0.2)
    query.stop()
    return sorted(seen)


def formats(spark: SparkSession, case: Case, folder: Path) -> dict[str, str]:
    """Use both data sources, as table and as stream; return the error of each, or ``""``."""
    errors = {"register": _error(lambda: register(spark))}
    if errors["register"]:
        return errors
    options = {"url": case.url, "namespace": case.namespace}
    for anchor in (5, 6):
        batch = Batch(TASK)
        batch.track(anchor, f"s{anchor}", [7])
        case.acker(spark).client.apply(batch)
        acks = spark.createDataFrame([(anchor, 7)], "anchor BIGINT, tuple BIGINT")
        acks.write.parquet(str(folder / f"acks-{anchor}"))

    def run(writer: Any, name: str) -> None:
        writer = writer.option("checkpointLocation", str(folder / name))
        writer.trigger(availableNow=True).start().awaitTermination()

    def sink_table() -> None:
        acks = spark.read.parquet(str(folder / "acks-5")).write.format("acker").mode("append")
        acks.options(**options, app="a", run="r").save()

    def sink_stream() -> None:
        stream = spark.readStream.schema("anchor BIGINT, tuple BIGINT")
        rows = stream.parquet(str(folder / "acks-6"))
        run(rows.writeStream.format("acker").options(**options, app="a", query="q"), "sink")

    def outcomes_table() -> None:
        rows = spark.read.format("acker-outcomes").options(**options, source=TASK).load()
        assert "s5" in {row["source_id"] for row in rows.collect()}

    def outcomes_stream() -> None:
        seen: list[str] = []

        def note(df: DataFrame, batch_id: int) -> None:
            seen.extend(row["source_id"] for row in df.collect())

        rows = spark.readStream.format("acker-outcomes").options(**options, source=TASK).load()
        run(rows.writeStream.foreachBatch(note), "verdicts")
        assert sorted(seen) == ["s5", "s6"]

    def empty_table() -> None:
        spark.read.format("acker-outcomes").options(**options, source="other").load().collect()

    for each in (empty_table, sink_table, sink_stream, outcomes_table, outcomes_stream):
        errors[each.__name__] = _error(each)
    return errors


def _error(call: Any) -> str:
    try:
        call()
    except ConfigError as error:
        return f"ConfigError: {error}"
    except Exception as error:
        return str(error)
    return ""
