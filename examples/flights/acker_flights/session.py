"""A small Spark session for the demo, and whether Java is there to run it."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession

from acker_redis.errors import ConfigError

OLDEST_JAVA = 17
_JVM_SECONDS = 5.0

_JAVA_OPTIONS = (
    "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -XX:-UsePerfData "
    "-Djava.io.tmpdir={tmp} -Dlog4j2.configurationFile={logging}"
)
_LOGGING = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # One directory a batch is listed in the driver; a job to list them costs more.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Half the time of the default, which renames through another API.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "10",
}


def missing_java() -> str | None:
    """What to install if Java is missing or too old; None if it will do."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = "install Java 17, e.g. apt install openjdk-17-jre-headless, or set JAVA_HOME"
    if not java or not Path(java).exists():
        return f"Spark needs Java, and there is none: {advice}"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    match = re.search(r'version "(\d+)(?:\.(\d+))?', told.stderr + told.stdout)
    if not match:
        return f"{java} does not say which version it is: {advice}"
    major = int(match.group(2) or 0) if match.group(1) == "1" else int(match.group(1))
    return None if major >= OLDEST_JAVA else f"Java {major} is too old for Spark 4: {advice}"


@contextlib.contextmanager
def started(scratch: Path, cores: int = 2) -> Iterator[SparkSession]:
    """A session with all its temporary files below ``scratch``; ends its JVM as well."""
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("acker-flights").master(f"local[{cores}]")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.local.dir", str(scratch))
    builder = builder.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOGGING)
    options = _JAVA_OPTIONS.format(tmp=scratch, logging=logging)
    builder = builder.config("spark.driver.extraJavaOptions", options)
    before = set(psutil.Process().children())
    try:
        with _stderr_to(scratch / "spark.log"):
            spark = builder.getOrCreate()
        yield spark
        spark.stop()
    finally:
        _end_jvm(before)


@contextlib.contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Send the chatter of the JVM, which inherits stderr, to a file; tell it on failure."""
    sys.stderr.flush()
    saved = os.dup(2)
    with log.open("w") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except Exception as error:
        words = log.read_text(errors="replace")[-4000:]
        raise ConfigError(f"Spark did not start: {error}\n{words}") from error
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _end_jvm(before: set[psutil.Process]) -> None:
    # PySpark leaves its JVM to end by itself when this process ends. Its files would outlive
    # it, and a JVM whose start was interrupted never ends.
    started_here = set(psutil.Process().children()) - before
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in started_here:
            with contextlib.suppress(psutil.NoSuchProcess):
                end(process)
        _, alive = psutil.wait_procs(started_here, timeout=_JVM_SECONDS)
        started_here = set(alive)
    if SparkContext._gateway is not None:
        # Not before: it would wait for what the JVM is doing.
        SparkContext._gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
