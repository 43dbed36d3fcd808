"""Verdicts in numbered batches, for versions of Spark without the stream of ``acker-outcomes``.

A streaming query of any other source is the clock: Spark calls its ``foreachBatch`` function with
the number of the batch. The function lists the entries of that batch in a file, before it reads
them. **At least once, and each verdict in one batch**, as in ``outcomes_stream.py``: a batch that
runs again finds its file and reads the same entries. When the next batch begins, this batch is
finished, and its entries are deleted from Redis, then its file.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

from acker_redis.errors import ConfigError, DataLossError
from acker_redis.protocol.keys import check_name
from acker_redis.spark.acker import Acker
from acker_redis.spark.fold.apply import Place
from acker_redis.spark.streams.outcome_frames import frame
from acker_redis.spark.streams.outcome_offsets import VerdictOffset
from acker_redis.spark.streams.outcome_options import MAX_ENTRIES, OutcomeOptions
from acker_redis.spark.streams.outcome_reads import Listed, streams_of


class OutcomeBatches:
    """A ``foreachBatch`` function that reads and takes the verdicts of a source.

    Since Spark 4.2 the stream ``acker-outcomes`` does the same without a clock and a folder. The
    query of the clock must be the only reader of the source. A verdict stays in Redis until the
    batch after its own begins.

    Args:
        acker: The acker of the application. With ``mode="driver"`` the driver reads the verdicts,
            otherwise the executors.
        source: The name under which the trees were tracked.
        process: ``process(verdicts, batch_id)``, the function of your ``foreachBatch``. It is also
            called for a batch without verdicts.
        folder: A directory of this query, on a file system with atomic rename that every driver of
            the query sees. A query with a new checkpoint needs a new folder.
        expand: Return one row for each tree, also for acks and touches of a block.
        max_entries: Maximum entries per shard and batch, up to 10,000; an entry holds up to 4095
            verdicts.
        fail_on_data_loss: With False, log a warning and continue without entries that were deleted.

    Raises:
        ConfigError: An argument is invalid.

    Examples:
        >>> clock = spark.readStream.format("rate").load()
        >>> verdicts = OutcomeBatches(acker, "shop", replay, "/data/replay/planned")
        >>> writer = clock.writeStream.foreachBatch(verdicts).trigger(processingTime="10 seconds")
        >>> query = writer.option("checkpointLocation", "/data/replay/checkpoint").start()

    """

    def __init__(
        self,
        acker: Acker,
        source: str,
        process: Callable[[DataFrame, int], object],
        folder: str | Path,
        *,
        expand: bool = False,
        max_entries: int = 256,
        fail_on_data_loss: bool = True,
    ) -> None:
        if not 0 < max_entries <= MAX_ENTRIES:
            raise ConfigError(f"max_entries must be 1 to {MAX_ENTRIES}, not {max_entries!r}")
        target, source = acker.application.target, check_name("source", source)
        self._options = OutcomeOptions(target, source, expand, max_entries, fail_on_data_loss)
        mode = acker.application.mode
        self._mode: Place = "driver" if mode == "driver" else "executors"
        self._process = process
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Process the verdicts of a batch; ``df`` gives only the session.

        Raises:
            DataLossError: The checkpoint was set back, or entries of the batch were deleted.
            ConfigError: The folder belongs to another source.
            AckerError: Redis did not answer.

        """
        ids = self._planned(batch_id).ids
        edges = streams_of(self._options).edges() if ids else ()
        parts = [Listed(shard, its, edges) for shard, its in ids.items()]
        self._process(frame(df.sparkSession, self._options, parts, self._mode), batch_id)

    def _planned(self, batch_id: int) -> VerdictOffset:
        """Return the entries of a batch; take those of finished batches if it is a new batch."""
        nothing = VerdictOffset(self._options.target.namespace, self._options.source)
        known = {int(path.stem): path for path in self._folder.glob("*.json")}
        if later := [number for number in known if number > batch_id]:
            raise DataLossError(
                f"batch {batch_id} comes after batch {max(later)} in {self._folder}: the "
                "checkpoint was set back, or is new. Give a query with a new checkpoint a new "
                "folder; it reads all verdicts that wait"
            )
        plans = {number: _load(path, nothing) for number, path in known.items()}
        if batch_id in plans:
            return plans[batch_id]
        streams = streams_of(self._options)
        streams.announce()
        streams.shards(refresh=True)
        # Spark begins a batch when all batches before it are finished.
        for number, plan in plans.items():
            streams.take(plan.ids)
            known[number].unlink()
        plan = VerdictOffset(
            nothing.namespace, nothing.source, streams.new_ids({}, self._options.max_entries)
        )
        if plan.ids:
            _save(self._folder / f"{batch_id}.json", plan)
        return plan


def _load(path: Path, nothing: VerdictOffset) -> VerdictOffset:
    return nothing.parse(json.loads(path.read_text()))


def _save(path: Path, plan: VerdictOffset) -> None:
    aside = path.with_suffix(".writing")
    with aside.open("w") as file:
        json.dump(plan.to_dict(), file)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
