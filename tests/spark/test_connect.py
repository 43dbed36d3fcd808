"""Spark Connect: the supported uses, and the error for the one that is not.

The client is a separate process. The functions of ``foreachBatch`` run in another process that the
server starts, with copies of the objects that they use.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.spark import (
    Acker,
    BoltWriter,
    Ledger,
    OutcomeBatches,
    TrackWriter,
    explain,
    read_outcomes,
)
from tests.spark.faults.conftest import MakeCase, java, make_case
from tests.spark.faults.stage import Stage, StageError
from tests.spark.faults.work import (
    CHILDREN,
    COLUMNS,
    EDGE,
    RECORDS,
    STEPS,
    TASK,
    Case,
    Kind,
    expected,
    expire,
    ids,
    name_of,
    processed,
    settled,
)

__all__ = ["java", "make_case"]
BRIEF = ("source_id", "verdict", "reason", "why")
pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Start a client of Spark Connect with its own server."""
    with Stage(tmp_path_factory.mktemp("connect"), "local[2]", remote=True) as running:
        yield running


# Functions that run on the stage


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def write_input(spark: SparkSession, case: Case, first: int, end: int) -> None:
    rows = spark.range(first, end).withColumnRenamed("id", "i").repartition(2)
    case.queue("input").write(rows, "input", first)


def stream(spark: SparkSession, case: Case, name: str, to: str, schema: str, call: Any) -> None:
    """Run ``call`` on all waiting batches, then end the query."""
    rows = case.queue(name).read_stream(spark, schema)
    writer = rows.writeStream.foreachBatch(call).trigger(availableNow=True)
    writer.option("checkpointLocation", str(case.folder / f"checkpoint-{to}")).start()
    for query in spark.streams.active:
        query.awaitTermination()


def track_stream(spark: SparkSession, case: Case) -> None:
    acker = case.acker(spark)
    queues = {EDGE: case.queue("tracked")}
    call = TrackWriter(acker, TASK, queues, source_id=ids(case.kind), query_id="source")
    stream(spark, case, "input", "tracked", "i BIGINT", call)


def process(df: DataFrame, batch_id: int) -> DataFrame:
    rows = df.where("i % 10 <> 4")
    rows = rows.withColumn("why", F.when(F.col("i") % 10 == 3, F.lit("it is a three")))
    return rows.withColumn("k", F.explode(F.array(F.lit(0), F.lit(1))))


def middle_stream(spark: SparkSession, case: Case) -> None:
    acker = case.acker(spark)
    queues = {"child": case.queue("children")}
    call = BoltWriter(acker, process, queues, key=["k"], query_id="middle", unmentioned="ack")
    stream(spark, case, "tracked", "children", COLUMNS, call)


def last_stream(spark: SparkSession, case: Case) -> None:
    staging = str(case.folder / "staging")
    acker = Acker(
        spark,
        case.namespace,
        app_id="app",
        url=case.url,
        mode=case.mode,
        query_id="last",
        staging=staging,
    )
    done = case.queue("done")

    def call(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df, batch_id) as b:
            b.write(b.df, done)
            b.ack()

    stream(spark, case, "children", "done", CHILDREN, call)


def sink_stream(spark: SparkSession, case: Case) -> None:
    """Ack the messages of most records by the sink."""
    rows = case.queue("tracked").read_stream(spark, COLUMNS).where("i % 10 <> 3")
    writer = rows.select("anchor", "tuple").writeStream.format("acker").trigger(availableNow=True)
    writer = writer.options(url=case.url, namespace=case.namespace, app="app", query="sink")
    writer.option("checkpointLocation", str(case.folder / "checkpoint-sink")).start()
    for query in spark.streams.active:
        query.awaitTermination()


def verdicts_stream(spark: SparkSession, case: Case) -> None:
    """Copy the verdicts of the stream to a queue."""
    options = {"url": case.url, "namespace": case.namespace, "source": TASK}
    rows = spark.readStream.format("acker-outcomes").options(**options).load()

    def call(df: DataFrame, batch_id: int) -> None:
        case.queue("stream").write(df.select(*BRIEF), "stream", batch_id)

    writer = rows.writeStream.foreachBatch(call).trigger(availableNow=True)
    writer.option("checkpointLocation", str(case.folder / "checkpoint-stream")).start()
    for query in spark.streams.active:
        query.awaitTermination()


def verdicts_in_batches(spark: SparkSession, case: Case) -> None:
    """Copy the verdicts to another queue, with the same stream as the clock."""

    def process(df: DataFrame, batch_id: int) -> None:
        case.queue("batches").write(df.select(*BRIEF), "batches", batch_id)

    call = OutcomeBatches(case.acker(spark), TASK, process, case.folder / "planned")
    stream(spark, case, "input", "batches", "i BIGINT", call)


def verdicts(spark: SparkSession, case: Case, mode: Any) -> list[tuple[str, ...]]:
    found = read_outcomes(spark, case.namespace, TASK, url=case.url, mode=mode)
    return sorted(tuple(row) for row in found.select(*BRIEF).collect())


def queued(spark: SparkSession, case: Case, name: str) -> list[tuple[str, ...]]:
    rows = case.queue(name).read(spark, ", ".join(f"{column} STRING" for column in BRIEF))
    return sorted(tuple(row) for row in rows.collect())


def ack_with_a_ledger(spark: SparkSession, case: Case) -> list[tuple[str, ...]]:
    """Track trees in blocks, with a ledger; ack most by ``Acker.ack``; return their verdicts."""
    more = {"ledger": str(case.folder / "ledger"), "url": case.url, "mode": case.mode}
    more["staging"] = str(case.folder / "staging")
    acker = Acker(spark, case.namespace, app_id="app", **more)
    rows = spark.range(20).selectExpr("id AS i", "concat('r', id) AS name")
    with acker.batch(rows, 0, query_id="source") as b:
        messages = b.track(source=TASK, source_id="name")
    acker.ack(messages.where("i <> 3"), 0, query_id="ack")
    expire(acker.client)
    found = read_outcomes(spark, case.namespace, TASK, url=case.url)
    named = Ledger(case.folder / "ledger").name(found).select(*BRIEF)
    return sorted(tuple(row) for row in named.collect())


def without_a_name(spark: SparkSession, case: Case) -> None:
    acker = case.acker(spark)

    def call(df: DataFrame, batch_id: int) -> None:
        with acker.batch(df, batch_id) as b:
            b.track(source=TASK, source_id=ids(case.kind))

    stream(spark, case, "input", "nowhere", "i BIGINT", call)


def ids_stream(spark: SparkSession, case: Case) -> list[tuple[int, ...]]:
    """Derive ids in a query and at the client; return those that differ."""
    acker = case.acker(spark)

    def made(df: DataFrame) -> DataFrame:
        pair = F.struct(F.col("i").alias("anchor"), F.col("i").alias("tuple"))
        many = acker.ids.with_children(df.withColumn("anchors", F.array(pair)), EDGE)
        kid = acker.ids.tuple_id("i", EDGE).alias("kid")
        return many.select("i", kid, F.col("children")[0]["tuple"].alias("same"))

    def call(df: DataFrame, batch_id: int) -> None:
        case.queue("ids").write(made(df), "ids", batch_id)

    stream(spark, case, "input", "ids", "i BIGINT", call)
    here = made(case.queue("input").read(spark, "i BIGINT")).collect()
    there = case.queue("ids").read(spark, "i BIGINT, kid BIGINT, same BIGINT").collect()
    return [tuple(row) for row in {*here} ^ {*there}] + [
        tuple(row) for row in here if row["kid"] != row["same"]
    ]


def lost_rows(spark: SparkSession) -> list[tuple[Any, ...]]:
    verdicts = spark.createDataFrame([(1, 40), (2, 7)], "anchor BIGINT, residual BIGINT")
    messages = spark.createDataFrame(
        [(1, 40, "a"), (1, 41, "b"), (2, 50, "c")], "anchor BIGINT, tuple BIGINT, text STRING"
    )
    return sorted(tuple(row) for row in explain(verdicts, messages).na.fill(0).collect())


# Tests


@pytest.mark.parametrize(
    ("kind", "shards", "mode"),
    [("loose", 4, "driver"), ("counted", 1, "executors")],
)
def test_batches_outside_of_a_query(
    stage: Stage, make_case: MakeCase, kind: Kind, shards: int, mode: str
) -> None:
    assert stage.run(is_connect)
    case, client = make_case(shards, kind, mode=mode)
    for step in STEPS.values():
        assert stage.run(step, case)["mode"] == mode
    # A second run is a repeat, because its digests are equal.
    assert stage.run(STEPS["middle"], case)["repeated"] > 0
    found, _ = settled(client)
    assert found == expected()


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("loose", "driver"), pytest.param("counted", "executors", marks=pytest.mark.nightly)],
)
def test_streaming_queries(stage: Stage, make_case: MakeCase, kind: Kind, mode: str) -> None:
    case, client = make_case(2, kind, mode=mode)
    for first, end in ((0, RECORDS // 2), (RECORDS // 2, RECORDS)):
        stage.run(write_input, case, first, end)
        for step in (track_stream, middle_stream, last_stream):
            stage.run(step, case)
    found, counters = settled(client)
    fates = {3: ("nack", "failed", "it is a three")}
    assert len(found) == RECORDS
    for i in range(RECORDS):
        assert found[name_of(i)] == [fates.get(i % 10, ("ack", "completed", ""))]
    assert counters["repeated"] == 0
    done = {i for i, _ in processed(case)}
    assert done == {i for i in range(RECORDS) if i % 10 not in (3, 4)}


def test_sink_and_verdicts(stage: Stage, make_case: MakeCase) -> None:
    """The data sources, and verdicts without them; each query ends when it has read its input."""
    case, client = make_case(2, "loose")
    stage.run(write_input, case, 0, 40)
    stage.run(track_stream, case)
    stage.run(sink_stream, case)
    expire(client)
    fates = {3: ("nack", "expired", "")}
    wanted = sorted((name_of(i), *fates.get(i % 10, ("ack", "completed", ""))) for i in range(40))
    for mode in ("driver", "executors"):
        assert stage.run(verdicts, case, mode) == wanted
    stage.run(verdicts_in_batches, case)
    assert stage.run(queued, case, "batches") == wanted
    assert client.status().backlog[TASK] == 40, "no later batch has taken them"
    stage.run(verdicts_stream, case)
    assert stage.run(queued, case, "stream") == wanted


def test_ack_and_ledger(stage: Stage, make_case: MakeCase) -> None:
    case, _ = make_case(1, "counted", mode="executors")
    fates = {3: ("nack", "expired", "")}
    wanted = sorted((f"r{i}", *fates.get(i, ("ack", "completed", ""))) for i in range(20))
    assert stage.run(ack_with_a_ledger, case) == wanted


def test_ids_in_a_query_are_those_of_the_client(stage: Stage, make_case: MakeCase) -> None:
    """The function of ``foreachBatch`` has a copy of the acker, in another process."""
    case, _ = make_case(1, "loose")
    stage.run(write_input, case, 0, 10)
    assert stage.run(ids_stream, case) == []


def test_lost_rows_are_found(stage: Stage) -> None:
    assert stage.run(lost_rows) == [(1, 40, "a", "found"), (2, 0, None, "none")]


def test_connect_query_needs_a_name(stage: Stage, make_case: MakeCase) -> None:
    case, client = make_case(1, "loose")
    stage.run(write_input, case, 0, 10)
    with pytest.raises(StageError, match="with Spark Connect.*give query_id="):
        stage.run(without_a_name, case)
    assert client.status().counters["tracked"] == 0
