"""Progress joined with reports, and the descriptions of jobs in the Spark UI."""

import json
import logging
import os
import queue
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from acker_redis.errors import InvalidBatchError
from acker_redis.spark import Acker
from acker_redis.spark.fold.report import Report
from acker_redis.spark.fold.steps import Timings
from acker_redis.spark.listener import AckerListener
from acker_redis.sync import client
from tests.conftest import MakeAcker
from tests.spark.conftest import change
from tests.waiting import LIMIT

FIELDS = {
    "query",
    "query_id",
    "batch_id",
    "namespace",
    "app_id",
    "input_rows",
    "trigger_ms",
    "tracked",
    "acked",
    "failed",
    "vanished",
    "rejected",
    "rejected_blocks",
    "bad",
    "repeated",
    "bytes",
    "ms",
    "waited_ms",
    "mode",
    "changed",
    "timings",
}


STEPS = ("read ids of", "fold", "apply")


def url_of(acker: client.Acker) -> str:
    found = acker.connection.client.connection_pool.connection_kwargs
    return f"redis://{found['host']}:{found['port']}"


@pytest.fixture
def one(spark: SparkSession, make_any_acker: MakeAcker) -> Acker:
    made = make_any_acker()
    return Acker(spark, made.namespace, app_id="ingest", url=url_of(made), timeout=60)


@pytest.fixture
def other(spark: SparkSession, make_any_acker: MakeAcker) -> Acker:
    made = make_any_acker(shards=2)
    return Acker(spark, made.namespace, app_id="bolts", url=url_of(made), timeout=60)


@pytest.fixture
def spark_(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    for query in spark.streams.active:
        query.stop()


def report(query_id: str, batch_id: int, **more: Any) -> Report:
    numbers = dict.fromkeys(
        ("messages", "trees", "tracked", "acked", "failed", "calls", "repeated", "bytes"), 0
    )
    plain = {**numbers, "waited_ms": 0, "ms": 0, "rejected": (), "rejected_blocks": ()}
    return Report(query_id=query_id, batch_id=batch_id, mode="driver", **{**plain, **more})


QUERY = uuid.uuid4()


def progress(batch_id: int, name: str | None = None, query_id: uuid.UUID = QUERY) -> Any:
    found = SimpleNamespace(
        id=query_id,
        name=name,
        batchId=batch_id,
        numInputRows=9,
        durationMs={"triggerExecution": 70, "addBatch": 60},
    )
    return SimpleNamespace(progress=found)


def test_report_is_that_of_the_last_run(one: Acker) -> None:
    for batch_id in range(150):
        one.shared.note(report("q", batch_id))
    one.shared.note(report("other", 120, acked=8))
    one.shared.note(report("q", 120, repeated=1))
    found = one.report("q", 120)
    assert found
    assert found.repeated == 1
    assert one.report("q", 3) is None, "100 are kept"
    assert one.report("unknown", 120) is None


def test_progress_is_joined_with_reports(
    one: Acker, other: Acker, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[dict[str, Any]] = []
    listener = AckerListener(one, other, on_progress=seen.append)
    one.shared.note(report(str(QUERY), 1, tracked=5, rejected=(3, 4), rejected_blocks=(9,)))
    other.shared.note(report("by-hand", 1, acked=2, changed=True))
    other.shared.note(
        report(
            str(QUERY), 2, messages=3, failed=1, repeated=4, bytes=16, ms=7, waited_ms=6,
            timings=Timings(5, 4, 3, 2),
        )
    )  # fmt: skip
    other.shared.note(report(str(QUERY), 4, failed=2, vanished=2))
    caplog.clear()
    with caplog.at_level(logging.INFO, "acker_redis.spark.listener"):
        listener.onQueryProgress(progress(1, name="by-hand"))
        listener.onQueryProgress(progress(2))
        listener.onQueryProgress(progress(3))
        listener.onQueryProgress(progress(1, query_id=uuid.uuid4()))
        listener.onQueryProgress(progress(4))
    first, second, third, fourth = seen
    assert all(set(each) == FIELDS for each in seen)
    assert (first["namespace"], first["app_id"], first["query"]) == (
        one.namespace,
        "ingest",
        "by-hand",
    )
    assert (first["tracked"], first["rejected"], first["rejected_blocks"]) == (5, 2, 1)
    assert (second["namespace"], second["acked"], second["changed"]) == (other.namespace, 2, True)
    assert (fourth["failed"], fourth["vanished"]) == (2, 2)
    assert (third["query"], third["input_rows"], third["trigger_ms"]) == (None, 3, 70)
    records = [r for r in caplog.records if r.name == "acker_redis.spark.listener"]
    assert [r.levelname for r in records] == ["WARNING", "WARNING", "INFO", "WARNING"]
    assert [json.loads(json.dumps(r.__dict__["acker"])) for r in records] == seen
    assert records[2].getMessage() == (
        f"{other.namespace}: {QUERY} batch 2: 3 rows in, 0 tracked, 0 acked, 1 failed, "
        "0 rejected, 4 calls repeated; 16 bytes in 7 ms by the driver (write 5, read ids 4, fold "
        "3, apply 2), waited 6 ms, trigger 70 ms"
    )
    assert "1 block rejected" in records[0].getMessage()
    assert "other content" in records[1].getMessage()
    assert "2 failed, 0 rejected, 2 vanished;" in records[3].getMessage()


def test_errors_of_the_listener_are_logged_and_not_raised(
    one: Acker, other: Acker, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def fail(found: dict[str, Any]) -> None:
        seen.append(found["namespace"])
        raise OSError("statsd is away")

    for acker in (one, other):
        acker.shared.note(report(str(QUERY), 1))
    listener = AckerListener(one, other, on_progress=fail)
    listener.onQueryProgress(progress(1))
    assert seen == [one.namespace, other.namespace], "the callback still gets the second report"
    assert caplog.text.count("OSError: statsd is away") == 2
    listener.onQueryProgress(SimpleNamespace(progress=None))  # type: ignore[arg-type]
    assert "could not be reported" in caplog.text


class Files:
    """A stream of JSON files, and queries that read it."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, path
        (path / "in").mkdir()
        for at, ids in enumerate((["a", "b"], ["c"])):
            rows = "".join(json.dumps({"source_id": each}) + "\n" for each in ids)
            file = path / "in" / f"{at}.json"
            file.write_text(rows)
            # Spark reads the oldest file first.
            os.utime(file, (1_700_000_000 + at,) * 2)

    def read(self) -> DataFrame:
        reader = self.spark.readStream.schema("source_id STRING").option("maxFilesPerTrigger", 1)
        return reader.json(str(self.path / "in"))

    def run(self, df: DataFrame, job: Any, name: str) -> StreamingQuery:
        writer = df.writeStream.foreachBatch(job).queryName(name)
        writer = writer.option("checkpointLocation", str(self.path / name))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query


def test_query_with_two_ackers_gives_two_lines_per_batch(
    spark_: SparkSession, one: Acker, other: Acker, tmp_path: Path
) -> None:
    """The query before it uses no acker, and gives no lines."""

    def both(df: DataFrame, batch_id: int) -> None:
        with one.batch(df, batch_id) as b:
            messages = b.track(source="t", source_id="source_id")
        other.ack(messages.select("anchor", "tuple"), batch_id)

    progressed: queue.Queue[dict[str, Any]] = queue.Queue()

    def note(found: dict[str, Any]) -> None:
        progressed.put(found)
        if found["batch_id"] == 0:
            raise OSError("the callback fails, and the query continues")

    files = Files(spark_, tmp_path)
    listener = AckerListener(one, other, on_progress=note)
    spark_.streams.addListener(listener)
    try:
        files.run(files.read(), lambda df, _: df.count(), "plain")
        observed = files.read().observe("in", F.max("source_id").alias("last"))
        query = files.run(observed, both, "two")
        found = [progressed.get(timeout=LIMIT) for _ in range(4)]
    finally:
        spark_.streams.removeListener(listener)
    assert progressed.empty()
    assert {each["query"] for each in found} == {"two"}
    assert {each["query_id"] for each in found} == {str(query.id)}
    assert [(each["batch_id"], each["app_id"]) for each in found] == [
        (0, "ingest"),
        (0, "bolts"),
        (1, "ingest"),
        (1, "bolts"),
    ]
    assert [each["tracked"] for each in found] == [2, 0, 1, 0]
    assert all(each["trigger_ms"] > 0 and each["bytes"] > 0 for each in found)
    assert query.exception() is None
    assert query.lastProgress is not None
    assert query.lastProgress.observedMetrics["in"]["last"] == "c"


def test_rows_in_count_each_row_once(spark_: SparkSession, one: Acker, tmp_path: Path) -> None:
    """Spark counts a row each time that the job reads it, and here the job reads it twice."""

    def job(df: DataFrame, batch_id: int) -> None:
        df.count()
        with one.batch(df, batch_id, freeze=False) as b:
            messages = b.track(source="t", source_id="source_id")
        messages.collect()

    found: queue.Queue[dict[str, Any]] = queue.Queue()
    listener = AckerListener(one, on_progress=found.put)
    spark_.streams.addListener(listener)
    files = Files(spark_, tmp_path)
    try:
        query = files.run(files.read(), job, "reads")
        assert [found.get(timeout=LIMIT)["input_rows"] for _ in range(2)] == [2, 1]
    finally:
        spark_.streams.removeListener(listener)
    assert [each.numInputRows for each in query.recentProgress] == [4, 2]


def test_spark_ui_describes_the_jobs(
    spark_: SparkSession, one: Acker, other: Acker, tmp_path: Path
) -> None:
    """The jobs of an acker, and the query's own jobs before and after them."""
    seen: list[set[str]] = []

    def described() -> set[str]:
        """Return the descriptions of the jobs since the last call."""
        context = spark_.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty()
        jobs = context.statusStore().jobsList(None)
        found = {}
        for at in range(jobs.size()):
            words = jobs.apply(at).description()
            found[jobs.apply(at).jobId()] = words.get() if words.isDefined() else ""
        new = {words for job, words in found.items() if job not in known}
        known.update(found)
        return new

    known: set[int] = set()
    described()

    def job(df: DataFrame, batch_id: int) -> None:
        with one.batch(df, batch_id) as b:
            df.count()
            seen.append(described())
            messages = b.track(source="t", source_id="source_id")
            seen.append(described())
        df.count()
        seen.append(described())
        with pytest.raises(InvalidBatchError, match="no tuple"):
            other.ack(
                messages.select("anchor", F.lit(None).cast("bigint").alias("tuple")), batch_id
            )
        other.ack(messages.select("anchor", "tuple"), batch_id)
        seen.append(described())
        messages.count()
        seen.append(described())

    change(other, mode="executors")
    files = Files(spark_, tmp_path)
    files.run(files.read(), job, "described")
    assert len(seen) == 10
    for batch_id in (0, 1):
        before, tracked, between, applied, after = seen[5 * batch_id : 5 * batch_id + 5]
        named = f"acker {one.namespace}: {{}} batch {batch_id}"
        assert tracked == {named.format("write rows of")}, "the driver reads ids by itself"
        words = {f"acker {other.namespace}: {step} batch {batch_id}" for step in STEPS}
        assert words <= applied
        [done] = [each for each in other.reports if each.batch_id == batch_id]
        assert min(done.timings) >= 0 < max(done.timings)
        assert before == between == after
        assert len(before) == 1
        [words] = before
        assert words.startswith("described")
        assert f"batch = {batch_id}" in words
