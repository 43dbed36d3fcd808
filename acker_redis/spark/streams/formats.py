"""Registration of the formats ``acker`` and ``acker-outcomes``."""

from pyspark.sql import SparkSession

from acker_redis.errors import ConfigError


def register(spark: SparkSession) -> None:
    """Register ``format("acker")`` and ``format("acker-outcomes")`` with a session.

    The constructor of :class:`Acker` does the same where Spark has data sources in Python. The
    executors need acker-redis, too.

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
    outcomes_source.register(spark)
    sink.register(spark)
    return True
