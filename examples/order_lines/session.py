"""A small Spark session for each job, and the signal that ends it."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}


def session(name: str, work: Path) -> SparkSession:
    """Return a session on one core, with its temporary files below ``work``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = work / "spark" / name
    scratch.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.appName(name).master("local[1]")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.local.dir", str(scratch))
    builder = builder.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    # TieredStopAtLevel: the quick compiler alone suits a job that runs for a minute.
    options = f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData -XX:+UseSerialGC"
    builder = builder.config("spark.driver.extraJavaOptions", f"{options} -XX:TieredStopAtLevel=1")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run_until_stopped(query: StreamingQuery, work: Path) -> None:
    """Run the query until a file ``stop`` exists. Raises the exception of a failed query."""
    while not query.awaitTermination(1):
        if (work / "stop").exists():
            query.stop()
            return
