"""Verdicts as a DataFrame on every version of Spark, without the data source."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from acker_redis.errors import ConfigError
from acker_redis.protocol.keys import check_name
from acker_redis.spark.fold.apply import Place
from acker_redis.spark.fold.target import Target
from acker_redis.spark.streams.outcome_options import OutcomeOptions
from acker_redis.spark.streams.outcome_reads import Part, read, waiting
from acker_redis.spark.streams.outcome_rows import SCHEMA


def read_outcomes(
    spark: SparkSession,
    namespace: str,
    source: str,
    *,
    url: str | None = None,
    expand: bool = False,
    mode: Place = "executors",
) -> DataFrame:
    """Return the verdicts that wait now, with the columns of ``format("acker-outcomes")``.

    It deletes nothing, and works on every version of Spark. Use :class:`OutcomeBatches` to take
    verdicts before Spark 4.2.

    Args:
        spark: The session.
        namespace: The name of the namespace.
        source: The name under which the trees were tracked.
        url: The URL of Redis; by default the value of ``ACKER_REDIS_URL`` in the driver.
        expand: Return one row for each tree, also for acks and touches of a block.
        mode: ``executors`` reads in one task for each shard, when the DataFrame is used. Entries
            that are taken before that are left out. ``driver`` reads now, in the driver, for
            executors without a route to Redis.

    Raises:
        ConfigError: An argument is invalid, or the URL is missing.
        NamespaceNotFoundError: The namespace does not exist.
        RedisUnavailableError: Redis does not answer.

    Examples:
        >>> verdicts = read_outcomes(spark, "orders", "shop")
        >>> verdicts.groupBy("verdict", "reason").sum("trees").show()

    """
    if mode not in ("driver", "executors"):
        raise ConfigError(f"mode must be 'driver' or 'executors', not {mode!r}")
    target = Target.find(namespace, url)
    options = OutcomeOptions(target, check_name("source", source), expand)
    return frame(spark, options, waiting(options), mode)


def frame(
    spark: SparkSession, options: OutcomeOptions, parts: Sequence[Part], mode: Place
) -> DataFrame:
    """Return the rows of parts: read by one task each, or by the driver."""
    if mode == "driver":
        batches = [batch for part in parts for batch in read(options, part)]
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        return spark.createDataFrame(rows, SCHEMA)

    def rows_of(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(options, parts[number])

    return spark.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(rows_of, SCHEMA)
