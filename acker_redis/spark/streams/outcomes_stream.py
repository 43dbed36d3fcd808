"""The stream of ``acker-outcomes``; it needs Spark 4.2, whose streams limit their batches.

A streaming read deletes the entries that it has processed. So the streaming query must be the only
reader of its source, and it replaces ``acker.outcomes(source)``; see
:mod:`acker_redis.spark.one_reader`.

**At least once, and each verdict in one micro-batch.** An offset lists the ids of the entries of
its micro-batch, see ``outcome_offsets.py``. Spark commits a micro-batch after it has logged the
next one. Until the commit the entries stay in Redis, so a micro-batch that runs again reads the
same entries. If the query dies between the log and the commit, entries of a finished micro-batch
stay in Redis, and no micro-batch reads them again. The next reader deletes these entries when it
plans its first new micro-batch: Spark plans it only when all earlier micro-batches are finished.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from acker_redis.errors import ConfigError
from acker_redis.spark.one_reader import OneReader
from acker_redis.spark.streams.outcome_offsets import VerdictOffset
from acker_redis.spark.streams.outcome_options import MAX_ENTRIES, OutcomeOptions
from acker_redis.spark.streams.outcome_reads import Listed, read, streams_of


class OutcomesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads and takes the verdicts of a source for a streaming query."""

    IDLE_SECONDS = 0.1
    """Seconds between two polls of empty streams; Spark asks some 95 times a second."""
    THOROUGH = 50
    """Every 50th poll is thorough: it also reads the number of shards, and searches for entries
    that a failover brought between those of the last batch."""

    def __init__(self, options: OutcomeOptions, one: OneReader | None = None) -> None:
        self._options = options
        self._one = one
        self._until: dict[int, str] | None = None
        self._looks = 0
        self._idle: tuple[VerdictOffset | None, int] = (None, 0)
        self._not_before = 0.0
        self._planned = False
        self._done: VerdictOffset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """Return the offset of a query without a checkpoint: all waiting verdicts are new."""
        return self._nothing.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """Return the option maxEntriesPerTrigger, in entries of up to 4095 trees each."""
        return ReadMaxRows(self._options.max_entries)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Note the verdicts that wait now; later verdicts are left for another run."""
        self._hold()
        self._until = streams_of(self._options).last_ids()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the oldest entries that are not in ``start``; ``start`` itself if there are none.

        After a poll without new entries, the next poll waits for ``IDLE_SECONDS``. Without a limit
        the method returns up to 10,000 entries per shard.
        """
        self._hold()
        done = self._nothing.parse(start)
        time.sleep(max(0.0, self._not_before - time.monotonic()))
        streams = streams_of(self._options)
        thorough = self._looks % self.THOROUGH == 0
        if thorough:
            streams.announce()
        streams.shards(refresh=thorough)
        self._looks += 1
        before, times = self._idle
        times = times if before == done else 0
        most = min(limit.max_rows, MAX_ENTRIES) if isinstance(limit, ReadMaxRows) else MAX_ENTRIES
        found = streams.new_ids(done.ids, most, self._until, between=times % self.THOROUGH == 0)
        if found:
            return VerdictOffset(self._nothing.namespace, self._nothing.source, found).to_dict()
        self._idle = (done, times + 1)
        self._not_before = time.monotonic() + self.IDLE_SECONDS
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one partition per shard of the micro-batch.

        Raises ConfigError if the micro-batch before was not committed, or if this application has
        another reader of the source.
        """
        # Spark calls with equal offsets on a restart, when the last batch may not be done yet.
        if start == end:
            return []
        self._hold()
        before, batch = self._nothing.parse(start), self._nothing.parse(end)
        if before.ids and before != self._done:
            if self._planned:
                raise ConfigError(
                    "Spark did not commit the last micro-batch before it planned this one: "
                    "acker-outcomes does not support asynchronous progress tracking; leave out the "
                    "option asyncProgressTrackingEnabled"
                )
            self._take(before)
        self._planned = True
        edges = streams_of(self._options).edges()
        listed = batch.without(before).items()
        return [InputPartition(Listed(shard, ids, edges)) for shard, ids in listed]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a shard.

        Raises DataLossError if entries were deleted, unless failOnDataLoss is false.
        """
        if isinstance(partition.value, Listed):
            yield from read(self._options, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Delete exactly the entries of a finished micro-batch."""
        self._hold()
        self._take(self._nothing.parse(end))

    def stop(self) -> None:
        """Release the lock after the end of the query, so that the next query may read."""
        if self._one:
            self._one.release()

    def _hold(self) -> None:
        # Not in the constructor: each task of the query constructs a reader, too, to read its
        # planned entries.
        if self._one:
            self._one.hold()

    @property
    def _nothing(self) -> VerdictOffset:
        return VerdictOffset(self._options.target.namespace, self._options.source)

    def _take(self, done: VerdictOffset) -> None:
        streams_of(self._options).take(done.ids)
        self._done = done
