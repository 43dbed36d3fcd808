"""What runs on Delta itself. The first argument is a session; see ``Stage``."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from acker_redis.errors import AckerError
from acker_redis.spark import DeltaQueue

QUERY = "app@q"


def rows(spark: SparkSession, *numbers: int) -> DataFrame:
    return spark.createDataFrame([(n,) for n in numbers], "n INT")


def table(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    """Return the rows with their marks, without the help of the queue."""
    return sorted(map(tuple, spark.read.format("delta").load(str(path)).collect()))


def calls(spark: SparkSession, path: Path) -> list[list[tuple[Any, ...]]]:
    """Write and replace batches; return what the table has after each call."""
    queue, found = DeltaQueue(str(path)), []
    for call, batch_id, numbers in (
        (queue.write, 0, [1, 2]),
        (queue.write, 0, [3]),
        (queue.replace, 1, [4]),
        (queue.replace, 1, [5, 6]),
        (queue.write, 1, [7]),
        (queue.write, 2, []),
        (queue.replace, 1, []),
    ):
        call(rows(spark, *numbers), QUERY, batch_id)
        found.append(table(spark, path))
    return found


def stream(spark: SparkSession, path: Path, checkpoint: Path) -> list[list[int]]:
    """Return the numbers that a query reads after each of some writes of the table."""
    queue, found = DeltaQueue(str(path)), list[list[int]]()
    queue.replace(rows(spark, 1), QUERY, 0)

    def read(df: DataFrame, batch_id: int) -> None:
        found[-1] += sorted(row["n"] for row in df.collect())

    for call, batch_id, number in ((queue.write, 1, 2), (queue.replace, 1, 3), (queue.write, 2, 4)):
        call(rows(spark, number), QUERY, batch_id)
        found.append([])
        writer = queue.read_stream(spark).writeStream.foreachBatch(read)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()
    return found


def removed(spark: SparkSession, path: Path, statement: str) -> dict[str, Any]:
    """Append a batch, remove its rows by a statement, and append it again, as its error says."""
    queue, name = DeltaQueue(str(path)), f"delta.`{path}`"
    queue.write(rows(spark, 1), QUERY, 0)
    queue.write(rows(spark, 2), QUERY, 1)
    spark.sql(statement.format(name))
    found: dict[str, Any] = {"error": _error(queue, rows(spark, 2)), "table": table(spark, path)}
    queue.write(rows(spark), QUERY, 1)  # nothing is missing
    prop = "'delta.setTransactionRetentionDuration'"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({prop} = 'interval 0 seconds')")
    queue.write(rows(spark, 2), QUERY, 1)
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ({prop})")
    found["again"] = table(spark, path)
    return found


def session(spark: SparkSession, path: Path) -> list[str]:
    """Write in a session with its own ``txnAppId``, by which Delta skips writes."""
    spark.conf.set("spark.databricks.delta.write.txnAppId", "mine")
    spark.conf.set("spark.databricks.delta.write.txnVersion", "5")
    queue = DeltaQueue(str(path))
    try:
        return [_error(queue, rows(spark, 1), call) for call in ("write", "replace")]
    finally:
        spark.conf.unset("spark.databricks.delta.write.txnAppId")
        spark.conf.unset("spark.databricks.delta.write.txnVersion")


def _error(queue: DeltaQueue, df: DataFrame, call: str = "write") -> str:
    try:
        getattr(queue, call)(df, QUERY, 1)
    except AckerError as error:
        return f"{type(error).__name__}: {error}"
    return ""
