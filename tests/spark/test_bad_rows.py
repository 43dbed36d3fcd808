"""Rows that cannot be tracked go to a separate queue, and the others go on."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import ConfigError, InvalidBatchError
from acker_redis.spark import Acker, FileQueue, TrackWriter, counted
from tests.spark.conftest import MakeSparkAcker


class Kept:
    """A queue in memory, for rows that a file cannot hold."""

    def __init__(self) -> None:
        self.rows: list[DataFrame] = []

    def write(self, df: DataFrame, name: str, batch_id: int) -> None:
        self.rows.append(df)

    replace = write


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


@pytest.mark.parametrize(
    ("sql", "more", "good", "bad"),
    [
        (
            "SELECT id AS sid, 1 AS `x.y`, 2 AS z, 3 AS z FROM VALUES ('a'), (NULL) AS t(id)",
            {},
            1,
            1,
        ),
        ("SELECT cast(id AS STRING) AS sid FROM VALUES (X'61FF'), (X'EFBFBD') AS t(id)", {}, 1, 1),
        ("SELECT * FROM VALUES ('a', 0), ('a', 1), ('b', 0) AS t(sid, n)", {"attempt": "n"}, 3, 0),
        ("SELECT 'a' AS sid, d FROM VALUES (0.0D), (-0.0D) AS t(d)", {"key": "d"}, 1, 0),
        (
            "SELECT 'a' AS sid, struct(x, y) AS s FROM VALUES ('p', 'q, r'), ('p, q', 'r') t(x, y)",
            {"key": "s"},
            0,
            2,
        ),
    ],
    ids=["names of columns", "not UTF-8", "attempts", "keys of distinct text", "keys of one text"],
)
def test_what_track_refuses_is_bad_and_nothing_else(
    spark: SparkSession,
    by_driver: Acker,
    sql: str,
    more: dict[str, str],
    good: int,
    bad: int,
) -> None:
    rows, queue = spark.sql(sql), Kept()
    with by_driver.batch(rows, 0) as b:
        messages = b.track(source="t", source_id="sid", bad_rows=queue, **more)
    assert b.report
    assert (b.report.tracked, b.report.bad) == (good, bad)
    assert set(rows.columns) < set(messages.columns)
    assert all(df.columns == [*rows.columns, "why"] for df in queue.rows)


def test_ledger_has_one_attempt_of_a_source_id_in_a_batch(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path
) -> None:
    acker = make_spark_acker(ledger=str(tmp_path / "ledger"))
    rows = spark.sql("SELECT * FROM VALUES ('a', 0), ('a', 1), ('b', 0) AS t(sid, n)")
    with acker.batch(rows, 0) as b:
        b.track(source="t", source_id="sid", attempt="n", bad_rows=FileQueue(tmp_path / "bad"))
    assert b.report
    assert (b.report.tracked, b.report.bad) == (1, 2)


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
