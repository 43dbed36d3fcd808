"""Rows that cannot be tracked go to a separate queue, and the others go on."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ConfigError, InvalidBatchError
from acker_redis.spark import Acker, FileQueue, TrackWriter, counted
from tests.spark.conftest import MakeSparkAcker

LONG = "x" * 256
TEXTS = {
    None: "the source id is null",
    "": "a source id has 1 to 255 bytes, this one 0",
    LONG: "a source id has 1 to 255 bytes, this one 256",
    "a\tb": "the source id has control characters",
    "twice": "the source id occurs 2 times in this batch",
}
GOOD = ["o-1", "o-2", "ä" * 127]


@pytest.fixture(params=["loose", "ledger", "executors"])
def acker(
    request: pytest.FixtureRequest, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> Acker:
    more: dict[str, Any] = {"ledger": str(tmp_path / "ledger")} if request.param == "ledger" else {}
    return make_spark_acker(mode="executors" if request.param == "executors" else "driver", **more)


def orders(spark: SparkSession) -> DataFrame:
    ids = [*GOOD, *TEXTS, "twice"]
    return spark.createDataFrame(list(zip(ids, range(len(ids)), strict=True)), "sid STRING, n INT")


@pytest.mark.parametrize("queued", [True, False])
def test_rows_with_bad_source_ids_go_to_their_queue(
    spark: SparkSession, acker: Acker, tmp_path: Path, queued: bool
) -> None:
    out, bad = FileQueue(tmp_path / "out"), FileQueue(tmp_path / "bad")
    for _ in range(2):  # the second run repeats the first one
        with acker.batch(orders(spark), 0) as b:
            messages = b.track(
                source="t", source_id="sid", bad_rows=bad, queue=out if queued else None
            )
        b.hand_on(messages, out)
        assert b.report
        assert b.report.bad == 6
    found = bad.read(spark, "sid STRING, n INT, why STRING").collect()
    assert {row["sid"]: row["why"] for row in found} == TEXTS
    assert len(found) == 6
    sent = out.read(spark, "sid STRING, n INT, anchor BIGINT").collect()
    assert sorted(row["sid"] for row in sent) == sorted(GOOD)
    assert acker.client.status().counters["tracked"] == 3


def test_bad_numbers_go_to_their_queue(
    spark: SparkSession, by_driver: Acker, tmp_path: Path
) -> None:
    bad = FileQueue(tmp_path)
    rows = spark.createDataFrame([(n,) for n in [None, -3, 7, 7, *range(20, 60)]], "n BIGINT")
    with by_driver.batch(rows, 0) as b:
        b.track(source="t", source_id=counted(F.lit("p"), number="n"), bad_rows=bad)
    found = {row["n"]: row["why"] for row in bad.read(spark, "n BIGINT, why STRING").collect()}
    assert found == {
        None: "the source id is null",
        -3: "the number is below 0",
        7: "the source id occurs 2 times in this batch",
    }
    assert by_driver.client.status().counters["tracked"] == 40


def test_all_rows_of_a_source_id_are_bad_if_one_occurs_twice(
    spark: SparkSession, by_driver: Acker, tmp_path: Path
) -> None:
    """A tree of the other lines would be complete without the line that is not tracked."""
    bad = FileQueue(tmp_path)
    lines = [("a", 1), ("a", 2), ("a", 2), ("b", 1), ("b", 2)]
    with by_driver.batch(spark.createDataFrame(lines, "sid STRING, line INT"), 0) as b:
        messages = b.track(source="t", source_id="sid", key="line", bad_rows=bad)
    assert {row["sid"] for row in messages.collect()} == {"b"}
    assert bad.read(spark, "sid STRING, why STRING").count() == 3
    assert by_driver.client.status().counters["tracked"] == 1


def test_batch_without_bad_rows_writes_none(
    spark: SparkSession, by_driver: Acker, tmp_path: Path
) -> None:
    bad = FileQueue(tmp_path / "bad")
    writer = TrackWriter(
        by_driver, "t", {"e": FileQueue(tmp_path / "out")}, source_id="sid", bad_rows=bad
    )
    writer(orders(spark).where("n < 3"), 0)
    assert writer.last_report
    assert (writer.last_report.tracked, writer.last_report.bad) == (3, 0)
    assert not list(bad.path.glob("batch-*"))


def test_bad_rows_need_a_separate_queue(
    spark: SparkSession, by_driver: Acker, tmp_path: Path
) -> None:
    queue = FileQueue(tmp_path)
    with pytest.raises(ConfigError, match="share one queue"):
        TrackWriter(by_driver, "t", {"e": queue}, bad_rows=queue)
    with (
        pytest.raises(InvalidBatchError, match="column why exists already"),
        by_driver.batch(orders(spark).withColumn("why", F.lit("")), 0) as b,
    ):
        b.track(source="t", source_id="sid", bad_rows=queue)


@pytest.mark.parametrize("bad", TEXTS)
def test_error_of_a_bad_row_names_the_option(
    spark: SparkSession, by_driver: Acker, bad: str | None
) -> None:
    some = orders(spark).where(F.col("sid").eqNullSafe(F.lit(bad)))
    with (
        pytest.raises(InvalidBatchError, match="bad_rows= of track"),
        by_driver.batch(some, 0) as b,
    ):
        b.track(source="t", source_id="sid")
