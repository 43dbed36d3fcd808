"""A query that replays nacks is killed at each step; its successors continue."""

import contextlib
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from acker_redis import Backoff, Batch
from acker_redis.spark import ReplayWriter, TrackWriter
from acker_redis.sync.client import Acker as Client
from tests.spark.faults.conftest import MakeCase
from tests.spark.faults.stage import Stage
from tests.spark.faults.streams import checkpoint
from tests.spark.faults.work import TASK, Case

RECORDS = 30
LOST = "r6"
"""A record that is not found any more."""
Kill = tuple[str, int]
KILLS: dict[str, list[Kill]] = {
    # (where, at which call) each driver is killed. A batch writes its nacks, its records, its
    # messages and its dead letters; a batch that runs again does not write its records.
    "few": [("sent", 1)],
    "many": [
        ("write", 1),
        ("written", 1),
        ("planned", 1),
        ("write", 2),
        ("written", 2),
        ("send", 1),
        ("sent", 1),
        ("write", 2),
        ("written", 2),
        ("write", 3),
        ("written", 3),
        ("forget", 1),
    ],
}


def records(spark: SparkSession) -> DataFrame:
    return spark.range(RECORDS).selectExpr("concat('r', id) AS source_id", "id AS i")


def track(spark: SparkSession, case: Case) -> None:
    writer = TrackWriter(case.acker(spark), TASK, {"out": case.queue("queue")}, query_id="source")
    writer(records(spark), 0)


def replay(spark: SparkSession, case: Case) -> None:
    """Run the query on the verdicts that wait."""
    writer = ReplayWriter(
        case.acker(spark),
        TASK,
        {"out": case.queue("queue")},
        lookup=lambda _: records(spark).where(f"source_id <> '{LOST}'"),
        dead_letters=case.queue("dead"),
        folder=case.folder / "state",
        backoff=Backoff(0, 0),
    )
    stream = writer.read_stream(spark).writeStream.foreachBatch(writer)
    stream = stream.option("checkpointLocation", str(checkpoint(case, "replay")))
    query = stream.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def bolt(case: Case, client: Client, first: bool) -> None:
    """Process all messages; fail each third record the first time."""
    batch = Batch()
    for file in (case.folder / "queue").glob("batch-*source*/*.parquet" if first else "batch-*/*"):
        for each in pq.read_table(file).to_pylist() if file.suffix == ".parquet" else ():
            if first and each["i"] % 3 == 0:
                batch.fail(each["anchor"], "no", each["tuple"])
            elif first or "source" not in file.parent.name:
                batch.ack(each["anchor"], each["tuple"])
    client.apply(batch)


@pytest.mark.parametrize("kills", ["few", pytest.param("many", marks=pytest.mark.nightly)])
def test_killed_replays_give_each_attempt_once(
    tmp_path: Path, make_case: MakeCase, kills: str
) -> None:
    case, client = make_case(1, "loose")
    left, killed = list(KILLS[kills]), []
    tracked, runs = False, 0
    while runs < 2:
        # The second run finds nothing to do, and forgets what the first has done.
        with Stage(tmp_path / "stage") as stage:
            if not tracked:
                stage.run(track, case)
                bolt(case, client, first=True)
                tracked = True
            fault = stage.plan(*left[0], "kill-driver") if left else None
            with contextlib.suppress(EOFError):
                stage.run(replay, case)
                runs += 1
                if fault:
                    fault.lift()
                continue
            assert fault
            assert fault.happened
            fault.lift()
            killed.append(left.pop(0))
    assert killed == KILLS[kills]
    bolt(case, client, first=False)
    files = (case.folder / "queue").glob("batch-*/*.parquet")
    sent = Counter(r["source_id"] for file in files for r in pq.read_table(file).to_pylist())
    again = {f"r{i}" for i in range(0, RECORDS, 3)} - {LOST}
    assert sent == {f"r{i}": 2 if f"r{i}" in again else 1 for i in range(RECORDS)}
    files = (case.folder / "dead").glob("batch-*/*.parquet")
    dead = [r for file in files for r in pq.read_table(file).to_pylist()]
    assert [(r["source_id"], r["gave_up"], r["why"]) for r in dead] == [(LOST, "no record", "no")]
    assert list((case.folder / "state").glob("*/*/*/*.parquet")) == []
    counters = client.status().counters
    assert (counters["tracked"], counters["acked"]) == (39, 29)
    assert (counters["failed"], counters["conflict"]) == (10, 0)
