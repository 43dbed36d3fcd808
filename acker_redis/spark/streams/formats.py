"""The formats ``acker`` and ``acker-outcomes``, by name."""

from pyspark.sql import SparkSession

from acker_redis.spark.streams import outcomes_source, sink


def register(spark: SparkSession) -> None:
    """Make ``format("acker")`` and ``format("acker-outcomes")`` known to a session.

    An :class:`Acker` does so when it is made. The executors need acker-redis as well.
    """
    outcomes_source.register(spark)
    sink.register(spark)
