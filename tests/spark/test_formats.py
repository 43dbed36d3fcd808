"""The public names, and the registration of the data sources with a session."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from acker_redis.spark import Acker, register

WARNS = "org.apache.spark.sql"


@contextlib.contextmanager
def warnings_of(spark: SparkSession) -> Iterator[Callable[[], str]]:
    """Yield a function that returns the warnings of Spark so far."""
    log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    text = spark._jvm.java.io.StringWriter()  # type: ignore[union-attr]
    layout = log4j.core.layout.PatternLayout.createDefaultLayout()
    appender = log4j.core.appender.WriterAppender.createAppender(
        layout, None, text, "test", False, True
    )
    appender.start()
    root = log4j.LogManager.getRootLogger()
    root.addAppender(appender)
    log4j.core.config.Configurator.setLevel(WARNS, log4j.Level.WARN)
    try:
        yield text.toString
    finally:
        log4j.core.config.Configurator.setLevel(WARNS, root.getLevel())
        root.removeAppender(appender)


class Other(DataSource):
    """Any other data source."""

    @classmethod
    def name(cls) -> str:
        return "registered-twice"


def test_second_registration_warns_of_nothing(spark: SparkSession) -> None:
    register(spark)
    with warnings_of(spark) as said:
        register(spark)
        Acker(spark, "orders", app_id="a", url="redis://localhost")
        assert said() == ""
        for _ in range(2):
            spark.dataSource.register(Other)
        assert "replaced" in said(), "Spark itself warns"


def test_the_package_exports_its_public_names() -> None:
    from acker_redis import spark

    for name in spark.__all__:
        assert getattr(spark, name)
    assert set(spark.__all__) == set(dir(spark))
    with pytest.raises(AttributeError, match="no attribute 'Unknown'"):
        spark.Unknown  # noqa: B018


@pytest.mark.parametrize("module", ["streams.outcomes_source", "streams.sink", "fold.apply"])
def test_processes_of_spark_import_no_pandas_and_no_writers(module: str) -> None:
    """Spark starts such a process for each step of a data source, and for tasks."""
    code = (
        f"import sys, acker_redis.spark.{module}; "
        "print([m for m in ('pandas', 'acker_redis.spark.micro_batch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
