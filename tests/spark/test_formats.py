"""Registration of the data sources with a session."""

import contextlib
from collections.abc import Callable, Iterator

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
