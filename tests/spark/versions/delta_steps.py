"""What runs on Delta itself. The first argument is a session; see ``Stage``."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acker_redis.errors import AckerError
from acker_redis.spark import DeltaQueue

QUERY = "app@q"


def rows(spark: SparkSession, *numbers: int) -> DataFrame:
    return spark.createDataFrame([(n,) for n in numbers], "n INT")


def table(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    """Return the rows with their marks, without the help of the queue."""
    read = spark.read.format("delta").load(str(path)).select("n", "_query", "_batch")
    return sorted(map(tuple, read.collect()))


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
        (queue.write, 2, [7]),
        (queue.replace, 1, []),
        (queue.write, 1, [7]),
        (queue.replace, 1, [8]),
        (queue.replace, 3, []),
        (queue.replace, 3, [9]),
    ):
        call(rows(spark, *numbers), QUERY, batch_id)
        found.append(table(spark, path))
    return found


def drain(spark: SparkSession, path: Path, checkpoint: Path) -> list[int]:
    """Return the numbers that a query has not read yet."""
    found = list[int]()

    def read(df: DataFrame, batch_id: int) -> None:
        found.extend(row["n"] for row in df.collect())

    writer = DeltaQueue(str(path)).read_stream(spark).writeStream.foreachBatch(read)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    started = writer.start()
    try:
        started.awaitTermination()
    finally:
        started.stop()
    return sorted(found)


def stream(spark: SparkSession, path: Path, checkpoint: Path) -> list[list[int]]:
    """Return the numbers that a query reads, before and after each of some writes of the table."""
    queue = DeltaQueue(str(path))
    for _ in range(2):
        queue.create(spark, "n INT")
    found = [drain(spark, path, checkpoint)]
    queue.replace(rows(spark, 1), QUERY, 0)
    for call, batch_id, number in ((queue.write, 1, 2), (queue.replace, 1, 3), (queue.write, 2, 4)):
        call(rows(spark, number), QUERY, batch_id)
        found.append(drain(spark, path, checkpoint))
    return found


def maintained(spark: SparkSession, path: Path, checkpoint: Path) -> dict[str, Any]:
    """Return the numbers that a query reads after each statement, and the error after VACUUM."""
    queue, name, found = DeltaQueue(str(path)), f"delta.`{path}`", dict[str, Any]()
    for batch_id in range(3):
        queue.replace(rows(spark, batch_id), QUERY, batch_id)
    found["first"] = drain(spark, path, checkpoint)
    merge = f"MERGE INTO {name} t USING (SELECT {{}} AS n) s ON t.n = s.n"
    insert = "WHEN NOT MATCHED THEN INSERT (_query, _batch, n) VALUES ('by hand', 0, s.n)"
    for each, statement in {
        "optimize": f"OPTIMIZE {name}",
        "update": f"UPDATE {name} SET n = 10 WHERE n = 0",
        "delete": f"DELETE FROM {name} WHERE n = 10",
        "merge": f"{merge.format(20)} {insert}",
        "merge that updates, too": f"{merge.format('EXPLODE(ARRAY(1, 21))')} "
        f"WHEN MATCHED THEN UPDATE SET n = 11 {insert}",
        "restore": f"RESTORE TABLE {name} TO VERSION AS OF 1",
        "restore back": f"RESTORE TABLE {name} TO VERSION AS OF 2",
    }.items():
        spark.sql(statement)
        found[each] = drain(spark, path, checkpoint)
    queue.replace(rows(spark, 3), QUERY, 3)
    spark.sql(f"DELETE FROM {name} WHERE n = 3")
    found["deleted unread"] = drain(spark, path, checkpoint)
    queue.replace(rows(spark, 4), QUERY, 4)
    spark.sql(f"OPTIMIZE {name}")
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(check, "false")
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    spark.sql(f"VACUUM {name} RETAIN 0 HOURS")
    spark.conf.unset(check)
    try:
        found["vacuum unread"] = drain(spark, path, checkpoint)
    except Exception as error:
        found["vacuum unread"] = str(error)
    found["new checkpoint"] = drain(spark, path, checkpoint.with_name("new"))
    return found


def together(spark: SparkSession, path: Path) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Let two queries replace batches beside OPTIMIZE; return errors, and what the table has."""
    errors = list[str]()

    def replace(query_id: str, number: int) -> None:
        for batch_id in (0, 1, 0, 1):
            try:
                DeltaQueue(str(path)).replace(rows(spark, number), query_id, batch_id)
            except Exception as error:
                errors.append(str(error))
            number += 1

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(replace, "app@a", 0), pool.submit(replace, "app@b", 10)]
        while not all(each.done() for each in writers):
            try:
                spark.sql(f"OPTIMIZE delta.`{path}`")
            except Exception as error:
                # It starts before the table is there, and it gives way to a writer.
                print("optimize", str(error)[:80])
    for each in writers:
        each.result()
    return errors, table(spark, path)


class Overtaken(DeltaQueue):
    """The queue of a driver, which a second driver overtakes between its look and its append."""

    def _append(self, df: DataFrame, query_id: str, batch_id: int) -> bool:
        DeltaQueue(self.path).replace(rows(df.sparkSession, 2), query_id, batch_id)
        return super()._append(df, query_id, batch_id)


def overtaken(spark: SparkSession, path: Path) -> dict[str, Any]:
    """Return what both calls do, and the rows of the table."""
    queue = Overtaken(str(path))
    found: dict[str, Any] = {"replace": _error(queue, rows(spark, 1), "replace")}
    queue.write(rows(spark, 1), QUERY, 2)
    return found | {"table": table(spark, path)}


def columns(spark: SparkSession, path: Path) -> dict[str, Any]:
    """Write rows with other columns than the table has."""
    queue = DeltaQueue(str(path))
    found: dict[str, Any] = {"no table": _error(queue, spark, "read_stream")}
    queue.prepare(rows(spark, 1))
    queue.write(rows(spark, 1), QUERY, 0)
    queue.prepare(rows(spark, 1))
    new, other = rows(spark, 2).withColumn("m", F.lit(5)), rows(spark, 2).withColumn("n", F.lit(""))
    for call in ("prepare", "write", "replace"):
        found[call] = _error(queue, new, call)
    found["type"] = _error(queue, other, "prepare")
    found["version"] = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").count()
    wide = DeltaQueue(str(path), merge_schema=True)
    wide.prepare(new)
    wide.replace(new, QUERY, 1)
    queue.write(rows(spark, 3), QUERY, 2)
    read = spark.read.format("delta").load(str(path)).select("n", "m")
    return found | {"table": sorted(map(tuple, read.collect()))}


def removed(spark: SparkSession, path: Path, statement: str) -> dict[str, Any]:
    """Append a batch, remove its rows by a statement, and append it again, as its error says."""
    queue, name = DeltaQueue(str(path)), f"delta.`{path}`"
    queue.write(rows(spark, 1), QUERY, 0)
    queue.write(rows(spark, 2), QUERY, 1)
    spark.sql(statement.format(name))
    found: dict[str, Any] = {"error": _error(queue, rows(spark, 2)), "table": table(spark, path)}
    queue.write(rows(spark), QUERY, 1)  # nothing is missing
    queue.replace(rows(spark), QUERY, 1)
    queue.replace(rows(spark, 3), QUERY, 1)
    found["replaced"] = table(spark, path)
    spark.sql(f"DELETE FROM {name} WHERE n = 3")
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


def _error(queue: DeltaQueue, given: Any, call: str = "write") -> str:
    batch = () if call in ("prepare", "read_stream") else (QUERY, 1)
    try:
        getattr(queue, call)(given, *batch)
    except AckerError as error:
        return f"{type(error).__name__}: {error}"
    return ""
