"""Registration of the formats ``acker`` and ``acker-outcomes``."""

from pyspark.sql import SparkSession

from acker_redis.errors import ConfigError

_DONE = "spark.acker_redis.registered"
"""A setting of the session. Spark warns of a second registration, and has no call to ask for the
first one. A session that Spark clones for a query has the formats and the setting, too."""


def register(spark: SparkSession) -> None:
    """Register ``format("acker")`` and ``format("acker-outcomes")`` with a session.

    The constructor of :class:`Acker` does the same where Spark has data sources in Python. A second
    call for a session is a no-op. The executors need acker-redis, too.

    Args:
        spark: The session.

    Raises:
        ConfigError: Spark is older than 4.0, and has no data sources in Python.

    Examples:
        >>> register(spark)
        >>> verdicts = spark.readStream.format("acker-outcomes").options(
        ...     url="redis://localhost", namespace="orders", source="shop"
        ... )

    """
    if not registered(spark):
        raise ConfigError(
            f"Spark {spark.version} has no data sources in Python, Spark 4.0 has: here read "
            "verdicts with read_outcomes() or OutcomeBatches, and ack with BoltWriter or Acker.ack"
        )


def registered(spark: SparkSession) -> bool:
    """Register the formats; return False where Spark has no data sources in Python."""
    try:
        from acker_redis.spark.streams import outcomes_source, sink
    except ImportError:
        return False
    if spark.conf.get(_DONE, "") != "true":
        outcomes_source.register(spark)
        sink.register(spark)
        spark.conf.set(_DONE, "true")
    return True
