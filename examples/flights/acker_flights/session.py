"""A small Spark session for the demo, and a check for Java."""

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
    # Each call of PySpark would tell the JVM its line of code, in ten calls.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # There is one directory per batch. To list them in the driver is faster than in a job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Takes half the time of the default, which renames through another API.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "10",
}


def missing_java() -> str | None:
    """Return advice to install Java if it is missing or too old; None if it is suitable."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = "install Java 17, e.g. apt install openjdk-17-jre-headless, or set JAVA_HOME"
    if not java or not Path(java).exists():
        return f"Spark needs Java, and Java was not found: {advice}"
    found = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    match = re.search(r'version "(\d+)(?:\.(\d+))?', found.stderr + found.stdout)
    if not match:
        return f"{java} -version printed no version: {advice}"
    major = int(match.group(2) or 0) if match.group(1) == "1" else int(match.group(1))
    return None if major >= OLDEST_JAVA else f"Java {major} is too old for Spark 4: {advice}"


@contextlib.contextmanager
def started(scratch: Path, cores: int = 2) -> Iterator[SparkSession]:
    """Yield a session with all its temporary files below ``scratch``; end its JVM afterwards."""
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
    """Redirect stderr, which the JVM inherits, to a file; raise ConfigError with it on failure."""
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
    # PySpark does not end its JVM: the JVM ends after this process. Its files would stay, and a JVM
    # whose start was interrupted never ends.
    started_here = set(psutil.Process().children()) - before
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in started_here:
            with contextlib.suppress(psutil.NoSuchProcess):
                end(process)
        _, alive = psutil.wait_procs(started_here, timeout=_JVM_SECONDS)
        started_here = set(alive)
    if SparkContext._gateway is not None:
        # After the end of the JVM: before it, the shutdown would wait for the JVM's work.
        SparkContext._gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
