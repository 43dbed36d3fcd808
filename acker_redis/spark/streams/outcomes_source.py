"""The data source ``acker-outcomes``: verdicts of a task, as a stream or as a table.

A streaming read deletes the entries that it has processed. So the streaming query must be the only
reader of its task, and it replaces ``acker.outcomes(task)``; see
:mod:`acker_redis.spark.one_reader`. A batch read deletes nothing.

**At least once, and each verdict in one micro-batch.** An offset lists the ids of the entries of
its micro-batch, see ``outcome_offsets.py``. Spark commits a micro-batch after it has logged the
next one. Until the commit the entries stay in Redis, so a micro-batch that runs again reads the
same entries. If the query dies between the log and the commit, entries of a finished micro-batch
stay in Redis, and no micro-batch reads them again. The next reader deletes these entries when it
plans its first new micro-batch: Spark plans it only when all earlier micro-batches are finished.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from acker_redis.errors import ConfigError, DataLossError
from acker_redis.protocol.outcome import Entry
from acker_redis.spark.one_reader import OneReader
from acker_redis.spark.streams.outcome_offsets import Ids, VerdictOffset
from acker_redis.spark.streams.outcome_options import MAX_ENTRIES, OutcomeOptions
from acker_redis.spark.streams.outcome_rows import SCHEMA, record_batches
from acker_redis.spark.streams.outcome_streams import OutcomeStreams

NAME = "acker-outcomes"

log = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Register ``acker-outcomes`` with a session; the executors need acker-redis, too.

    >>> register(spark)
    >>> verdicts = spark.read.format("acker-outcomes").options(
    ...     url="redis://localhost", namespace="orders", source="shop"
    ... )
    """
    spark.dataSource.register(OutcomesSource)


class OutcomesSource(DataSource):
    """Verdicts of one task; ``docs/reference/spark.md`` describes the options."""

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
        """Return the reader of a streaming query."""
        options = self._options(schema)
        one = OneReader(options.target.url, options.target.namespace, options.source)
        return OutcomesStreamReader(options, one)

    def _options(self, schema: StructType) -> OutcomeOptions:
        if schema.fieldNames() != [column.split()[0] for column in SCHEMA.split(", ")]:
            raise ConfigError(
                f"{NAME} has a fixed schema: leave out .schema(), and select columns instead"
            )
        return OutcomeOptions.parse(self.options)


@dataclass
class WaitingPartition(InputPartition):
    """Entries of one shard, from the oldest to an id."""

    shard: int
    last: str
    edges: tuple[str, ...]
    """Names of the namespace's edges, from the driver."""


@dataclass
class ListedPartition(InputPartition):
    """Entries of one shard, by their ids."""

    shard: int
    ids: Ids
    edges: tuple[str, ...]
    """Names of the namespace's edges, from the driver."""


class OutcomesReader(DataSourceReader):
    """Reads the verdicts that waited when the read was planned; deletes nothing."""

    def __init__(self, options: OutcomeOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per shard in which verdicts wait."""
        streams = _streams(self._options)
        last_ids, edges = streams.last_ids(), streams.edges()
        return [WaitingPartition(shard, last, edges) for shard, last in last_ids.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a shard, without entries that were taken in the meantime."""
        # If no verdict waits, Spark makes its own partition.
        if isinstance(partition, WaitingPartition):
            streams, at = _streams(self._options), partition
            yield from _batches(self._options, streams.entries_until(at.shard, at.last, at.edges))


class OutcomesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads and takes the verdicts of a task for a streaming query."""

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
        self._until = _streams(self._options).last_ids()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the oldest entries that are not in ``start``; ``start`` itself if there are none.

        After a poll without new entries, the next poll waits for ``IDLE_SECONDS``. Without a limit
        the method returns up to 10,000 entries per shard.
        """
        self._hold()
        done = self._nothing.parse(start)
        time.sleep(max(0.0, self._not_before - time.monotonic()))
        streams = _streams(self._options)
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
        another reader of the task.
        """
        # Spark calls with equal offsets on a restart, when the last batch may not be done yet.
        if start == end:
            return []
        self._hold()
        before, batch = self._nothing.parse(start), self._nothing.parse(end)
        if before.ids and before != self._done:
            if self._planned:
                raise ConfigError(
                    f"Spark did not commit the last micro-batch before it planned this one: {NAME} "
                    "does not support asynchronous progress tracking; leave out the option "
                    "asyncProgressTrackingEnabled"
                )
            self._take(before)
        self._planned = True
        edges = _streams(self._options).edges()
        return [ListedPartition(shard, ids, edges) for shard, ids in batch.without(before).items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a shard.

        Raises DataLossError if entries were deleted, unless failOnDataLoss is false.
        """
        if not isinstance(partition, ListedPartition):
            return
        missing = 0

        def found() -> Iterator[Entry]:
            nonlocal missing
            at = partition
            for entry in _streams(self._options).entries(at.shard, at.ids, at.edges):
                if entry:
                    yield entry
                else:
                    missing += 1

        yield from _batches(self._options, found())
        if missing:
            self._report(partition.shard, missing, len(partition.ids))

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
        _streams(self._options).take(done.ids)
        self._done = done

    def _report(self, shard: int, missing: int, of: int) -> None:
        what = (
            f"{missing} of {of} entries of shard {shard} of {self._options.target} that this "
            f"micro-batch needs were deleted: another reader took verdicts of "
            f"{self._options.source} (a task must have one reader), or the checkpoint was restored "
            "to an older state, or Redis lost data, or the namespace was created again"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}. Make sure that this query is the only reader. Then start it with the "
                "option failOnDataLoss=false to continue without these entries, or with a new "
                "checkpointLocation to read all verdicts that wait"
            )
        log.warning("%s. The query continues without them (failOnDataLoss=false)", what)


def _streams(options: OutcomeOptions) -> OutcomeStreams:
    return OutcomeStreams(options.target.client(), options.source)


def _batches(options: OutcomeOptions, entries: Iterator[Entry]) -> Iterator[pa.RecordBatch]:
    return record_batches(entries, options.target.namespace, options.source, options.expand)
