"""The commit of ``format("acker")``: the driver applies the packed rows of all tasks."""

import logging
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from acker_redis.errors import AckerError, ChangedBatchError, WrongShardError
from acker_redis.spark.fold.apply import Job, in_driver
from acker_redis.spark.streams.sink_options import SinkOptions
from acker_redis.spark.streams.sink_rows import Staged, too_much

log = logging.getLogger(__name__)


def apply(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int
) -> None:
    """Apply the packed rows of a batch or a run.

    Raises AckerError, also if a task's rows are missing; nothing is applied then.
    """
    staged = [each for each in messages if isinstance(each, Staged)]
    if len(staged) < len(messages):
        raise AckerError(
            "Spark committed the write without the rows of all tasks: nothing was applied"
        )
    size = sum(each.size for each in staged)
    if size > options.most:
        raise too_much("the batch", size, options.most)
    shards = options.target.client().config.shards
    if any(each.shards != shards for each in staged):
        raise WrongShardError(
            f"{options.target} was resharded or created again during the write: run the batch again"
        )
    rows = [row for each in staged for row in each.rows]
    job = Job(options.target, shards, options.lane, batch_id, options.on_changed)
    try:
        done = in_driver(job, rows)
    except ChangedBatchError as error:
        raise ChangedBatchError(
            f"{options.what} was applied before: {error} (for this sink: the option onChangedBatch)"
        ) from None
    if done.changed:
        log.warning(
            "%s: batch %d came back with other content; its trees were failed",
            options.what,
            batch_id,
        )
