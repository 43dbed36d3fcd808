"""Writers for ``foreachBatch``: one that tracks, one that acks and fails.

Both keep one order: the batch is applied first, under the query's fence, and only then are its
messages written to the next queues. If the query dies in between, Spark runs the batch again: the
fence makes the second application a no-op, and the queue gets the messages then.

Only the sink of a last bolt is written before the batch is applied, because an ack says that the
rows are there.
"""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.errors import ConfigError
from acker_redis.spark.acker import Acker
from acker_redis.spark.fold.report import Report
from acker_redis.spark.functions import Counted
from acker_redis.spark.names import optional_why
from acker_redis.spark.streams.queue import Queue, check_queues


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
        check_queues(queues)
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
        edge_column = self._acker.application.names.edge
        for edge, queue in self._queues.items():
            mine = messages.where(F.col(edge_column) == edge).drop(edge_column)
            b.hand_on(mine, queue)


class BoltWriter:
    """``foreachBatch`` writer of a bolt: processes messages, acks or fails each.

    ``process`` takes the batch and returns rows with the ``anchor`` and ``tuple`` of the message
    that each came from; or ``anchors``, where it came from several. A row with ``why`` (STRING,
    not null) fails its trees. Every other row is sent along each edge, as a message of its own:
    if one message causes several rows on an edge, ``key`` names the columns that tell them apart.
    A message from which no row came is done: it is acked alone.

    ``sink`` is for the last bolt: the rows that did not fail, without the columns of ids, are
    written to it before their messages are acked, see :meth:`MicroBatch.write`. Without queues and
    without a sink, ``process`` itself has done all that there is to do when it returns; what it
    writes must replace what an earlier run of the batch has written.

    Raises ConfigError if two edges share a queue, and for a queue or sink without ``replace()``.
    """

    def __init__(
        self,
        acker: Acker,
        process: Callable[[DataFrame, int], DataFrame],
        queues: Mapping[str, Queue] | None = None,
        *,
        key: Sequence[str | Column] = (),
        sink: Queue | None = None,
        query_id: str | None = None,
    ) -> None:
        check_queues({**(queues or {}), **({"the sink": sink} if sink is not None else {})})
        self._acker = acker
        self._process = process
        self._queues = dict(queues or {})
        self._sink = sink
        self._key = key
        self._query_id = query_id
        self.last_report: Report | None = None
        """What became of the last batch."""

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Process, ack and fail a batch, then write its messages. Raises AckerError."""
        messages: dict[str, DataFrame] = {}
        with self._acker.batch(df, batch_id, query_id=self._query_id) as b:
            out = self._process(b.df, batch_id)
            names = self._acker.application.names
            fails = optional_why(out, names)
            if fails or self._queues or self._sink is not None:
                # One evaluation, for what has failed, what is written and what goes out.
                out = b.freeze(out)
            if fails:
                why = F.col(names.why)
                b.fail(out.where(why.isNotNull()), why)
                out = out.where(why.isNull()).drop(names.why)
            if self._sink is not None:
                b.write(out.drop(names.anchor, names.tuple, names.anchors), self._sink)
            pure = all(isinstance(column, str) for column in self._key)
            for edge in self._queues:
                messages[edge] = b.emit(out, edge=edge, key=self._key, freeze=not pure)
        self.last_report = b.report
        for edge, queue in self._queues.items():
            b.hand_on(messages[edge], queue)
