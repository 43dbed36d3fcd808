"""The data source ``acker-outcomes``: verdicts of a task, as a stream or as a table.

Reading a stream deletes: the one streaming query of a task is its reader, in place of
``acker.outcomes(task)``, see :mod:`acker_redis.spark.one_reader`. A batch read only looks.

Offsets list the ids of the entries that were read, see ``outcome_offsets.py``. Spark commits a
micro-batch when it has logged the next one. Until then its entries stay in Redis, so a batch that
runs again reads the same. A query that dies between log and commit leaves entries that no batch
reads again. The first batch that a new reader plans takes them: Spark plans it only when all
batches before it are done.
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
    """Make ``acker-outcomes`` known to a session; the executors need acker-redis as well.

    >>> register(spark)
    >>> verdicts = spark.read.format("acker-outcomes").options(
    ...     url="redis://localhost", namespace="orders", source="shop"
    ... )
    """
    spark.dataSource.register(OutcomesSource)


class OutcomesSource(DataSource):
    """Verdicts of one task; what its options are is said in ``docs/reference/spark.md``."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return NAME

    def schema(self) -> str:
        """Columns of a verdict; raises ConfigError if the options cannot be."""
        OutcomeOptions.parse(self.options)
        return SCHEMA

    def reader(self, schema: StructType) -> "OutcomesReader":
        """Reader of what waits now, which deletes nothing."""
        return OutcomesReader(self._options(schema))

    def streamReader(self, schema: StructType) -> "OutcomesStreamReader":  # noqa: N802 - Spark's
        """Reader of a streaming query."""
        options = self._options(schema)
        one = OneReader(options.target.url, options.target.namespace, options.source)
        return OutcomesStreamReader(options, one)

    def _options(self, schema: StructType) -> OutcomeOptions:
        if schema.fieldNames() != [column.split()[0] for column in SCHEMA.split(", ")]:
            raise ConfigError(f"{NAME} has a schema of its own: leave out .schema(), and select")
        return OutcomeOptions.parse(self.options)


@dataclass
class WaitingPartition(InputPartition):
    """Entries of one shard, from the oldest to an id."""

    shard: int
    last: str


@dataclass
class ListedPartition(InputPartition):
    """Entries of one shard, by their ids."""

    shard: int
    ids: Ids


class OutcomesReader(DataSourceReader):
    """Reads what waited when the read was planned, and deletes nothing."""

    def __init__(self, options: OutcomeOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One per shard in which verdicts wait."""
        last_ids = _streams(self._options).last_ids()
        return [WaitingPartition(shard, last) for shard, last in last_ids.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of a shard; entries that were taken since are not among them."""
        # Where nothing waits, Spark makes a partition of its own.
        if isinstance(partition, WaitingPartition):
            streams = _streams(self._options)
            yield from _batches(
                self._options, streams.entries_until(partition.shard, partition.last)
            )


class OutcomesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads and takes the verdicts of a task for a streaming query."""

    IDLE_SECONDS = 0.1
    """Time between two looks into empty streams; Spark asks some 95 times a second."""
    THOROUGH = 50
    """Every so many looks also what seldom changes is looked at: how many shards there are, and
    whether a failover brought new entries in between those of the last batch."""

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
        """Offset of a query without a checkpoint: all that waits is new."""
        return self._nothing.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """The option maxEntriesPerTrigger: entries, each of up to 4095 trees."""
        return ReadMaxRows(self._options.max_entries)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Note what waits now; what comes later is left for another run."""
        self._hold()
        self._until = _streams(self._options).last_ids()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Oldest entries that are not in ``start``; ``start`` itself if there are none.

        An empty look is followed by a pause before the next one. Without a limit it is 10,000
        entries per shard.
        """
        self._hold()
        done = self._nothing.parse(start)
        time.sleep(max(0.0, self._not_before - time.monotonic()))
        streams = _streams(self._options)
        thorough = self._looks % self.THOROUGH == 0
        if thorough:
            streams.announce()
        streams.shards(anew=thorough)
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
        """One per shard of the micro-batch.

        Raises ConfigError if the one before it was not committed, or another reader of the task
        is there.
        """
        # Spark asks so on a restart, when the last batch may not be done yet.
        if start == end:
            return []
        self._hold()
        before, batch = self._nothing.parse(start), self._nothing.parse(end)
        if before.ids and before != self._done:
            if self._planned:
                raise ConfigError(
                    f"Spark runs on without a commit of what was read: {NAME} cannot do with "
                    "asynchronous progress tracking, leave out asyncProgressTrackingEnabled"
                )
            self._take(before)
        self._planned = True
        return [ListedPartition(shard, ids) for shard, ids in batch.without(before).items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of a shard.

        Raises DataLossError if entries are gone, unless failOnDataLoss is false.
        """
        if not isinstance(partition, ListedPartition):
            return
        gone = 0

        def found() -> Iterator[Entry]:
            nonlocal gone
            for entry in _streams(self._options).entries(partition.shard, partition.ids):
                if entry:
                    yield entry
                else:
                    gone += 1

        yield from _batches(self._options, found())
        if gone:
            self._report(partition.shard, gone, len(partition.ids))

    def commit(self, end: dict[str, Any]) -> None:
        """Delete the entries of a micro-batch that is done, and no others."""
        self._hold()
        self._take(self._nothing.parse(end))

    def stop(self) -> None:
        """The query has ended: the next one may read."""
        if self._one:
            self._one.release()

    def _hold(self) -> None:
        # Not when it is made: each task of the query makes one as well, to read what was planned.
        if self._one:
            self._one.hold()

    @property
    def _nothing(self) -> VerdictOffset:
        return VerdictOffset(self._options.target.namespace, self._options.source)

    def _take(self, done: VerdictOffset) -> None:
        _streams(self._options).take(done.ids)
        self._done = done

    def _report(self, shard: int, gone: int, of: int) -> None:
        what = (
            f"{gone} of {of} entries of shard {shard} of {self._options.target} are gone that this "
            f"micro-batch is to have: another reader took verdicts of {self._options.source} "
            "(a task has one reader), or the checkpoint was restored to an older state, or Redis "
            "lost data, or the namespace was created anew"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}. See to it that this query is the only reader; then start it with the "
                "option failOnDataLoss=false to go on without them, or with a new "
                "checkpointLocation to read all that waits"
            )
        log.warning("%s. The query goes on without them (failOnDataLoss=false)", what)


def _streams(options: OutcomeOptions) -> OutcomeStreams:
    return OutcomeStreams(options.target.client(), options.source)


def _batches(options: OutcomeOptions, entries: Iterator[Entry]) -> Iterator[pa.RecordBatch]:
    return record_batches(entries, options.target.namespace, options.source, options.expand)
