"""The sink ``acker`` of streaming queries; it needs Spark 4.1, whose streams write Arrow."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from acker_redis.spark.streams.sink_commit import apply
from acker_redis.spark.streams.sink_options import SinkOptions
from acker_redis.spark.streams.sink_rows import Shape, Staged, stage


class SinkStreamWriter(DataSourceStreamArrowWriter):
    """Packs in the tasks and applies in the driver, once per batch id."""

    def __init__(self, options: SinkOptions, shape: Shape) -> None:
        self._options, self._shape = options, shape
        # Read in the driver, so that tasks need no connection to Redis.
        self._shards = options.target.client().config.shards

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Pack the rows of a task. Raises what :func:`stage` raises."""
        return stage(iterator, self._shape, self._shards, self._options.most)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Apply the batch.

        Raises AckerError; then Spark runs the batch again, and applied calls stay applied.
        """
        apply(self._options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing, because only a commit applies rows."""
