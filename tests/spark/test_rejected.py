"""Rejected trees of staged messages: their rows are in no queue, also after a crash at any step.

The rows are written before Redis decides. The judge is pyarrow over the published files.
"""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from acker_redis.spark import Acker, FileQueue, TrackWriter, counted, tracking
from acker_redis.spark.fold import lanes
from acker_redis.spark.streams.aside import Aside
from acker_redis.spark.tracking import Tracking
from tests.spark.conftest import MakeSparkAcker, outcomes

COUNT = 480


class KilledError(BaseException):
    """The driver was killed: nothing cleans up."""


@pytest.fixture
def acker(make_spark_acker: MakeSparkAcker, monkeypatch: pytest.MonkeyPatch) -> Acker:
    """Return an acker with room for a part of the records.

    Another source fills the table between the wait for room and the call.
    """
    monkeypatch.setattr(tracking, "wait_for_room", lambda *_: 0.0)
    return make_spark_acker({"shards": 2, "high_water": 120}, query_id="source")


def kill(patch: pytest.MonkeyPatch, place: Any, name: str, after: bool, calls: int = 0) -> None:
    """Kill the driver before or after a call, after so many calls of it."""
    real, left = getattr(place, name), [calls]

    def dies(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            return real(*args, **more)
        if after:
            real(*args, **more)
        raise KilledError

    patch.setattr(place, name, dies)
    patch.setattr(Aside, "delete", lambda aside: aside._lock.close())


STEPS: dict[str, tuple[Any, str, bool, int]] = {
    "staged": (Tracking, "_track", False, 0),
    "a shard applied, the other not": (lanes, "send", False, 1),
    "a reply lost": (lanes, "send", True, 0),
    "the last reply lost": (lanes, "send", True, 1),
    "applied": (Tracking, "_messages", False, 0),
    "written without the rejected rows": (Aside, "publish", False, 0),
    "renamed": (Aside, "publish", True, 0),
}


def write(spark: SparkSession, acker: Acker, queue: FileQueue, blocks: bool) -> int:
    """Track a batch as a driver does; return how often Spark computed a row of it."""
    computed = spark.sparkContext.accumulator(0)

    def noted(text: str) -> str:
        computed.add(1)
        return text

    rows = spark.range(COUNT).selectExpr("id", "concat('p', id div 20) AS p", "id % 20 AS n")
    named: Any = counted("p", number="n")
    if not blocks:
        name = F.udf(noted)(F.concat(F.lit("s"), "id"))
        rows, named = rows.withColumn("source_id", name), "source_id"
    TrackWriter(acker, "t", {"e": queue}, source_id=named, query_id="source")(rows, 0)
    return int(computed.value)


@pytest.mark.parametrize("blocks", [False, True], ids=["loose", "blocks"])
@pytest.mark.parametrize("step", ["", *STEPS])
def test_queue_has_exactly_the_rows_of_the_trees_that_were_not_rejected(
    spark: SparkSession, acker: Acker, make_spark_acker: MakeSparkAcker, tmp_path: Path,
    step: str, blocks: bool,
) -> None:  # fmt: skip
    queue = FileQueue(tmp_path)
    if step:
        place, name, after, calls = STEPS[step]
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
            kill(patch, place, name, after, calls)
            write(spark, acker, queue, blocks)
        assert any(tmp_path.glob("batch-*")) is (step == "renamed")
    again = make_spark_acker(client=acker.client)
    computed = write(spark, again, queue, blocks)
    assert computed == (0 if blocks else COUNT), "the rows are made of the committed files"
    report = again.reports[-1]
    assert report.rejected_blocks if blocks else report.rejected
    nacked = [name for verdict, _, name, _ in outcomes(acker.client) if verdict == "nack"]
    found = [
        row
        for file in tmp_path.glob("batch-*/*.parquet")
        for row in pq.read_table(file).to_pylist()
    ]
    names = [f"{row['p']}/{row['n']}" if blocks else row["source_id"] for row in found]
    assert len(names) + len(nacked) == COUNT
    every = {f"p{n // 20}/{n % 20}" if blocks else f"s{n}" for n in range(COUNT)}
    assert {*names, *nacked} == every
    again.ack(queue.read(spark, "anchor BIGINT, tuple BIGINT"), 0, query_id="last")
    assert sorted(outcomes(acker.client)) == sorted(
        ("ack", "completed", name, "") for name in names
    )
