"""One micro-batch: what it tracks, or what it acks, emits, fails and touches, applied once.

Terms are collected while the block runs, and applied as one when it ends: a message's row is
whole, whichever DataFrames its input and its children came through. If the block raises, nothing is
acked, and Spark runs the batch again.
"""

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import reduce
from types import TracebackType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import ArrayType, LongType

from acker_redis.errors import (
    ConfigError,
    DuplicateMessageError,
    InvalidBatchError,
    LaneError,
)
from acker_redis.spark.fold.apply import Terms, apply
from acker_redis.spark.fold.report import Report, combine
from acker_redis.spark.fold.terms import Kind
from acker_redis.spark.functions import Counted, tuple_id
from acker_redis.spark.given import Given
from acker_redis.spark.memory import Memory
from acker_redis.spark.names import need_ids
from acker_redis.spark.queries import described
from acker_redis.spark.streams.queue import Queue
from acker_redis.spark.tracking import Tracking

log = logging.getLogger(__name__)


class MicroBatch:
    """A micro-batch of one query; made by ``Acker.batch``.

    A source tracks: ``track`` is applied at once, and returns the messages to write. A bolt emits,
    fails and touches; when the block ends, each row of ``df`` is acked with all it caused. Write
    what ``emit`` returned behind the block: then a batch that is run again only repeats.

    Of nondeterministic plans one evaluation counts: ``df`` and what ``emit`` returns are kept
    (``localCheckpoint``) until the query's next batch begins. Whatever else two branches share, a
    join with a table that changes say, goes through :meth:`freeze`.
    """

    def __init__(
        self, memory: Memory, df: DataFrame, batch_id: int, query_id: str, freezes: bool = True
    ) -> None:
        self._given = Given(memory, df, batch_id, query_id, freezes)
        self.batch_id = batch_id
        self.query_id = query_id
        self.report: Report | None = None
        """What became of it, once it was applied."""
        self._application = memory.application
        self._memory = memory
        self._terms: list[Terms] = []
        self._edges: set[str] = set()
        self._written: list[Queue] = []
        self._acks = False
        self._tracked = False
        self._open = False
        self._opened = False

    @property
    def changed(self) -> bool:
        """Whether the batch came back with other content, and its trees were failed therefore.

        Then nothing of it is to be written: see ``on_changed_batch`` of :class:`Acker`.
        """
        return self.report is not None and self.report.changed

    @property
    def df(self) -> DataFrame:
        """The rows of the batch, of one evaluation."""
        return self._given.frozen()

    def freeze(self, df: DataFrame) -> DataFrame:
        """The same rows whenever they are asked for, until the query's next batch begins.

        They are computed now, or, in one process, when they are first asked for: there Spark
        computes a partition once, and the executors of a cluster could compute it at once, twice.
        """
        return self._given.freeze(df)

    def track(
        self,
        *,
        source: str,
        source_id: str | Column | Counted,
        edges: str | Sequence[str] = "out",
        attempt: int | str | Column = 0,
    ) -> DataFrame:
        """Track each row as a tuple tree, now, and return its messages, to be written.

        ``source`` is the name under which the verdicts are read. ``source_id`` names a record:
        STRING, unique, 1 to 255 bytes (see :func:`source_id`); or, of records that count,
        :func:`kafka_source_id` or :func:`counted`: their trees stand in blocks. ``edges`` are the
        ways on which each record goes out, one message each. ``attempt`` (INT) tells a replay
        from what is left of the first.

        The messages have the columns of ``df``, and ``anchor``, ``tuple`` and ``edge``; those of
        trees that were rejected (``overflow``) are left out. Waits for room below the high-water
        mark first. Raises HighWaterError, ChangedBatchError, InvalidBatchError, ... and then
        nothing is to be written.
        """
        self._check_open()
        if self._tracked or self._terms or self._acks:
            raise InvalidBatchError(
                "a batch tracks once, and neither acks nor emits: a bolt that is a source of other "
                "trees too opens a batch for them of an Acker with another app_id"
            )
        self._tracked = True
        names = [edges] if isinstance(edges, str) else list(edges)
        if not names or len(set(names)) < len(names) or not all(names):
            raise InvalidBatchError(f"edges are one or more different names, not {edges!r}")
        tracking = Tracking(self._given, source, names, attempt)
        with self._described("track"), self._given.once_a_run():
            messages, self.report = tracking.run(self._given.rows, source_id)
        self._given.note(self.report)
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
    ) -> DataFrame:
        """Messages that this batch's messages cause, to be written; one for each row of ``df``.

        ``df`` comes from this batch's ``df`` in any way, with the ``anchor`` and ``tuple`` that its
        rows came with; in what is returned, ``tuple`` is the new message's. ``edge`` names the way
        they take, once in a batch, and ``key`` the columns that tell several rows of one input
        apart. A row of many inputs, of a join or a window, gives ``anchors``, see
        :func:`anchors_of` and :func:`collect_anchors`; its message belongs to all their trees.
        With ``unanchored`` rows without ids are messages that nobody tracks; else an error.
        With ``freeze=False`` nothing is kept: right for what :meth:`freeze` has kept already.
        """
        self._check_bolt()
        if edge in self._edges or not edge:
            raise InvalidBatchError(
                f"edge {edge!r} was emitted already in this batch: union the rows, or name another"
            )
        self._edges.add(edge)
        # A row that is kept and emitted again by a later batch is another message: two of one id
        # would cancel.
        way = f"{edge}@{self.query_id}/{self.batch_id}"
        names = self._application.names
        if anchors is not None:
            pairs = F.col(anchors) if isinstance(anchors, str) else anchors
            df = df.withColumn(names.anchors, pairs).drop(names.anchor, names.tuple)
        if need_ids(df, names):
            child = F.transform(
                names.anchors,
                lambda pair: F.struct(
                    pair["anchor"].alias("anchor"),
                    tuple_id(pair["tuple"], way, *key).alias("tuple"),
                ),
            )
            out = df.withColumn(names.anchors, child)
        else:
            out = df.withColumn(names.tuple, tuple_id(names.tuple, way, *key))
        out = self.freeze(out) if freeze else out
        self._terms.append(Terms(Kind.CHILD, self._pairs(out, unanchored)))
        return out

    def ack(
        self,
        df: DataFrame | None = None,
        *,
        children: str | Column | None = None,
        unanchored: bool = False,
    ) -> None:
        """Ack these messages, in place of all of the batch; those that are left out expire.

        ``children`` are ids of messages that each row caused, BIGINT or ARRAY<BIGINT>, made by
        :func:`tuple_id`; null and 0 are none. Without them, rows are evaluated once here, and not
        kept: if they are also written, freeze them before.
        """
        self._check_bolt()
        self._acks = True
        rows = self.df if df is None else df
        names = self._application.names
        if children is not None:
            if need_ids(rows, names):
                raise InvalidBatchError("messages of many trees have no children=: use emit()")
            rows = self.freeze(rows.withColumn(_CHILDREN, _ids_of(rows, children)))
            pairs = rows.select(
                F.col(names.anchor).alias("anchor"), F.explode(_CHILDREN).alias("delta")
            )
            if unanchored:
                pairs = pairs.where("anchor IS NOT NULL")
            self._terms.append(Terms(Kind.CHILD, pairs))
        self._terms.append(Terms(Kind.INPUT, self._pairs(rows, unanchored)))

    def fail(self, df: DataFrame, why: str | Column = "") -> None:
        """Fail the trees of these rows; ``why`` is words, or a column of them, cut at 255 bytes.

        Their messages are acked as all others are: they have been processed.
        """
        self._check_bolt()
        words = F.lit(why) if isinstance(why, str) else why
        pairs = self._pairs(df.withColumn(_WHY, words.cast("string")), unanchored=False)
        self._terms.append(Terms(Kind.FAIL, pairs.select("anchor", F.col(_WHY).alias("text"))))

    def touch(self, df: DataFrame) -> None:
        """The trees of these rows need more time: their clocks start anew."""
        self._check_bolt()
        pairs = self._pairs(df, unanchored=False)
        self._terms.append(Terms(Kind.TOUCH, pairs.select("anchor")))

    @property
    def name(self) -> str:
        """The query's name for queues and sinks: two apps may have queries of the same id."""
        return self._given.name

    def write(self, df: DataFrame, sink: Queue) -> None:
        """Write rows of a last bolt, before its messages are acked.

        While the acker has nothing of this batch, the rows replace what an earlier run has written:
        that run may have seen other rows, and its acks were never applied. Once the acker has
        acks of this batch, the rows of that run stay. ``df`` must be of the one evaluation that is
        acked, see :meth:`freeze`.

        Raises LaneError if a second driver applied the batch while this one replaced its rows,
        InvalidBatchError if this batch was written to this sink before, and ConfigError with
        ``on_changed_batch='fail_trees'``.
        """
        self._check_bolt()
        if self._application.on_changed_batch != "raise":
            raise ConfigError(
                "on_changed_batch='fail_trees' goes on after a batch that came back with other "
                "content, and the sink may then lack rows that were acked: "
                "use 'raise' for a query that writes before its ack"
            )
        self._check_unwritten(sink)
        if self._given.was_applied():
            sink.write(df, self.name, self.batch_id)
            return
        sink.replace(df, self.name, self.batch_id)
        if self._given.was_applied():
            raise LaneError(
                f"batch {self.batch_id} of query {self.query_id} was applied by a second driver "
                "while this one replaced its rows in the sink: rows that were acked may be "
                "missing there. Stop one of the two, and process this batch again under a new "
                "checkpoint"
            )

    def hand_on(self, messages: DataFrame, queue: Queue) -> None:
        """Write messages to the next queue, after the batch was applied.

        If the acker had nothing of this batch before, a batch of this name in the queue is of
        another life of the namespace, and is replaced. Of a batch that was changed nothing is
        written: its trees are nacked, or were acked before.
        """
        if self.report is None:
            raise InvalidBatchError("a batch is handed on after it was applied, not before")
        self._check_unwritten(queue)
        rows = messages.limit(0) if self.report.changed else messages
        write = queue.write if self.report.repeated or self.report.changed else queue.replace
        write(rows, self.name, self.batch_id)

    def _check_unwritten(self, queue: Queue) -> None:
        """Refuse a second write of this batch to a queue: it would replace the first one."""
        if any(queue is each or queue == each for each in self._written):
            raise InvalidBatchError(
                "this batch was written to this queue already, and a queue takes a batch once: "
                "union the rows, or give each its own queue"
            )
        self._written.append(queue)

    def __enter__(self) -> "MicroBatch":
        if self._opened:
            raise InvalidBatchError("a batch is opened once: acker.batch(df, batch_id) again")
        self._open = self._opened = True
        self._memory.begins(self.query_id)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._memory.forget(self.query_id)
        elif not self._tracked:
            if not self._acks:
                self.ack()
            self._open = False
            try:
                self._apply()
            except BaseException:
                self._memory.forget(self.query_id)
                raise
        self._open = False

    def _apply(self) -> None:
        began = time.monotonic()
        place = self._memory.place(self._given.rows, self.query_id, self._given.is_frozen)
        with self._described("apply"), self._given.once_a_run():
            try:
                done = apply(self._given.job(), self._terms, place)
            except DuplicateMessageError:
                twice = self._delivered_twice()
                if twice.isEmpty():
                    raise
                done = apply(self._given.job(), self._without(twice), place)
        self.report = combine(
            done.shards,
            query_id=self.query_id,
            batch_id=self.batch_id,
            mode=place,
            waited_ms=0,
            ms=round(1000 * (time.monotonic() - began)),
            changed=done.changed,
        )
        self._given.note(self.report)

    def _delivered_twice(self) -> DataFrame:
        """Anchors of messages that are in this batch more than once, as queues deliver at times."""
        inputs = [
            each.df.select("anchor", "delta") for each in self._terms if each.kind is Kind.INPUT
        ]
        counts = reduce(DataFrame.unionAll, inputs).groupBy("anchor", "delta").count()
        return self.freeze(counts.where("count > 1").selectExpr(f"anchor AS {_TWICE}").distinct())

    def _without(self, twice: DataFrame) -> list[Terms]:
        """The terms of all other trees; these fail: what was processed twice has sent twice."""
        log.warning(
            "%s: batch %d has messages that were delivered twice; their trees fail",
            self._application.namespace,
            self.batch_id,
        )
        same = F.col("anchor") == F.col(_TWICE)
        others = [Terms(each.kind, each.df.join(twice, same, "left_anti")) for each in self._terms]
        why = F.lit("a message was delivered twice in one batch").alias("text")
        return [*others, Terms(Kind.FAIL, twice.select(F.col(_TWICE).alias("anchor"), why))]

    def _pairs(self, df: DataFrame, unanchored: bool) -> DataFrame:
        """Rows (anchor, delta, ..), one for each tree that a message belongs to."""
        names = self._application.names
        more = [name for name in (_WHY,) if name in df.columns]
        if need_ids(df, names):
            # Whatever has no tree is an error, unless that is said.
            explode = F.explode if unanchored else F.explode_outer
            pairs = df.select(explode(names.anchors).alias(_PAIR), *more)
            delta = F.col(_PAIR)["tuple"]
            found = pairs.select(
                F.col(_PAIR)["anchor"].alias("anchor"), delta.alias("delta"), *more
            )
        else:
            ids = [f"`{names.anchor}` AS anchor", f"`{names.tuple}` AS delta"]
            found = df.selectExpr(*ids, *more)
        if unanchored:
            found = found.where("anchor IS NOT NULL OR delta IS NOT NULL")
        return found

    def _described(self, what: str) -> AbstractContextManager[None]:
        """Say in Spark's UI what its jobs are for."""
        words = f"acker {self._application.namespace}: {what} batch {self.batch_id}"
        return described(self._given.rows.sparkSession, words)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidBatchError("use it as: with acker.batch(df, batch_id) as b: ..")

    def _check_bolt(self) -> None:
        self._check_open()
        if self._tracked:
            raise InvalidBatchError("a batch that tracks neither acks nor emits: see track()")


_CHILDREN, _WHY, _PAIR = "_acker_children", "_acker_why", "_acker_pair"
_TWICE = "_acker_twice"


def _ids_of(df: DataFrame, children: str | Column) -> Column:
    """ARRAY<BIGINT>, without nulls and zeros."""
    column = F.col(children) if isinstance(children, str) else children
    kind = df.select(column.alias("c")).schema["c"].dataType
    if isinstance(kind, LongType):
        column = F.array(column)
    elif not isinstance(kind, ArrayType) or not isinstance(kind.elementType, LongType):
        raise InvalidBatchError(
            f"children are bigint or array<bigint>, not {kind.simpleString()}: see tuple_id()"
        )
    return F.filter(column, lambda id_: id_ != 0)
