"""The blocks of a batch: both ways to count its records give the same."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.id_maker import IdMaker
from acker_redis.spark import FileQueue, functions, numbering, tracking
from acker_redis.spark.ids import Ids
from acker_redis.spark.numbering import ATTEMPT, NUMBER, PREFIX, Numbered, number
from tests.spark.conftest import MakeSparkAcker
from tests.spark.known_ids import SALT

Records = list[tuple[str, int | None, int]]


def counted(spark: SparkSession, records: Records, large: bool) -> Numbered:
    """Number records (prefix, number, attempt) as a large batch, or as a small one."""
    schema = f"{PREFIX} STRING, {NUMBER} BIGINT, {ATTEMPT} INT"
    df = spark.createDataFrame(records, schema)
    ids = Ids(spark, IdMaker(salt=SALT))
    return number(df, "anchor", "shop", ("lane", 7), ids, large=large)


def anchors(df: DataFrame) -> dict[tuple[str, int, int], int]:
    return {(r[PREFIX], r[NUMBER], r[ATTEMPT]): r["anchor"] for r in df.collect()}


def random_records(chance: random.Random) -> Records:
    """Return records of several numberings, some of which have gaps."""
    records = []
    for prefix in ("p", "q's", "\\")[: chance.randint(1, 3)]:
        start, size = chance.choice([0, 4080, 8190, 2**63 - 5000]), chance.randint(1, 4500)
        step = chance.choice([1, 1, 1, 3])
        size = min(size, (2**63 - start) // step)
        for attempt in range(chance.randint(1, 2)):
            records += [(prefix, start + step * n, attempt) for n in range(size)]
    chance.shuffle(records)
    return records


@pytest.mark.parametrize("seed", range(4))
def test_large_batch_has_the_blocks_of_a_small_one(spark: SparkSession, seed: int) -> None:
    records = random_records(random.Random(seed))
    large, small = counted(spark, records, large=True), counted(spark, records, large=False)
    assert sorted(large.blocks, key=str) == sorted(small.blocks, key=str)
    assert large.loose is small.loose
    assert anchors(large.trees) == anchors(small.trees)


def test_large_batch_counts_its_windows_only_if_it_has_gaps(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    grouped = numbering._grouped

    def noting(trees: DataFrame, *by: str) -> Any:
        keys.append(len(by))
        return grouped(trees, *by)

    monkeypatch.setattr(numbering, "_grouped", noting)
    counted(spark, [("p", n, 0) for n in range(4000, 4200)], large=True)
    assert keys == [2]
    counted(spark, [("p", n, 0) for n in range(4000, 4200, 2)], large=True)
    assert keys == [2, 2, 3]


def test_number_that_occurs_twice_and_hides_a_gap_gets_one_anchor(spark: SparkSession) -> None:
    """The fold then refuses the batch."""
    records: Records = [("p", n, 0) for n in [*range(20), 5, *range(21, 40)]]
    found = counted(spark, records, large=True)
    assert found.trees.groupBy("anchor").count().where("count > 1").count() == 1


@pytest.mark.parametrize("bad", [None, -1])
@pytest.mark.parametrize("large", [True, False])
def test_invalid_number_is_refused(spark: SparkSession, bad: int | None, large: bool) -> None:
    """Also if there are as many records as numbers from the least to the highest."""
    records: Records = [("p", n, 0) for n in range(20) if n != 7]
    with pytest.raises(InvalidBatchError, match="numbers must be 0 to"):
        counted(spark, [*records, ("p", bad, 0)], large)


ABOVE = 80 * 4095
"""In a window that is not the first of the array in which windows are looked up."""
HIGH = 2**62 // (64 * 4095) * (64 * 4095) + ABOVE


@pytest.mark.parametrize(
    ("first", "other"), [(1000, 995), (ABOVE, ABOVE - 60_000), (HIGH, HIGH - 60_000)]
)
@pytest.mark.parametrize("mode", ["driver", "executors"])
def test_number_that_is_lower_in_a_second_evaluation_is_refused(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, mode: str, first: int, other: int,
) -> None:  # fmt: skip
    """Its anchor would be in another block than those that were read, or that of a loose tree."""
    counted_once = tmp_path / "counted"

    def changing(n: int) -> int:
        return other if n == first + 200 and counted_once.exists() else n

    def noting(*args: Any, **more: Any) -> Numbered:
        found = number(*args, **more)
        counted_once.touch()
        return found

    monkeypatch.setattr(tracking, "number", noting)
    acker = make_spark_acker(mode=mode)
    row = F.udf(changing, "bigint").asNondeterministic()("id")
    df = spark.range(first, first + 300).select(row.alias("row"))
    with (
        pytest.raises((InvalidBatchError, PythonException), match="number of a record changed"),
        acker.batch(df, 0) as b,
    ):
        ids = functions.counted(F.lit("p"), number="row")
        b.track(source="t", source_id=ids, queue=FileQueue(tmp_path / "queue"))
    assert acker.client.status().counters["tracked"] == 0
