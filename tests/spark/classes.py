"""Write an archive of the classes that Spark loads, so that the tests' JVMs start twice as fast.

``make test-all`` runs ``python -m tests.spark.classes FILE``: a small Spark job, at whose end the
JVM writes the archive (class data sharing, JEP 350). The tests start some fifty JVMs. Without Java
there is no archive, and the tests are slower.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ARCHIVE = Path(sys.prefix) / "spark.jsa"
_COMPILER = "-XX:TieredStopAtLevel=1"


def _options() -> str:
    # The JVM silently ignores an archive that does not fit.
    archived = f"-XX:SharedArchiveFile={ARCHIVE} -Xshare:auto -Xlog:disable"
    return f"{_COMPILER} {archived}" if ARCHIVE.exists() else _COMPILER


JVM_OPTIONS = _options()
"""Options of every JVM that a test starts: only the quick compiler, because no JVM runs for long
enough to profit from the other, which takes half of the time; and the archive, if it exists."""


def make(archive: Path) -> None:
    """Run the operations of most tests, and write the archive."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from acker_flights.session import _SETTINGS, missing_java

    if missing_java():
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f"{_COMPILER} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    )
    with tempfile.TemporaryDirectory() as scratch:
        builder = SparkSession.builder.master("local[2]")
        for key, value in _SETTINGS.items():
            builder = builder.config(key, value)
        builder = builder.config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        spark = builder.config("spark.local.dir", scratch).getOrCreate()
        _work(spark, scratch)
        gateway = SparkContext._gateway
        spark.stop()
        # The JVM writes the archive only when it ends normally.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=120)


def _work(spark: Any, scratch: str) -> None:
    rows = spark.range(100).selectExpr("id", "id % 7 as k", "cast(id as string) as text")
    rows.write.csv(f"{scratch}/csv", header=True)
    rows.write.parquet(f"{scratch}/parquet")

    def batch(found: Any, number: int) -> None:
        found.persist()
        found.join(rows.drop("k"), "id").groupBy("k").count().collect()
        out = found.mapInArrow(lambda tables: tables, found.schema)
        out.write.mode("append").parquet(f"{scratch}/out")
        found.unpersist()

    stream = spark.readStream.schema(rows.schema).parquet(f"{scratch}/parquet")
    query = stream.writeStream.foreachBatch(batch).trigger(availableNow=True)
    query.option("checkpointLocation", f"{scratch}/checkpoint").start().awaitTermination()
    spark.read.csv(f"{scratch}/csv", header=True).count()


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
