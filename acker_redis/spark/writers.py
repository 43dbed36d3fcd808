"""Writers for ``foreachBatch``: one that tracks, one that acks and fails.

Both writers keep one order: first the acker applies the batch, under the query's fence; then the
writer writes the messages to the next queues. If the query dies between the two steps, Spark runs
the batch again. The fence makes the second application a no-op, and the writer then writes the
messages.

The sink of a last bolt is the exception: the writer writes it before the acker applies the batch,
because an ack says that the rows exist.
"""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.errors import ConfigError
from acker_redis.spark.acker import Acker
from acker_redis.spark.fold.report import Report
from acker_redis.spark.fold.vanished import Unmentioned
from acker_redis.spark.functions import Counted
from acker_redis.spark.micro_batch import MicroBatch
from acker_redis.spark.names import optional_why
from acker_redis.spark.shared_state import check_unmentioned
from acker_redis.spark.splitting import Split
from acker_redis.spark.streams.queue import Queue, check_queues
from acker_redis.spark.tracking import check_key


class TrackWriter:
    """A ``foreachBatch`` writer of a source: tracks each row, or rows of one source id, as a tree.

    The writer sends each row once along each edge, to the queue of that edge, with the columns
    ``anchor`` and ``tuple`` added.

    Args:
        acker: The acker of the application.
        source: The name under which the verdicts are read.
        queues: The queue for each edge. Two edges need two queues.
        source_id: As in :meth:`MicroBatch.track`.
        key: As in :meth:`MicroBatch.track`.
        attempt: As in :meth:`MicroBatch.track`.
        bad_rows: As in :meth:`MicroBatch.track`.
        query_id: As in :meth:`Acker.batch`.

    Raises:
        ConfigError: There is no queue, two edges share one, a queue has no ``replace()``; or there
            is a ``key`` for numbered records or beside a ledger.

    Examples:
        >>> writer = TrackWriter(acker, "shop", {"price": queue}, source_id="order_id")
        >>> query = orders.writeStream.foreachBatch(writer).start()

    """

    def __init__(
        self,
        acker: Acker,
        source: str,
        queues: Mapping[str, Queue],
        *,
        source_id: str | Column | Counted = "source_id",
        key: str | Column | Sequence[str | Column] = (),
        attempt: int | str | Column = 0,
        bad_rows: Queue | None = None,
        query_id: str | None = None,
    ) -> None:
        if not queues:
            raise ConfigError("a source needs at least one edge, with a queue to write to")
        check_queues({**queues, **({"bad rows": bad_rows} if bad_rows is not None else {})})
        self._bad_rows = bad_rows
        self._acker = acker
        self._source = source
        self._queues = dict(queues)
        self._source_id = source_id
        self._key = check_key(key, source_id, acker.application.ledger)
        self._attempt = attempt
        self._query_id = query_id
        self.last_report: Report | None = None
        """The report of the last batch."""

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Track a batch, then write its messages.

        Raises:
            AckerError: The batch was not tracked; no message is written.

        """
        with self._acker.batch(df, batch_id, query_id=self._query_id) as b:
            messages = b.track(
                source=self._source,
                source_id=self._source_id,
                key=self._key,
                edges=list(self._queues),
                attempt=self._attempt,
                queue=only(self._queues),
                bad_rows=self._bad_rows,
            )
        self.last_report = b.report
        hand_on(b, messages, self._queues, self._acker.application.names.edge)


def hand_on(
    batch: MicroBatch, messages: DataFrame, queues: Mapping[str, Queue], column: str
) -> None:
    """Write the messages that ``track`` returned to the queues of their edges.

    ``column`` is the name of the column of edges, which is not written if it can be left out.
    """
    if batch.is_staged(messages, only(queues)):
        batch.hand_on(messages, *queues.values())
        return
    for edge, queue in queues.items():
        batch.hand_on(messages.where(F.col(column) == edge).drop(column), queue)


def only(queues: Mapping[str, Queue]) -> Queue | None:
    """Return the queue if there is one; None if there are several, or none."""
    [queue] = queues.values() if len(queues) == 1 else [None]
    return queue


class BoltWriter:
    """A ``foreachBatch`` writer of a bolt: processes messages, and acks or fails each of them.

    A row of ``process`` with ``why`` (STRING, not null) fails its trees. Every other row is sent
    along each edge as a separate message; without queues it acks its message. A message without a
    resulting row has vanished, and its tree fails. If ``process`` leaves out rows on purpose, pass
    ``unmentioned="ack"``.

    Args:
        acker: The acker of the application.
        process: ``process(df, batch_id)`` returns rows with the ``anchor`` and ``tuple`` of the
            message that each row came from, or with ``anchors`` if it came from several. Without
            queues and without a sink, ``process`` must have done all its work when it returns, and
            its output must replace the output of an earlier run of the batch.
        queues: The queue for each edge. Two edges need two queues.
        key: The columns that distinguish several rows of one message on one edge.
        split: Makes rows of an array column before ``process``, which then loses none of them
            unnoticed; see :meth:`MicroBatch.split`.
        sink: The output of a last bolt. Rows that did not fail are written to it, without the
            columns of ids, before their messages are acked; see :meth:`MicroBatch.write`.
        query_id: As in :meth:`Acker.batch`.
        unmentioned: The treatment of a message without a resulting row, in place of that of the
            ``Acker``. With ``ack``, rows for the sink need no ids: they may be sums.

    Raises:
        ConfigError: Two edges share a queue, or a queue or the sink has no ``replace()``; or
            ``unmentioned`` is invalid.

    Examples:
        >>> def price(df, batch_id):
        ...     missing = F.when(F.col("price").isNull(), F.lit("no price"))
        ...     return df.join(prices, "item", "left").withColumn("why", missing)
        >>> writer = BoltWriter(acker, price, {"invoice": queue})
        >>> query = messages.writeStream.foreachBatch(writer).start()

    """

    def __init__(
        self,
        acker: Acker,
        process: Callable[[DataFrame, int], DataFrame],
        queues: Mapping[str, Queue] | None = None,
        *,
        key: Sequence[str | Column] = (),
        split: Split | None = None,
        sink: Queue | None = None,
        query_id: str | None = None,
        unmentioned: Unmentioned | None = None,
    ) -> None:
        check_queues({**(queues or {}), **({"the sink": sink} if sink is not None else {})})
        self._acker = acker
        self._process = process
        self._queues = dict(queues or {})
        self._sink = sink
        self._key = key
        self._split = split
        self._query_id = query_id
        self._unmentioned = unmentioned or acker.application.unmentioned
        check_unmentioned(self._unmentioned)
        self.last_report: Report | None = None
        """The report of the last batch."""

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Process, ack and fail a batch, then write its messages.

        Raises:
            AckerError: The batch was not applied; no message is written to a queue.

        """
        messages: dict[str, DataFrame] = {}
        batch = self._acker.batch(
            df, batch_id, query_id=self._query_id, unmentioned=self._unmentioned
        )
        with batch as b:
            rows = b.df
            if at := self._split:
                rows = b.split(rows, at.column, key=at.key, edge=at.edge, empty=at.empty)
            out = self._process(rows, batch_id)
            names = self._acker.application.names
            fails = optional_why(out, names)
            queue = only(self._queues)
            if fails or len(self._queues) + (self._sink is not None) > 1:
                # Failed rows, rows for the sink and messages must come from one evaluation.
                out = b.freeze(out)
            if fails:
                why = F.col(names.why)
                b.fail(out.where(why.isNotNull()), why)
                out = out.where(why.isNull()).drop(names.why)
            acks = not self._queues and self._unmentioned != "ack"
            if self._sink is not None:
                ids = () if acks else (names.anchor, names.tuple, names.anchors)
                b.write(out.drop(*ids), self._sink, ack=acks)
            elif acks:
                b.ack(out)
            pure = all(isinstance(column, str) for column in self._key)
            for edge in self._queues:
                messages[edge] = b.emit(out, edge=edge, key=self._key, freeze=not pure, queue=queue)
        self.last_report = b.report
        for edge, queue in self._queues.items():
            b.hand_on(messages[edge], queue)
