"""Spark compiles the plans of the first batches, and none of a later one like them.

Numbers are written into the code that Spark compiles. A plan with a number that each batch changes,
such as the base of a block, would be compiled at each batch, which takes longer than a small batch.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.spark import Acker, FileQueue, MicroBatch, counted
from tests.spark.conftest import MakeSparkAcker
from tests.spark.test_staging import run

ROWS, BATCHES = 40, 6
READ = "row BIGINT, name STRING, items ARRAY<INT>, anchor BIGINT, tuple BIGINT"
Block = Callable[[MicroBatch, FileQueue], DataFrame | None]


def track(b: MicroBatch, queue: FileQueue, *edges: str) -> DataFrame:
    numbers = counted(F.lit("t"), number="row")
    return b.track(source="t", source_id=numbers, edges=edges or ("out",), queue=queue)


FIRST: dict[str, Block] = {
    "numbers": track,
    "texts": lambda b, q: b.track(source="t", source_id="name", queue=q),
    "two edges": lambda b, q: track(b, q, "a", "b"),
}
LATER: dict[str, Block] = {
    "emit": lambda b, q: b.emit(b.df, edge="e", queue=q),
    "split": lambda b, q: b.emit(b.split(b.df, "items"), edge="e", queue=q),
    "write": lambda b, q: b.write(b.df, q, ack=True),
    "ack": lambda b, q: b.ack(),
}


@pytest.fixture
def compiling(spark: SparkSession) -> Iterator[None]:
    """Let Spark compile, as it does outside of these tests."""
    settings = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.usefixtures("compiling")
@pytest.mark.parametrize("name", [*FIRST, *LATER])
def test_later_batches_compile_no_code(
    spark: SparkSession, make_spark_acker: MakeSparkAcker, tmp_path: Path, name: str
) -> None:
    made = spark.range(ROWS * BATCHES).selectExpr(
        "id + 1000 AS row", "concat('t', id) AS name", "array(1, 2) AS items"
    )
    made.repartitionByRange(BATCHES, "row").write.parquet(str(tmp_path / "source"))
    acker, tracked = make_spark_acker(), FileQueue(tmp_path / "tracked")
    source = spark.readStream.schema(made.schema).option("maxFilesPerTrigger", 1)
    rows = source.parquet(str(tmp_path / "source"))
    if name in FIRST:
        assert compiled(spark, acker, rows, FIRST[name], tracked) == 0
        return
    compiled(spark, acker, rows, FIRST["numbers"], tracked)
    rows = tracked.read_stream(spark, READ, maxFilesPerTrigger="1")
    assert compiled(spark, acker, rows, LATER[name], FileQueue(tmp_path / "out")) == 0


def compiled(
    spark: SparkSession, acker: Acker, rows: DataFrame, block: Block, queue: FileQueue
) -> int:
    """Run a query; return how often Spark compiled code in the second half of its batches."""
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    counter, counts = metrics.METRIC_COMPILATION_TIME(), list[int]()

    def job(df: DataFrame, batch_id: int) -> None:
        before = counter.getCount()
        with acker.batch(df, batch_id, query_id=queue.path.name) as b:
            messages = block(b, queue)
        if messages is not None:
            b.hand_on(messages, queue)
        counts.append(counter.getCount() - before)

    run(rows, queue.path.with_name(f"{queue.path.name}-checkpoint"), job)
    assert len(counts) == BATCHES
    assert counter.getCount() > 0
    return sum(counts[BATCHES // 2 :])
