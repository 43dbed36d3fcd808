"""Batches of Kafka's source: their blocks from ranges of offsets, and their rows evaluated once.

The plan of a frame shows no Kafka, so these tests say what a plan would.
``tests/spark/versions/test_kafka.py`` has a broker.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.spark import Acker, FileQueue, anchors_of, kafka_source_id, numbering, tracking
from acker_redis.spark.numbering import Group
from tests.spark.conftest import MakeSparkAcker

RANGES = {0: (0, 5000), 1: (4090, 4200), 2: (70, 73), 3: (8190, 8250)}
"""Offsets of each partition: two windows, five records in a window, three records, and a border."""


@pytest.fixture
def acker(make_spark_acker: MakeSparkAcker, tmp_path: Path) -> Acker:
    return make_spark_acker({"high_water": 50_000}, staging=str(tmp_path / "staging"), mode="auto")


def records(spark: SparkSession, without: int = -1) -> DataFrame:
    """Return a record for each offset but one."""
    each = [spark.range(*ends).withColumn("partition", F.lit(n)) for n, ends in RANGES.items()]
    found = each[0].union(each[1]).union(each[2]).union(each[3])
    found = found.select(F.lit("orders").alias("topic"), "partition", F.col("id").alias("offset"))
    return found.where(f"partition > 0 OR offset <> {without}")


def groups(*_: object) -> list[Group]:
    """Return what the plan of a query says of these ranges."""
    return [(f"orders/{n}", 0, low, end - 1, end - low) for n, (low, end) in RANGES.items()]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """Return the rows of which a Spark job has read the numbers."""
    found: list[DataFrame] = []
    group = numbering._grouped
    monkeypatch.setattr(numbering, "_grouped", lambda df, *k: found.append(df) or group(df, *k))
    return found


def ids(
    acker: Acker, df: DataFrame, batch_id: int = 0, queue: FileQueue | None = None, **more: bool
) -> list[tuple[int, int, int, int]]:
    """Track a batch; return partition, offset and ids of each message."""
    with acker.batch(df, batch_id, **more) as b:
        messages = b.track(source="t", source_id=kafka_source_id(), edges="e", queue=queue)
    rows = messages.select("partition", "offset", "anchor", "tuple").collect()
    return sorted(tuple(row) for row in rows)


WAYS: dict[str, Callable[[Path], dict[str, object]]] = {
    "files": lambda _: {},
    "cache": lambda _: {"freeze": False},
    "queue": lambda folder: {"queue": FileQueue(folder / "queue")},
}


@pytest.mark.parametrize("way", WAYS)
def test_offsets_give_the_ids_that_a_job_gives(
    spark: SparkSession,
    acker: Acker,
    asked: list[DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    df = records(spark)
    by_job = ids(acker, df)
    assert len(asked) == 1
    monkeypatch.setattr(tracking, "offset_groups", groups)
    # As in a batch that runs again: other ids would raise ChangedBatchError.
    assert ids(acker, df, **WAYS[way](tmp_path)) == by_job  # type: ignore[arg-type]
    assert len(asked) == 1
    report = acker.reports[-1]
    assert (report.mode, report.messages, report.repeated > 0) == ("driver", len(by_job), True)


@pytest.mark.parametrize("way", WAYS)
def test_offset_without_a_record_gives_no_tree(
    spark: SparkSession,
    acker: Acker,
    asked: list[DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    monkeypatch.setattr(tracking, "offset_groups", groups)
    df = records(spark, without=17)
    given = WAYS[way](tmp_path)
    found = ids(acker, df, **given)  # type: ignore[arg-type]
    assert acker.client.status().counters["tracked"] == len(found) == df.count()
    assert len(asked) == 1
    monkeypatch.setattr(tracking, "offset_groups", lambda *_: pytest.fail("asked again"))
    ids(acker, records(spark), 1, **given)  # type: ignore[arg-type]


def jobs(spark: SparkSession, group: str, run: Callable[[], object]) -> int:
    """Return how many Spark jobs a call runs."""
    spark.sparkContext.setJobGroup(group, group)
    run()
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


@pytest.mark.parametrize("freeze", [True, False])
def test_one_job_tracks_a_batch_of_offsets(
    spark: SparkSession, acker: Acker, monkeypatch: pytest.MonkeyPatch, freeze: bool
) -> None:
    monkeypatch.setattr(tracking, "offset_groups", groups)
    df = records(spark)

    def track() -> None:
        with acker.batch(df, 0, freeze=freeze) as b:
            b.track(source="t", source_id=kafka_source_id(), edges="e")

    assert jobs(spark, f"track {freeze}", track) == 1


def counting(spark: SparkSession, df: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """Return the rows, and what returns how often Spark has evaluated one."""
    seen = spark.sparkContext.accumulator(0)

    @F.udf(returnType="bigint")
    def see(value: int) -> int:
        seen.add(1)
        return value

    return df.withColumn("seen", see("offset")), lambda: seen.value


@pytest.mark.parametrize("freeze", [True, False])
def test_rows_are_evaluated_once(
    spark: SparkSession, acker: Acker, monkeypatch: pytest.MonkeyPatch, freeze: bool
) -> None:
    """Also without freeze: the rows are cached until the next batch begins."""
    monkeypatch.setattr(tracking, "offset_groups", groups)
    df, seen = counting(spark, records(spark))
    with acker.batch(df, 0, freeze=freeze) as b:
        messages = b.track(source="t", source_id=kafka_source_id(), edges="e")
    assert messages.count() == messages.where("seen = offset").count() == seen()
    ids(acker, records(spark), 1, freeze=freeze)
    if not freeze:
        assert messages.where("seen = offset").count() < seen()


def test_messages_of_many_trees_are_kept_once_and_mentioned_by_the_plan(
    spark: SparkSession, acker: Acker, tmp_path: Path
) -> None:
    found = ids(acker, records(spark))
    messages = spark.createDataFrame(found, "p INT, o BIGINT, anchor BIGINT, tuple BIGINT")
    given = messages.select("p", anchors_of(("anchor", "tuple")).alias("anchors"))
    with acker.batch(given, 0, query_id="bolt") as b:
        out = b.emit(b.df, edge="e")
    assert b.report
    assert b.report.mentioned == 0
    assert len({*(tmp_path / "staging").glob("*@bolt/*/*")}) == 1
    assert out.count() == len(found)
    acker.ack(out, 0, query_id="last")
    assert acker.client.status().counters["acked"] == len(found)
