"""The data source ``acker-outcomes``: verdicts of a source, as a stream or as a table.

Spark has data sources in Python since 4.0. The stream limits its batches, which needs Spark 4.2:
``outcomes_stream.py``. :func:`read_outcomes` and :class:`OutcomeBatches` need neither.

A batch read deletes nothing.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from acker_redis.errors import ConfigError
from acker_redis.spark.one_reader import OneReader
from acker_redis.spark.streams.outcome_options import OutcomeOptions
from acker_redis.spark.streams.outcome_reads import Waiting, read, waiting
from acker_redis.spark.streams.outcome_rows import SCHEMA

if TYPE_CHECKING:
    from acker_redis.spark.streams.outcomes_stream import OutcomesStreamReader

NAME = "acker-outcomes"


def register(spark: SparkSession) -> None:
    """Register ``acker-outcomes`` with a session; the executors need acker-redis, too.

    >>> register(spark)
    >>> verdicts = spark.read.format("acker-outcomes").options(
    ...     url="redis://localhost", namespace="orders", source="shop"
    ... )
    """
    spark.dataSource.register(OutcomesSource)


class OutcomesSource(DataSource):
    """Verdicts of one source; ``docs/reference/spark.md`` describes the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> str:
        """Return the columns of a verdict. Raises ConfigError for invalid options."""
        OutcomeOptions.parse(self.options)
        return SCHEMA

    def reader(self, schema: StructType) -> "OutcomesReader":
        """Return a reader of the verdicts that wait now; it deletes nothing."""
        return OutcomesReader(self._options(schema))

    def streamReader(self, schema: StructType) -> "OutcomesStreamReader":  # noqa: N802 - Spark's
        """Return the reader of a streaming query. Raises ConfigError before Spark 4.2."""
        options = self._options(schema)
        try:
            from acker_redis.spark.streams.outcomes_stream import OutcomesStreamReader
        except ImportError:
            raise ConfigError(
                f"{NAME} as a stream needs Spark 4.2 or later: here use OutcomeBatches, which "
                "gives the same verdicts to a foreachBatch function, or read_outcomes()"
            ) from None
        one = OneReader(options.target.url, options.target.namespace, options.source)
        return OutcomesStreamReader(options, one)

    def _options(self, schema: StructType) -> OutcomeOptions:
        if schema.fieldNames() != [column.split()[0] for column in SCHEMA.split(", ")]:
            raise ConfigError(
                f"{NAME} has a fixed schema: leave out .schema(), and select columns instead"
            )
        return OutcomeOptions.parse(self.options)


class OutcomesReader(DataSourceReader):
    """Reads the verdicts that waited when the read was planned; deletes nothing."""

    def __init__(self, options: OutcomeOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per shard in which verdicts wait."""
        return [InputPartition(part) for part in waiting(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a shard, without entries that were taken in the meantime."""
        # If no verdict waits, Spark makes its own partition; before Spark 4.1 it is None.
        part = partition.value if partition else None
        if isinstance(part, Waiting):
            yield from read(self._options, part)
