"""One micro-batch: it tracks, or it acks, emits, fails and touches; Redis applies it once.

Terms are collected while the ``with`` block runs, and applied together when the block ends. So the
row of a message is whole: it combines the message's input and children, even if they passed
through different DataFrames. If the block raises, nothing is acked, and Spark runs the batch again.
"""

import logging
import time
from collections.abc import Sequence
from functools import partial
from types import TracebackType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.errors import (
    ConfigError,
    DuplicateMessageError,
    InvalidBatchError,
    LaneError,
)
from acker_redis.spark.bolt_terms import BoltTerms
from acker_redis.spark.executors import check_packages
from acker_redis.spark.fold.apply import apply
from acker_redis.spark.fold.report import Report, combine
from acker_redis.spark.fold.vanished import Unmentioned
from acker_redis.spark.functions import Counted
from acker_redis.spark.input_batch import InputBatch
from acker_redis.spark.names import need_ids
from acker_redis.spark.shared_state import check_unmentioned
from acker_redis.spark.splitting import Empty, check_empty, parts
from acker_redis.spark.streams.queue import Queue, prepare, rows_written
from acker_redis.spark.tracking import Tracking, check_key

log = logging.getLogger(__name__)


class MicroBatch:
    """A micro-batch of one query; :meth:`Acker.batch` makes it.

    **A source tracks.** :meth:`track` is applied at once, and returns the messages to write.

    **A bolt emits, acks and fails.** When the ``with`` block ends, each row of :attr:`df` is acked
    together with all messages that were emitted from it. If the block raises, nothing is acked.

    **A bolt mentions each message of** :attr:`df`: a row of :meth:`emit` comes from it, or
    :meth:`ack` names it, or :meth:`fail` fails its tree. A message that the block does not mention
    has *vanished*, in an inner join or a filter: its tree fails at once (``unmentioned`` of
    :class:`Acker`). So a block that only writes or touches ends with ``b.ack()``, which mentions
    all messages. ``b.ack(rows)`` mentions the messages of rows that are left out on purpose.

    **Write after the block.** Write the messages that :meth:`emit` returned after the block has
    ended (:meth:`hand_on`). If Spark then runs the batch again, the acker applies nothing twice.

    **One evaluation.** A plan may give different rows each time that Spark computes it. Therefore
    :attr:`df` and the results of :meth:`emit` are written once, to files that are kept until the
    next batch of the query begins (``staging`` of :class:`Acker`). Pass every other DataFrame that
    two outputs share, such as a join with a table that changes, through :meth:`freeze`: a row could
    be in neither output. A block whose plans allow that is refused; Spark Connect shows no plans.

    When the block begins, it raises ConfigError if another running query of this process has the
    same ``query_id``, or if the executors lack a package (not with ``mode="driver"``; the first
    batch of an application checks that).

    When the block ends, it raises:

    - ChangedBatchError if the batch was applied before with other content;
    - LaneError if a later batch of the query was applied before;
    - DuplicateMessageError if two messages of one tree share an id, or a child has no input;
    - InvalidBatchError for an invalid id or row, and at the second output of rows that may change;
    - RedisUnavailableError or another AckerError if Redis does not apply the batch.

    Examples:
        >>> with acker.batch(df, batch_id) as b:
        ...     b.ack(b.df.where("pieces = 0"))  # left out on purpose
        ...     out = b.freeze(b.df.where("pieces > 0").join(prices, "item", "left"))
        ...     messages = b.emit(out.where("price IS NOT NULL"), edge="invoice")
        ...     b.fail(out.where("price IS NULL"), "no price")
        >>> b.hand_on(messages, queue)

    """

    def __init__(self, given: InputBatch, unmentioned: Unmentioned) -> None:
        check_unmentioned(unmentioned)
        self._input = given
        self.batch_id = given.batch_id
        self.query_id = given.query_id
        self.report: Report | None = None
        """The report of the batch; None until the batch is applied."""
        self._application = given.application
        self._shared = given.shared
        self._terms = BoltTerms(given, unmentioned)
        self._edges: set[str] = set()
        self._splits = 0
        self._written: list[Queue] = []
        self._tracked = False
        self._open = False
        self._opened = False

    @property
    def changed(self) -> bool:
        """Whether the batch was applied before with other content, and its trees were failed now.

        Write nothing of such a batch; see ``on_changed_batch`` of :class:`Acker`.
        """
        return self.report is not None and self.report.changed

    @property
    def df(self) -> DataFrame:
        """The rows of the batch, evaluated once."""
        return self._input.frozen()

    def freeze(self, df: DataFrame) -> DataFrame:
        """Evaluate rows once now; return them as committed files (``staging`` of :class:`Acker`).

        The result gives the same rows each time, until the query's next batch begins, also if tasks
        are retried, run twice, or lose their executor. Refer to its columns by name: a column of
        ``df`` itself, as in ``df["price"]``, is not one of the result. A batch that was opened with
        ``freeze=False`` caches them instead.
        """
        return self._input.freeze(df)

    def track(
        self,
        *,
        source: str,
        source_id: str | Column | Counted,
        key: str | Column | Sequence[str | Column] = (),
        edges: str | Sequence[str] = "out",
        attempt: int | str | Column = 0,
        queue: Queue | None = None,
        bad_rows: Queue | None = None,
    ) -> DataFrame:
        """Track each row, or all rows of a source id, as a tuple tree now; return the messages.

        The method first waits for room below the high-water mark, up to ``max_wait`` seconds. The
        messages have the columns of the batch, and ``anchor``, ``tuple`` and ``edge``. Messages of
        trees that were rejected (``overflow``) are left out. If the method raises, write nothing.

        Args:
            source: The name under which the verdicts are read.
            source_id: The name of each record: a unique STRING of 1 to 255 bytes, see
                :func:`source_id`. If records come again, it contains their version: two versions
                of one name that are pending together are both nacked (``conflict``). For numbered
                records :func:`kafka_source_id` or :func:`counted`, which track the trees in blocks.
            key: The columns that distinguish several rows of one source id, such as the lines of an
                order. All rows of a source id are one tree, and must be in one batch: a row in a
                later batch nacks the tree (``conflict``) while it is pending, and is a separate
                tree after that. Without ``key`` each row needs its own source id.
            edges: The edges that each record takes, with one message on each.
            attempt: The attempt (INT), 0 or more. It separates the tree of a replay from the rest
                of the first attempt's tree.
            queue: The queue that :meth:`hand_on` writes the messages to. With one edge and a
                :class:`FileQueue` the rows are written once, with their ids, and ``hand_on`` of
                exactly these messages renames the folder. After that, the messages cannot be read.
            bad_rows: A queue for rows that cannot be tracked: their source id is null, not of 1 to
                255 bytes, not UTF-8, has control characters, or occurs twice in the batch (with
                one attempt and key; beside a ledger, with any), or their number is below 0. They
                are written to it before anything is tracked, with a column ``why``, and the report
                counts them (``bad``). The rows of the batch are written once more. If a batch
                that was not applied runs again, now without bad rows, those of its first run stay
                in the queue. Without ``bad_rows``, such a row is an error, and stops the query at
                each start.

        Raises:
            HighWaterError: The trees did not fit below the high-water mark in time.
            BacklogError: The source's verdicts were not taken in time, or a reshard did not end.
            ConfigError: The batch is larger than the high-water mark, ``source`` is invalid, or
                ``key`` is given for numbered records or beside a ledger.
            ChangedBatchError: The batch was applied before with other content.
            LaneError: A later batch of the query was applied before.
            InvalidBatchError: A source id, number, attempt, edge or column is invalid, or two rows
                have the same source id and key. ``bad_rows`` takes the rows with such ids.

        Examples:
            >>> with acker.batch(df, batch_id) as b:
            ...     messages = b.track(source="shop", source_id=kafka_source_id(), edges="price")
            >>> b.hand_on(messages, queue)

        """
        self._check_open()
        if self._tracked or self._terms.used:
            raise InvalidBatchError(
                "a batch tracks once, and then neither acks nor emits: to track trees in a bolt, "
                "open a second batch with an Acker that has another app_id"
            )
        self._tracked = True
        names = [edges] if isinstance(edges, str) else list(edges)
        if not names or len(set(names)) < len(names) or not all(names):
            raise InvalidBatchError(f"edges must be one or more distinct names, not {edges!r}")
        columns = check_key(key, source_id, self._application.ledger)
        prepare(
            queue, self._input.rows, self._application.names.anchor, self._application.names.tuple
        )
        tracking = Tracking(self._input, source, names, attempt, columns, queue, bad_rows)
        with self._input.described("track"), self._input.once_a_run():
            messages, self.report = tracking.run(self._input.rows, source_id)
        self._input.note(self.report)
        return messages

    def emit(
        self,
        df: DataFrame,
        *,
        edge: str,
        key: Sequence[str | Column] = (),
        anchors: str | Column | None = None,
        unanchored: bool = False,
        freeze: bool = True,
        queue: Queue | None = None,
    ) -> DataFrame:
        """Return the messages that this batch emits, one for each row of ``df``; write them later.

        In the result, ``tuple`` is the id of the new message.

        Args:
            df: Rows made from :attr:`df` by any plan. They still have the ``anchor`` and ``tuple``
                of the message that they came from.
            edge: The edge that the messages take. A batch emits on an edge once.
            key: The columns that distinguish several rows of one input.
            anchors: For rows of several inputs, such as a join or a window: the column of
                :func:`anchors_of` or :func:`collect_anchors`. The message belongs to all their
                trees.
            unanchored: Accept rows without ids, as messages that are not tracked. Without it such a
                row is an error.
            freeze: With False, the result is not kept. Right for rows that :meth:`freeze` keeps.
            queue: The queue that :meth:`hand_on` writes the messages to. With a :class:`FileQueue`
                the rows are written once, with their ids, and ``hand_on`` of exactly these messages
                renames the folder. After that, the messages cannot be read.

        Raises:
            InvalidBatchError: The edge is empty or was emitted before, a column is missing or has
                the wrong type, or the block is not open.

        """
        self._check_bolt()
        if edge in self._edges or not edge:
            raise InvalidBatchError(
                f"edge {edge!r} is empty or was already emitted in this batch: union the rows, or "
                "use another edge"
            )
        self._edges.add(edge)
        output = df
        if freeze or queue is not None:
            self._terms.once(output)
        names = self._application.names
        if anchors is not None:
            pairs = F.col(anchors) if isinstance(anchors, str) else anchors
            df = df.withColumn(names.anchors, pairs).drop(names.anchor, names.tuple)
        # A later batch may emit a row of this batch again. That is another message, so its id must
        # differ: two messages of one id would cancel.
        ids, run = self._input.ids, self._input.run
        covered = self._terms.covered(df)
        if not covered:
            df = self._terms.with_parents(df)
        many = need_ids(df, names)
        again = many and self._input.kept(df) and all(isinstance(each, str) for each in key)
        if many:
            out = ids.children_of_many(df, names.anchors, edge, key, run)
        else:
            out = ids.add_messages(df, names.tuple, {names.tuple: edge}, key, run)
        if queue is not None:
            out = self._input.stage(out, queue, output)
        elif freeze and not again:  # rows that are kept get the same ids each time
            out = self._input.freeze(out, output)
        messages = self._input.returned(out, self._terms.emit(out, unanchored))
        prepare(queue, messages)
        if covered:
            covered.mentioned = True
        return messages

    def split(
        self,
        df: DataFrame,
        column: str,
        *,
        key: str | Column | Sequence[str | Column] = (),
        edge: str = "",
        empty: Empty = "vanish",
    ) -> DataFrame:
        """Return a row for each element of an array column; the job must mention each row.

        Several rows of one message mention it together, so a row that a join or a filter drops is
        not missed. Call this method before such a step: each row becomes a part of the message,
        which the job emits from, acks or fails like a message. A part that the job does not mention
        has vanished, and the tree fails (``unmentioned`` of :class:`Acker`). ``b.ack()`` names the
        messages and none of their parts.

        In the result, ``column`` has the element, and ``tuple`` the id of the part.

        Args:
            df: Rows made from :attr:`df`, with their ids.
            column: The name of the array column.
            key: The columns that distinguish the elements of one message; they may refer to the
                element: ``key="items.sku"``. By default its place in the array. Equal keys in one
                message are an error when the block ends.
            edge: An edge of the namespace that the ids of the parts name, for the report.
            empty: What happens to a message whose array is null or empty, so that it has no part:
                ``vanish`` mentions nothing, so its tree fails if no other row mentions it. ``ack``
                acks the message as left out.

        Raises:
            InvalidBatchError: A column is missing or has the wrong type, or the block is not open.

        Examples:
            >>> lines = b.split(b.df, "items", key="items.sku")
            >>> messages = b.emit(lines.join(prices, "item"), edge="invoice")

        """
        self._check_bolt()
        check_empty(empty)
        given, names = self._input, self._application.names
        self._terms.once(df)
        self._splits += 1
        # The rows of a committed file give the same parts each time, and the same empty arrays.
        df = df if given.kept(df) else self.freeze(df)
        # The purpose keeps these ids apart from those of messages on an edge of the same name.
        run = f"split {self._splits}/{given.run}"
        out = parts(self._terms.with_parents(df), column, key, edge, run, given.ids, names)
        return self._terms.split(out, df, column, empty)

    def ack(
        self,
        df: DataFrame | None = None,
        *,
        children: str | Column | None = None,
        unanchored: bool = False,
    ) -> None:
        """Ack these messages, from which nothing may have been emitted.

        For rows that are left out on purpose, and for the end of a block that emits nothing:
        ``b.ack()``.

        Args:
            df: Rows made from :attr:`df`, with their ids, in any number and order; None for all
                messages of the batch. Without ``children`` Spark evaluates them once here and does
                not keep them: if you also write them, pass them through :meth:`freeze` before.
            children: The ids of the messages that each row caused, made by
                :meth:`Ids.tuple_id`: BIGINT or ARRAY<BIGINT>. Null and 0 are ignored.
            unanchored: Accept rows without ids, here and in the batch, and ignore them. Without it
                such a row is an error.

        Raises:
            InvalidBatchError: A column is missing or has the wrong type, ``children`` is given for
                rows with ``anchors``, or the block is not open. When the block ends: a row is no
                message of this batch.

        """
        self._check_bolt()
        if df is not None and not self._input.is_whole(df):
            self._terms.once(df)
        self._terms.ack(df, children, unanchored)

    def fail(self, df: DataFrame, why: str | Column = "") -> None:
        """Fail the trees of these rows: each gets a nack at once.

        The messages themselves are acked like all others, because they were processed.

        Args:
            df: Rows made from :attr:`df`, with their ids.
            why: The reason for people, as text or as a column; cut at 255 bytes.

        Raises:
            InvalidBatchError: A column is missing or has the wrong type, or the block is not open.

        """
        self._check_bolt()
        self._terms.once(df)
        self._terms.fail(df, why)

    def touch(self, df: DataFrame) -> None:
        """Reset the timeout of the trees of these rows, because they need more time.

        It mentions no message: a job that has not processed one leaves it out (``unmentioned`` of
        :class:`Acker`), and else acks it, too.
        """
        self._check_bolt()
        self._terms.touch(df)

    @property
    def name(self) -> str:
        """The name of the query for queues and sinks, ``APP@QUERY``.

        It includes the app id, because queries of two applications may have the same id.
        """
        return self._input.name

    def write(self, df: DataFrame, sink: Queue, *, ack: bool = False) -> None:
        """Write the rows of a last bolt to a sink, before its messages are acked.

        - If Redis has no call of this batch, the rows **replace** the rows of an earlier run. The
          earlier run may have seen other rows, and its acks were never applied.
        - If Redis has a call of this batch, the rows of the run that sent it **stay**, because its
          acks count.

        Args:
            df: The rows. Without ``ack`` they must come from the same evaluation as the acked
                messages; see :meth:`freeze`.
            sink: A sink whose ``replace()`` and ``write()`` keep the rules of :class:`Queue`.
            ack: Then ack the messages that these rows came from, and leave the columns of ids out
                of the sink. The rows are evaluated once, so exactly the written ones are acked. If
                the plan only selects and computes columns of :attr:`df`, the sink is all that is
                written; else the rows are first written with their ids, as by :meth:`freeze`.

        Raises:
            LaneError: A second driver applied the batch while this driver replaced its rows.
            InvalidBatchError: This batch was already written to this sink, the block is not open,
                or, with ``ack``, a column of ids is missing.
            ConfigError: The acker has ``on_changed_batch='fail_trees'``.

        Examples:
            >>> with acker.batch(df, batch_id) as b:
            ...     b.write(b.df.join(customers, "customer"), table, ack=True)

        """
        self._check_bolt()
        if self._application.on_changed_batch != "raise":
            raise ConfigError(
                "on_changed_batch='fail_trees' continues after a batch that came back with other "
                "content, and the sink may then lack rows that were acked: "
                "use 'raise' for a query that writes before its ack"
            )
        self._check_unwritten(sink)
        self._terms.once(df)
        if not ack:
            returned = self._replace(df, sink)
            self._terms.wrote(df, partial(rows_written, sink, returned, self.name, self.batch_id))
            return
        names = self._application.names
        ids = [names.anchors] if need_ids(df, names) else [names.anchor, names.tuple]
        if not (self._terms.covered(df) or self._input.kept(df)):
            df = self._input.freeze(df)
        self._replace(df.drop(*ids), sink)
        # Not before: a job may catch an error of the sink, and then no row is there.
        self._terms.ack(df, None, unanchored=False)

    def _replace(self, df: DataFrame, sink: Queue) -> object:
        """Write rows to a sink, in place of those of a run whose acks were never applied.

        Return what its method returns.
        """
        applied = self._input.was_applied()
        with self._input.steps("write"):
            write = sink.write if applied else sink.replace
            returned = write(df, self.name, self.batch_id)
        if not applied and self._input.was_applied():
            raise LaneError(
                f"batch {self.batch_id} of query {self.query_id} was applied by a second driver "
                "while this one replaced its rows in the sink: rows that were acked may be "
                "missing there. Stop one of the two, and process this batch again under a new "
                "checkpoint"
            )
        return returned

    def hand_on(self, messages: DataFrame, queue: Queue) -> None:
        """Write messages to the next queue, after the ``with`` block.

        - If Redis had no call of this batch before, the messages **replace** a batch of the same
          name in the queue: that batch stems from an earlier namespace of the same name.
        - If Redis had calls of this batch, the messages are written unless the queue has the batch.
        - If the batch is :attr:`changed`, no message is written: each tree was nacked now, or had
          its verdict before.

        Args:
            messages: The messages that :meth:`track` or :meth:`emit` returned.
            queue: The queue of the next query.

        Raises:
            InvalidBatchError: The batch is not applied yet, or was already written to this queue.

        """
        if self.report is None:
            raise InvalidBatchError(
                "hand_on() needs an applied batch: call it after the with block, or after track()"
            )
        self._check_unwritten(queue)
        repeated = bool(self.report.repeated or self.report.changed)
        aside = None if self.report.changed else self._input.aside(messages, queue)
        if aside is not None:
            aside.publish(replace=not repeated)
            aside.delete()
            return
        rows = messages.limit(0) if self.report.changed else messages
        write = queue.write if repeated else queue.replace
        write(rows, self.name, self.batch_id)

    def is_staged(self, messages: DataFrame, queue: Queue | None) -> bool:
        """Return whether :meth:`hand_on` publishes these messages without writing them again."""
        return queue is not None and self._input.aside(messages, queue) is not None

    def _check_unwritten(self, queue: Queue) -> None:
        """Raise InvalidBatchError for a second write to one queue; it would replace the first."""
        if any(queue is each or queue == each for each in self._written):
            raise InvalidBatchError(
                "this batch was already written to this queue, which accepts a batch once: union "
                "the rows, or use a second queue"
            )
        self._written.append(queue)

    def __enter__(self) -> "MicroBatch":
        if self._opened:
            raise InvalidBatchError(
                "a batch can be opened once: call acker.batch(df, batch_id) again"
            )
        if self._application.mode != "driver":
            check_packages(self._input.rows.sparkSession)
        self._input.claim()
        self._open = self._opened = True
        self._shared.begins(self.query_id, self._input.rows)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._shared.forget(self.query_id)
        elif not self._tracked:
            self._open = False
            try:
                self._apply()
            except BaseException:
                self._shared.forget(self.query_id)
                raise
        self._open = False

    def _apply(self) -> None:
        given, began = self._input, time.monotonic()
        job, terms = self._terms.finish()
        with given.steps("read_ids"):
            place = self._shared.place(given.rows, self.query_id, given.is_frozen, terms)
        with given.described("apply"), given.once_a_run():
            try:
                done = apply(job, terms, place, given.keep, given.steps)
            except DuplicateMessageError:
                twice = self._terms.delivered_twice(terms)
                if twice.isEmpty():
                    raise
                others = self._terms.without(terms, twice)
                done = apply(job, others, place, given.keep, given.steps)
        self.report = combine(
            done.shards,
            query_id=self.query_id,
            batch_id=self.batch_id,
            mode=place,
            waited_ms=0,
            ms=round(1000 * (time.monotonic() - began)),
            changed=done.changed,
            timings=given.steps.timings,
        )
        given.note(self.report)
        self._terms.warn(self.report)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidBatchError(
                "the batch is not open; use it as: with acker.batch(df, batch_id) as b: .."
            )

    def _check_bolt(self) -> None:
        self._check_open()
        if self._tracked:
            raise InvalidBatchError(
                "a batch that tracks neither acks nor emits: open a second batch with an Acker "
                "that has another app_id"
            )
