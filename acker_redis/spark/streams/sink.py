"""The sink ``acker``: acks and fails the messages in the rows that a job writes.

::

    done.writeStream.format("acker").options(namespace="flights", app="shop", query="last-bolt") ..
    done.write.format("acker").mode("append").options(namespace="flights", app="shop", run="n7") ..

Each row is one whole processed message: see ``sink_rows.py``.

**Each batch is applied once.** The tasks pack their rows and send the packed rows to the driver.
Only the driver sends to Redis, when all tasks are done. So a task that dies or runs twice has
applied nothing. The driver applies the batch under a durable lane: the lane of the query (``app``
and ``query``, with the batch id), or of the run (``app`` and ``run``). A retry is a no-op there.

``maxStagedBytes`` limits the bytes that go through the driver. :class:`Acker` has no such limit,
and it also reports, tracks and waits for room.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from acker_redis.errors import ConfigError
from acker_redis.spark.streams.sink_commit import apply
from acker_redis.spark.streams.sink_options import SinkOptions
from acker_redis.spark.streams.sink_rows import Shape, Staged, stage

if TYPE_CHECKING:
    from acker_redis.spark.streams.sink_stream import SinkStreamWriter

NAME = "acker"


def register(spark: SparkSession) -> None:
    """Register ``acker`` with a session; the executors need acker-redis, too.

    >>> register(spark)
    >>> done.write.format("acker").mode("append").options(
    ...     url="redis://localhost", namespace="orders", app="shop", run="2024-05-01"
    ... ).save()
    """
    spark.dataSource.register(AckerSink)


class AckerSink(DataSource):
    """A sink that acks and fails messages; ``docs/reference/spark.md`` describes the options.

    A streaming query: each batch is applied once, even if Spark runs it several times. Spark does
    not give a sink the id of its query, so the option ``query`` names it. The name belongs to one
    checkpoint.

    ``df.write`` with the option ``run``: the run is applied once, too. A second run of the same
    name with the same rows is a no-op, and with other rows it raises ChangedBatchError.

    ``df.write`` without ``run``: every run is applied. Two acks of one message cancel, so its tree
    stays pending and expires. That is not a false ack, but it causes a replay. Every run, named or
    not, leaves a fence of some 100 bytes for 30 days; a shard holds up to 100,000 fences.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> str:
        """Raise ConfigError, because the sink cannot be read."""
        raise ConfigError(
            f"{NAME} can only be written to; verdicts are read with format('acker-outcomes')"
        )

    def writer(self, schema: StructType, overwrite: bool) -> "SinkWriter":
        """Return the writer of one run.

        Raises ConfigError and InvalidBatchError before a task begins.
        """
        if overwrite:
            raise ConfigError("acks cannot be overwritten: use mode('append'), and not 'overwrite'")
        return SinkWriter(SinkOptions.parse(self.options, streaming=False), Shape.of(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "SinkStreamWriter":  # noqa: N802
        """Return the writer of one micro-batch.

        Raises ConfigError and InvalidBatchError before a task begins, and ConfigError before
        Spark 4.1.
        """
        try:
            from acker_redis.spark.streams.sink_stream import SinkStreamWriter
        except ImportError:
            raise ConfigError(
                f"a stream to {NAME} needs Spark 4.1 or later: here use foreachBatch with "
                "BoltWriter or Acker.ack"
            ) from None
        if overwrite:
            raise ConfigError(
                "a row that is written again would be acked again, and the two acks would cancel: "
                "use outputMode('append'), and not 'complete'"
            )
        return SinkStreamWriter(SinkOptions.parse(self.options, streaming=True), Shape.of(schema))


class SinkWriter(DataSourceArrowWriter):
    """Packs in the tasks and applies in the driver, once per run."""

    def __init__(self, options: SinkOptions, shape: Shape) -> None:
        self._options, self._shape = options, shape
        self._shards = options.target.client().config.shards

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Pack the rows of a task. Raises what :func:`stage` raises."""
        return stage(iterator, self._shape, self._shards, self._options.most)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Apply the run. Raises AckerError; then applied calls stay applied."""
        apply(self._options, messages, 0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing, because only a commit applies rows."""
