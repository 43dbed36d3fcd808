"""The range of the numbers of a batch, from the footers of the files that Spark gives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import InvalidBatchError
from acker_redis.spark import Acker, FileQueue, counted, numbering
from tests.spark.test_staging import run

Plan = Callable[[DataFrame], DataFrame]
KNOWN: dict[str, Plan] = {
    "as it is": lambda df: df,
    "computed others": lambda df: df.select("row", (F.col("row") * 2).alias("twice")),
    "renamed": lambda df: df.withColumnRenamed("row", "r").withColumn("row", F.col("r")),
}
ASKED: dict[str, Plan] = {
    "computed": lambda df: df.withColumn("row", F.col("row") + 0),
    "fewer rows": lambda df: df.where("row < 4000"),
    "prefix of a column": lambda df: df.withColumn("shop", F.col("other").cast("string")),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """Return the rows of which a Spark job has read the numbers."""
    found: list[DataFrame] = []
    group = numbering._grouped

    def noted(trees: DataFrame, *keys: str) -> Any:
        found.append(trees)
        return group(trees, *keys)

    monkeypatch.setattr(numbering, "_grouped", noted)
    return found


def tracked(
    spark: SparkSession,
    acker: Acker,
    folder: Path,
    rows: DataFrame,
    plan: Plan,
    schema: str = "",
) -> list[int]:
    """Track rows of a file source; return the anchors by number."""
    rows.write.parquet(str(folder / "source"))
    stream = spark.readStream.schema(schema or rows.schema).parquet(str(folder / "source"))
    queue = FileQueue(folder / "queue")

    def job(df: DataFrame, batch_id: int) -> None:
        df = plan(df)
        prefix = "shop" if "shop" in df.columns else F.lit("t")
        with acker.batch(df, batch_id) as b:
            messages = b.track(source="t", source_id=counted(prefix, number="row"), queue=queue)
        b.hand_on(messages, queue)

    run(stream, folder / "checkpoint", job)
    found = queue.read(spark, "row BIGINT, anchor BIGINT").orderBy("row").collect()
    assert acker.client.status().counters["tracked"] == len(found)
    return [each["anchor"] for each in found]


@pytest.mark.parametrize("plan", [*KNOWN, *ASKED])
def test_a_job_reads_the_numbers_unless_the_files_tell_their_range(
    spark: SparkSession, by_driver: Acker, tmp_path: Path, asked: list[DataFrame], plan: str
) -> None:
    rows = spark.range(100, 9000, 1, 3).selectExpr("id AS row", "id % 2 AS other")
    anchors = tracked(spark, by_driver, tmp_path, rows, {**KNOWN, **ASKED}[plan])
    assert bool(asked) is (plan in ASKED)
    assert len(set(anchors)) == len(anchors) == (3900 if plan == "fewer rows" else 8900)


def test_column_inside_of_a_struct_may_have_the_same_name(
    spark: SparkSession, by_driver: Acker, tmp_path: Path, asked: list[DataFrame]
) -> None:
    rows = spark.range(100, 900).selectExpr("struct(900000 + id AS row) AS s", "id AS row")
    assert len(set(tracked(spark, by_driver, tmp_path, rows, KNOWN["as it is"]))) == 800
    assert not asked


def test_numbers_that_the_files_hold_as_decimals_are_read_by_a_job(
    spark: SparkSession, by_driver: Acker, tmp_path: Path, asked: list[DataFrame]
) -> None:
    rows = spark.range(100, 900).selectExpr("cast(id AS DECIMAL(15, 0)) AS row")
    plan = KNOWN["as it is"]
    assert len(set(tracked(spark, by_driver, tmp_path, rows, plan, "row BIGINT"))) == 800
    assert asked


def test_both_ways_give_the_same_anchors(
    spark: SparkSession, by_driver: Acker, tmp_path: Path
) -> None:
    rows = spark.range(100, 9000, 1, 3).selectExpr("id AS row")
    first = tracked(spark, by_driver, tmp_path / "1", rows, KNOWN["as it is"])
    by_driver.client.connection.client.flushall()
    by_driver.client.create(by_driver.client.config)
    second = tracked(spark, by_driver, tmp_path / "2", rows, ASKED["computed"])
    assert [each & 0xFFF for each in first] == [each & 0xFFF for each in second]


@pytest.mark.parametrize("gap", ["hole", "twice", "null"])
def test_numbers_with_gaps_or_nulls_are_read_by_a_job(
    spark: SparkSession, by_driver: Acker, tmp_path: Path, asked: list[DataFrame], gap: str
) -> None:
    row = {
        "hole": "if(id = 50, 5000, id)",
        "twice": "if(id = 50, 51, id)",
        "null": "if(id = 50, NULL, id)",
    }[gap]
    rows = spark.range(0, 100, 1, 2).selectExpr(f"{row} AS row")
    if gap == "hole":
        assert len(set(tracked(spark, by_driver, tmp_path, rows, KNOWN["as it is"]))) == 100
    else:
        with pytest.raises(Exception, match=InvalidBatchError.__name__):
            tracked(spark, by_driver, tmp_path, rows, KNOWN["as it is"])
        assert by_driver.client.status().counters["tracked"] == 0
    assert asked or gap == "twice"
