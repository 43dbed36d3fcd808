"""Writers for ``foreachBatch``: one that tracks, one that acks and fails.

Both keep one order. The batch is frozen, so that Spark cannot evaluate it twice with two
results. Then the acker hears of it, under the query's fence. Only then are its messages
written to the next queues. If the query dies in between, Spark runs the batch again: the
fence passes over what was applied, the queue over what was written.

Columns: ``anchor`` BIGINT and ``tuple`` BIGINT travel with every message; ``source_id``
STRING names a record at its source; ``why`` STRING, where it is not null, fails a message.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import DataType, IntegerType, LongType, NullType, StringType

from acker_redis.client import Acker
from acker_redis.errors import ConfigError, HighWaterError, InvalidBatchError
from acker_redis.keys import check_name
from acker_redis.spark.fold import ROW_COLUMNS, Folded, fold, fold_in_spark
from acker_redis.spark.functions import anchor, tuple_id, xor
from acker_redis.spark.lanes import Report, send, was_sent

log = logging.getLogger(__name__)

FoldMode = Literal["driver", "spark"]
_POLL_SECONDS = 0.25
_RESERVED = ("source_id", "attempt", "anchor", "tuple", "why")


class Queue(Protocol):
    """Where messages go: writes each batch once, and all of it or nothing."""

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> object:
        """Write this batch of this query, or do nothing if it was written before."""


class TrackWriter:
    """``foreachBatch`` writer of a source: each row becomes a tuple tree.

    A row needs ``source_id`` (unique per record; see ``functions.source_id``) and may have
    ``attempt`` (INT, for replays). It is sent once along each edge, to the queue of that
    edge, with the columns ``anchor`` and ``tuple`` added.

    ``task`` is the name under which the outcomes are read. ``max_wait`` is for how many
    seconds a batch waits for room below the high-water mark. ``fold`` says where rows are
    folded: ``driver`` is faster up to about a million rows a batch, ``spark`` sends the
    driver one row per tree only.
    """

    def __init__(
        self,
        acker: Acker,
        task: str,
        queues: Mapping[str, Queue],
        *,
        max_wait: float = 600.0,
        fold: FoldMode = "driver",
        query_id: str | None = None,
    ) -> None:
        if not queues:
            raise ConfigError("a source needs at least one edge, with a queue to write to")
        self._acker = acker
        self._task = check_name("task", task)
        self._queues = dict(queues)
        self._max_wait = max_wait
        self._fold: FoldMode = fold
        self._query_id = query_id
        self.last_report: Report | None = None
        """What became of the last batch."""

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Track a batch, then write its messages. Raises AckerError; then nothing is written."""
        _need(df, {"source_id": (StringType,)}, {"attempt": (IntegerType,)})
        attempt = F.col("attempt") if "attempt" in df.columns else F.lit(0)
        trees = _freeze(df.withColumn("anchor", anchor("source_id", attempt=attempt)))
        firsts = [tuple_id("anchor", edge) for edge in self._queues]
        rows = _rows(trees, F.lit(0), xor(*firsts), source=F.col("source_id"))
        folded = _collect(rows, self._fold, tracks=True)
        query_id = query_id_of(df, self._query_id)
        # A batch that is run again may be what fills the table: it must not wait for itself.
        if not was_sent(self._acker, query_id, batch_id):
            self._wait_for_room(folded)
        report = send(self._acker, query_id, batch_id, self._task, folded)
        self.last_report = report
        if report.rejected:
            # Their trees are nacked already; whatever followed would be about nothing.
            log.warning("batch %d: %d trees over high water", batch_id, len(report.rejected))
            trees = trees.where(~F.col("anchor").isin(list(report.rejected)))
        for edge, queue in self._queues.items():
            queue.write(trees.withColumn("tuple", tuple_id("anchor", edge)), query_id, batch_id)

    def _wait_for_room(self, folded: Folded) -> None:
        config = self._acker.config
        share = config.share
        trees = np.bincount(folded.anchors % config.shards, minlength=config.shards)
        if len(folded) > config.high_water or trees.max() > 2 * share:
            raise ConfigError(
                f"a batch of {len(folded)} trees does not fit under the high-water mark of "
                f"{config.high_water} ({share} per shard); make the batches smaller "
                "(maxFilesPerTrigger, maxOffsetsPerTrigger) or raise it"
            )
        # Shard by shard, as the scripts judge it; a lopsided batch may need the reserve.
        limits = np.where(trees <= share, share, 2 * share)
        waited = 0.0
        while True:
            status = self._acker.status()
            pending = np.array([sum(shard.pending) for shard in status.shards])
            if ((pending + trees <= limits) | (trees == 0)).all():
                return
            if waited == 0:
                log.info("waiting: %d pending, high water %d", status.pending, config.high_water)
            if waited >= self._max_wait:
                raise HighWaterError(
                    f"{status.pending} trees were still pending after {waited:.0f} s of waiting, "
                    f"high water is {config.high_water}; do the bolts run, and the rotator?"
                )
            time.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS


class BoltWriter:
    """``foreachBatch`` writer of a bolt: processes messages, acks or fails each.

    ``process`` takes the batch and returns at most one row per input row, with its
    ``anchor`` and ``tuple`` as they came. A row with ``why`` (STRING, not null) fails its
    tree. Every other row is acked and sent along each edge, with a ``tuple`` of its own.
    An input row that is left out is not acked: its tree expires.

    Without queues the bolt is the last one: what it does with the rows it has done when
    ``process`` returns, and then they are acked.
    """

    def __init__(
        self,
        acker: Acker,
        process: Callable[[DataFrame, int], DataFrame],
        queues: Mapping[str, Queue] | None = None,
        *,
        fold: FoldMode = "driver",
        query_id: str | None = None,
    ) -> None:
        self._acker = acker
        self._process = process
        self._queues = dict(queues or {})
        self._fold: FoldMode = fold
        self._query_id = query_id
        self.last_report: Report | None = None
        """What became of the last batch."""

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Process, ack and fail a batch, then write its messages. Raises AckerError."""
        out = self._process(df, batch_id)
        _need(out, {"anchor": (LongType,), "tuple": (LongType,)}, {"why": (StringType, NullType)})
        if "why" not in out.columns:
            out = out.withColumn("why", F.lit(None).cast("string"))
        done = _freeze(out)
        children = [tuple_id("tuple", edge) for edge in self._queues]
        emitted = F.when(F.col("why").isNull(), xor(*children)).otherwise(F.lit(0))
        delta = F.col("tuple").bitwiseXOR(emitted)
        folded = _collect(_rows(done, F.col("tuple"), delta, why=F.col("why")), self._fold)
        query_id = query_id_of(df, self._query_id)
        self.last_report = send(self._acker, query_id, batch_id, "", folded)
        messages = done.where(F.col("why").isNull()).drop("why")
        for edge, queue in self._queues.items():
            queue.write(messages.withColumn("tuple", tuple_id("tuple", edge)), query_id, batch_id)


def _freeze(df: DataFrame) -> DataFrame:
    # Lazy: the rows are kept when they are first computed, by the collect of the fold.
    return df.localCheckpoint(eager=False)


def _rows(
    df: DataFrame,
    own: Column,
    delta: Column,
    source: Column | None = None,
    why: Column | None = None,
) -> DataFrame:
    none = F.lit(None).cast("string")
    values = (F.col("anchor"), own.cast("bigint"), delta, source, why)
    named = zip(ROW_COLUMNS, values, strict=True)
    return df.select(*[(none if v is None else v).alias(name) for name, v in named])


def _collect(rows: DataFrame, mode: FoldMode, tracks: bool = False) -> Folded:
    return fold((fold_in_spark(rows) if mode == "spark" else rows).toArrow(), tracks)


Kinds = Mapping[str, tuple[type[DataType], ...]]


def _need(df: DataFrame, columns: Kinds, optional: Kinds) -> None:
    """Check names and types; for Spark ``Why`` and ``why`` are one column, for Python two."""
    for name in df.columns:
        if name not in _RESERVED and name.lower() in _RESERVED:
            raise InvalidBatchError(f"column {name} must be written {name.lower()}")
    for name, kinds in {**columns, **optional}.items():
        if name not in df.columns:
            if name in optional:
                continue
            raise InvalidBatchError(f"column {name} is missing; there are {', '.join(df.columns)}")
        if not isinstance(df.schema[name].dataType, kinds):
            raise InvalidBatchError(
                f"column {name} is {df.schema[name].dataType.simpleString()}, "
                f"it must be {kinds[0]().simpleString()}"
            )


def query_id_of(df: DataFrame, given: str | None = None) -> str:
    """Id of the streaming query that a ``foreachBatch`` DataFrame belongs to, or ``given``.

    Raises ConfigError outside of a streaming query if none is given.
    """
    query_id = given or df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query_id:
        raise ConfigError(
            "not in a streaming query: give query_id=, a name that is this writer's own for ever"
        )
    return check_name("query id", query_id)
