"""The data source ``acker``, to write to: rows that say what bolts have done, acked by name.

::

    done.writeStream.format("acker").options(namespace="flights", app="shop", query="last-bolt") ..
    done.write.format("acker").mode("append").options(namespace="flights", app="shop", run="n7") ..

Each row is one processed message, whole by itself: see ``sink_rows.py``. Tasks
pack their rows; what they packed goes through the driver, which merges and applies it when all of
them are done. So a task that dies or runs twice has said nothing, and the batch is applied once,
under a durable lane: of the query (``app``, ``query``, the batch id), or of the run (``app``,
``run``). Nobody but the driver talks to Redis.

What goes through the driver is bounded by ``maxStagedBytes``; :class:`Acker` has no such bound, and
it reports, tracks and waits for room.
"""

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from acker_redis.errors import AckerError, ChangedBatchError, ConfigError, WrongShardError
from acker_redis.spark.fold.apply import Job, in_driver
from acker_redis.spark.streams.sink_options import SinkOptions
from acker_redis.spark.streams.sink_rows import Shape, Staged, stage, too_much

NAME = "acker"

log = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Make ``acker`` known to a session; the executors need acker-redis as well.

    >>> register(spark)
    >>> done.write.format("acker").mode("append").options(
    ...     url="redis://localhost", namespace="orders", app="shop", run="2024-05-01"
    ... ).save()
    """
    spark.dataSource.register(AckerSink)


class AckerSink(DataSource):
    """Acks and fails what rows say; what its options are is said in ``docs/reference/spark.md``.

    Of a streaming query, each batch is applied once, however often Spark runs it. ``query`` names
    it, since Spark does not tell a sink its query's id: a name that goes with one checkpoint.

    Of ``df.write``, a run with a ``run`` is applied once as well: the same run again is a repeat,
    and with other content it is ChangedBatchError. A run without is applied as often as it is made,
    and messages that are acked twice cancel: their trees stay open, and expire. That is no false
    ack, but work that is done again. Each run, named or not, leaves a fence of some 100 bytes for
    30 days, of which a shard keeps 100,000.
    """

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return NAME

    def schema(self) -> str:
        """Raises ConfigError: there is nothing to read."""
        raise ConfigError(f"{NAME} is written to; verdicts are read with format('acker-outcomes')")

    def writer(self, schema: StructType, overwrite: bool) -> "SinkWriter":
        """Writer of one run. Raises ConfigError and InvalidBatchError, before a task has begun."""
        if overwrite:
            raise ConfigError("what was acked stays acked: mode('append'), and not 'overwrite'")
        return SinkWriter(SinkOptions.parse(self.options, streaming=False), Shape.of(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "SinkStreamWriter":  # noqa: N802
        """Writer of one micro-batch. Raises ConfigError and InvalidBatchError, as above."""
        if overwrite:
            raise ConfigError(
                "rows that come again ack again, and cancel: outputMode('append'), and not "
                "'complete'"
            )
        return SinkStreamWriter(SinkOptions.parse(self.options, streaming=True), Shape.of(schema))


class SinkStreamWriter(DataSourceStreamArrowWriter):
    """Packs in the tasks and applies in the driver, once per batch id."""

    def __init__(self, options: SinkOptions, shape: Shape) -> None:
        self._options, self._shape = options, shape
        # In the driver: tasks need not reach Redis.
        self._shards = options.target.client().config.shards

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Pack the rows of a task. Raises what :func:`stage` raises."""
        return stage(iterator, self._shape, self._shards, self._options.most)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Apply the batch. Raises AckerError; then it is run again, and what was applied stands."""
        _apply(self._options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: what was not committed was not applied."""


class SinkWriter(DataSourceArrowWriter):
    """Packs in the tasks and applies in the driver, once per run."""

    def __init__(self, options: SinkOptions, shape: Shape) -> None:
        self._options, self._shape = options, shape
        self._shards = options.target.client().config.shards

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Pack the rows of a task. Raises what :func:`stage` raises."""
        return stage(iterator, self._shape, self._shards, self._options.most)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Apply the run. Raises AckerError; what was applied of it stands."""
        _apply(self._options, messages, 0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: what was not committed was not applied."""


def _apply(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int
) -> None:
    staged = [each for each in messages if isinstance(each, Staged)]
    if len(staged) < len(messages):
        raise AckerError("Spark commits without what all tasks have written: nothing was applied")
    size = sum(each.size for each in staged)
    if size > options.most:
        raise too_much("the batch", size, options.most)
    shards = options.target.client().config.shards
    if any(each.shards != shards for each in staged):
        raise WrongShardError(
            f"{options.target} was created anew meanwhile, with other shards: run the batch again"
        )
    rows = [row for each in staged for row in each.rows]
    job = Job(options.target, shards, options.lane, batch_id, options.on_changed)
    try:
        done = in_driver(job, rows)
    except ChangedBatchError as error:
        raise ChangedBatchError(
            f"{options.what} was applied before: {error} (here it is the option onChangedBatch)"
        ) from None
    if done.changed:
        log.warning("%s: batch %d came back with other content", options.what, batch_id)
