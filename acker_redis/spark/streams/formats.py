"""Registration of the formats ``acker`` and ``acker-outcomes``."""

from pyspark.sql import SparkSession

from acker_redis.spark.streams import outcomes_source, sink


def register(spark: SparkSession) -> None:
    """Register ``format("acker")`` and ``format("acker-outcomes")`` with a session.

    The constructor of :class:`Acker` does the same. The executors need acker-redis, too.

    Args:
        spark: The session.

    Examples:
        >>> register(spark)
        >>> verdicts = spark.readStream.format("acker-outcomes").options(
        ...     url="redis://localhost", namespace="orders", source="shop"
        ... )

    """
    outcomes_source.register(spark)
    sink.register(spark)
