"""Writers for ``foreachBatch``: one that tracks, one that acks and fails.

Both keep one order: the acker hears of the batch first, under the query's fence, and only then are
its messages written to the next queues. If the query dies in between, Spark runs the batch again:
the fence passes over what was applied, the queue over what was written.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.errors import ConfigError
from acker_redis.spark.acker import Acker
from acker_redis.spark.columns import optional_why
from acker_redis.spark.functions import Counted
from acker_redis.spark.report import Report


class Queue(Protocol):
    """Where messages go: writes each batch once, and all of it or nothing."""

    def write(self, df: DataFrame, query_id: str, batch_id: int) -> object:
        """Write this batch of this query, or do nothing if it was written before."""


class TrackWriter:
    """``foreachBatch`` writer of a source: each row becomes a tuple tree.

    Each row goes out once along each edge, to the queue of that edge, with the columns ``anchor``
    and ``tuple`` added. The other arguments are those of :meth:`MicroBatch.track`.
    """

    def __init__(
        self,
        acker: Acker,
        source: str,
        queues: Mapping[str, Queue],
        *,
        source_id: str | Column | Counted = "source_id",
        attempt: int | str | Column = 0,
        query_id: str | None = None,
    ) -> None:
        if not queues:
            raise ConfigError("a source needs at least one edge, with a queue to write to")
        self._acker = acker
        self._source = source
        self._queues = dict(queues)
        self._source_id = source_id
        self._attempt = attempt
        self._query_id = query_id
        self.last_report: Report | None = None
        """What became of the last batch."""

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Track a batch, then write its messages. Raises AckerError; then nothing is written."""
        with self._acker.batch(df, batch_id, query_id=self._query_id) as b:
            messages = b.track(
                source=self._source,
                source_id=self._source_id,
                edges=list(self._queues),
                attempt=self._attempt,
            )
        self.last_report = b.report
        edge_column = self._acker.names.edge
        for edge, queue in self._queues.items():
            mine = messages.where(F.col(edge_column) == edge).drop(edge_column)
            queue.write(mine, b.query_id, batch_id)


class BoltWriter:
    """``foreachBatch`` writer of a bolt: processes messages, acks or fails each.

    ``process`` takes the batch and returns rows with the ``anchor`` and ``tuple`` of the message
    that each came from; or ``anchors``, where it came from several. A row with ``why`` (STRING,
    not null) fails its trees. Every other row is sent along each edge, as a message of its own:
    if one message causes several rows on an edge, ``key`` names the columns that tell them apart.
    A message from which no row came is done: it is acked alone.

    Without queues the bolt is the last one: what it does with the rows it has done when
    ``process`` returns, and then they are acked.
    """

    def __init__(
        self,
        acker: Acker,
        process: Callable[[DataFrame, int], DataFrame],
        queues: Mapping[str, Queue] | None = None,
        *,
        key: Sequence[str | Column] = (),
        query_id: str | None = None,
    ) -> None:
        self._acker = acker
        self._process = process
        self._queues = dict(queues or {})
        self._key = key
        self._query_id = query_id
        self.last_report: Report | None = None
        """What became of the last batch."""

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Process, ack and fail a batch, then write its messages. Raises AckerError."""
        messages: dict[str, DataFrame] = {}
        with self._acker.batch(df, batch_id, query_id=self._query_id) as b:
            out = self._process(b.df, batch_id)
            names = self._acker.names
            fails = optional_why(out, names)
            if fails or self._queues:
                # One evaluation, for what has failed and for what goes out on which edge.
                out = b.freeze(out)
            if fails:
                why = F.col(names.why)
                b.fail(out.where(why.isNotNull()), why)
                out = out.where(why.isNull()).drop(names.why)
            pure = all(isinstance(column, str) for column in self._key)
            for edge in self._queues:
                messages[edge] = b.emit(out, edge=edge, key=self._key, freeze=not pure)
        self.last_report = b.report
        for edge, queue in self._queues.items():
            # Trees of a batch that came back with other content are nacked, or were acked before:
            # what it would send now belongs to nothing.
            out = messages[edge].limit(0) if b.changed else messages[edge]
            queue.write(out, b.query_id, batch_id)
