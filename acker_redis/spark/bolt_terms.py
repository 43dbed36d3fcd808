"""The terms of a bolt's micro-batch, collected while its ``with`` block runs.

Each message of the batch is acked when the block ends, also if the job has dropped its row. So the
job must mention each message: by a row that is emitted from it, by :meth:`BoltTerms.ack`, or by the
failure of its tree. ``fold/vanished.py`` finds the others. A job that acks all messages by one call
needs no mentions, and none are collected.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import ArrayType, LongType

from acker_redis.errors import InvalidBatchError
from acker_redis.spark.fold.apply import Job, Terms
from acker_redis.spark.fold.report import Report
from acker_redis.spark.fold.terms import Kind
from acker_redis.spark.fold.vanished import Unmentioned
from acker_redis.spark.input_batch import InputBatch
from acker_redis.spark.names import need_ids
from acker_redis.spark.plans import may_drop_rows
from acker_redis.spark.splitting import Empty, empties

log = logging.getLogger(__name__)

_CHILDREN, _PARENT, _PAIR, _TWICE, _WHY = (
    f"_acker_{name}" for name in ("children", "parent", "pair", "twice", "why")
)


@dataclass(eq=False, kw_only=True)
class Covered:
    """All messages of the batch, or all parts of a split, of which an output may have each."""

    mentioned: bool = False
    """Whether an output surely has a row for each of them."""


@dataclass(eq=False, kw_only=True)
class _Split(Covered):
    """A split of all messages, whose arrays are in committed files."""

    terms: Terms
    """The parts."""
    rows: DataFrame
    """What the job got."""
    left: DataFrame | None
    """The messages without a part; None if the job acks them."""


class BoltTerms:
    """The terms that a job has collected so far."""

    def __init__(self, given: InputBatch, unmentioned: Unmentioned) -> None:
        self._input, self._names = given, given.application.names
        self._unmentioned = unmentioned
        self._terms: list[Terms] = []
        self._inputs: DataFrame | None = None
        self._all_acked = self._unanchored = False
        self._all = Covered()
        self._outputs = 0
        self._made: list[DataFrame] = []
        self._changing: list[DataFrame] = []
        self._splits: list[_Split] = []
        self._written: list[tuple[DataFrame, Callable[[], int | None]]] = []

    @property
    def used(self) -> bool:
        """Whether the job has called anything."""
        return self._all_acked or self._all.mentioned or bool(self._terms)

    def with_parents(self, df: DataFrame) -> DataFrame:
        """Return rows that keep the ids of the messages that they came from, for :meth:`emit`."""
        if self._unmentioned == "ack":
            return df
        many = need_ids(df, self._names)
        parent = self._names.anchors if many else self._names.tuple
        return df.withColumn(_PARENT, F.expr(f"`{parent}`"))

    def covered(self, df: DataFrame) -> Covered | None:
        """Return what surely has one of these rows for each message, or each part; else None.

        It is mentioned by that. The caller notes it when nothing can fail any more.
        """
        if self._input.has_all(df):
            return self._all
        return next((each for each in self._splits if self._input.has_rows(df, each.rows)), None)

    def once(self, df: DataFrame) -> None:
        """Note an output. Raise InvalidBatchError if the rows of two outputs may change.

        Rows of one evaluation may be in neither output then, and other rows of their messages hide
        that. An output with a row for each message, or each part, lacks none.
        """
        self._made.append(df)
        self._changing.append(df)
        if len(self._made) == 1:
            return
        self._changing = [
            each
            for each in self._changing
            if self._input.may_change(each) and not self.covered(each)
        ]
        if len(self._changing) > 1:
            raise InvalidBatchError(
                "two outputs of this block are made of rows that may differ each time that Spark "
                "computes them, so a row may be in neither: keep the rows that both are made of, "
                "rows = b.freeze(rows), and make the outputs from the result"
            )
        made = [each for each in self._made if not self.covered(each)]
        if self._input.computes_twice(made, self._changing):
            raise InvalidBatchError(
                "two outputs of this block are made of the same rows, which were computed twice "
                "and may differ, so a row may be in neither: keep the rows that both are made of "
                "once, rows = b.freeze(rows), and make the outputs from the result; or make both "
                "from b.df, and none from the rows that the block was given"
            )

    def emit(self, out: DataFrame, unanchored: bool) -> DataFrame:
        """Add the messages in rows of :meth:`with_parents`; return the rows without the parents."""
        self._outputs += 1
        if _PARENT not in out.columns:
            self._add(Kind.CHILD, out, unanchored)
            return out
        rows = out.drop(_PARENT)
        if need_ids(rows, self._names):
            self._add(Kind.CHILD, rows, unanchored)
            parents = out.select(F.col(_PARENT).alias(self._names.anchors))
            self._add(Kind.MENTION, parents, unanchored)
        else:
            self._add(Kind.CHILD, out, unanchored, parent=_PARENT)
        return rows

    def split(self, out: DataFrame, df: DataFrame, column: str, empty: Empty) -> DataFrame:
        """Add the parts in rows of :meth:`with_parents`; return the rows without the parents.

        ``df`` has the messages, and ``column`` their arrays.
        """
        if empty == "ack":
            self._add(Kind.MENTION, empties(df, column), unanchored=False)
        rows = out.drop(_PARENT)
        if _PARENT not in out.columns:
            return rows  # nothing is compared
        if need_ids(rows, self._names):
            self._add(Kind.PART, rows, unanchored=False)
            parents = out.select(F.col(_PARENT).alias(self._names.anchors))
            self._add(Kind.MENTION, parents, unanchored=False)
            return rows
        self._add(Kind.PART, out, unanchored=False, parent=_PARENT)
        if self._input.kept(df) and self._input.has_all(df):
            left = None if empty == "ack" else empties(df, column)
            self._splits.append(_Split(terms=self._terms[-1], rows=rows, left=left))
        return rows

    def ack(self, df: DataFrame | None, children: str | Column | None, unanchored: bool) -> None:
        """Mention the messages of these rows, or all messages of the batch; add their children."""
        self._unanchored |= unanchored
        everything = df is None or self._input.is_whole(df)
        rows = df
        if children is not None:
            rows = self._input.frozen() if df is None else df
            if need_ids(rows, self._names):
                raise InvalidBatchError(
                    "children= does not support messages of many trees: use emit()"
                )
            given = rows.withColumn(_CHILDREN, _ids_of(rows, children))
            rows = self._input.freeze(given, rows)
            anchor = F.col(self._names.anchor).alias("anchor")
            pairs = rows.select(anchor, F.explode(_CHILDREN).alias("delta"))
            pairs = pairs.where("anchor IS NOT NULL") if unanchored else pairs
            self._terms.append(Terms(Kind.CHILD, lambda: pairs))
        if everything:
            self._all_acked = True
            self._inputs = rows if children is not None else self._inputs
        elif rows is not None and (covered := self.covered(rows)):
            covered.mentioned = True
        elif rows is not None:
            self._outputs += 1
            self._add(Kind.MENTION, rows, unanchored)

    def fail(self, df: DataFrame, why: str | Column) -> None:
        """Fail the trees of these rows."""
        words = F.lit(why) if isinstance(why, str) else why
        pairs = self._pairs(df.withColumn(_WHY, words.cast("string")), False, text=_WHY)
        self._terms.append(Terms(Kind.FAIL, lambda: pairs.select("anchor", "text")))

    def touch(self, df: DataFrame) -> None:
        """Reset the timeout of the trees of these rows."""
        pairs = self._pairs(df, False)
        self._terms.append(Terms(Kind.TOUCH, lambda: pairs.select("anchor")))

    def finish(self) -> tuple[Job, list[Terms]]:
        """Return the settings of the batch, and all its terms, when the job has ended."""
        self._leave_out_parts()
        # An ack of all messages names none of the rows that split() has made of them.
        parts = any(each.kind is Kind.PART for each in self._terms)
        whole = self._all_acked or self._all.mentioned
        every = (whole and not parts) or self._unmentioned == "ack"
        rows = self._inputs
        if rows is None:
            rows = self._input.rows if self._all_acked and every else self._input.frozen()
        inputs = self._term(Kind.INPUT, rows, self._unanchored)
        if whole and not every:
            self._add(Kind.MENTION, rows, self._unanchored)
        spare = (Kind.MENTION, Kind.PART) if every else ()
        terms = [each for each in self._terms if each.kind not in spare]
        if every:
            terms = [each.without_parent() for each in terms]
            return self._input.job(), [*terms, inputs]
        why = f"vanished in batch {self._input.batch_id} of query {self._input.name}"
        if all(each.kind is Kind.TOUCH for each in terms):
            why = f"{why}: the job calls neither emit(), ack() nor fail()"
        job = replace(self._input.job(), unmentioned=self._unmentioned, why_vanished=why)
        return job, [*terms, inputs]

    def _leave_out_parts(self) -> None:
        """Forget the parts of splits of which each part has a row in an output.

        Then each message is mentioned, unless it has no part. If anything is left to compare, the
        parts stay, and are mentioned: other outputs may mention some of them, too.
        """
        mine = [each for each in self._splits if each.mentioned]
        parts = sum(each.kind is Kind.PART for each in self._terms)
        self._all.mentioned |= any(each.left is None or each.left.isEmpty() for each in mine)
        compared = parts > len(mine) or not (self._all_acked or self._all.mentioned)
        for each in mine:
            if compared:
                mentions = partial(each.terms.df.select, "anchor", "delta")
                self._terms.append(Terms(Kind.MENTION, mentions))
            else:
                self._terms.remove(each.terms)

    def wrote(self, df: DataFrame, count: Callable[[], int | None]) -> None:
        """Note rows that were written to a sink, and what counts them there, as far as known."""
        self._written.append((df, count))

    def _dropped(self, report: Report) -> int | None:
        """Return how many rows were written, if an ack of all messages acked some without a row."""
        if not self._all_acked or self._terms or not self._written:
            return None
        columns = (self._names.anchor, self._names.tuple)
        if not all(may_drop_rows(df, columns) for df, _ in self._written):
            return None
        counts = [count() for _, count in self._written]
        known = [rows for rows in counts if rows is not None]
        # The report counts a message of several trees for each of them, so those are left out.
        fewer = len(known) == len(counts) and sum(known) < report.messages
        return sum(known) if fewer else None

    def warn(self, report: Report) -> None:
        """Log messages that vanished, and once a query that a lost row may go unnoticed."""
        namespace = self._input.application.namespace
        written = self._dropped(report)
        if written is not None and self._input.shared.is_first("written", report):
            log.warning(
                "%s: batch %d of query %s wrote %d rows, and acked %d messages by ack(): the plan "
                "of the rows has dropped messages, as an inner join does, and they count as done. "
                "To ack exactly the messages of the rows, use write(rows, sink, ack=True) without "
                "ack()",
                namespace,
                report.batch_id,
                self._input.name,
                written,
                report.messages,
            )
        if report.mentioned > self._outputs and self._input.shared.is_first("split", report):
            log.warning(
                "%s: rows of one message were mentioned up to %d times in batch %d of query %s; to "
                "notice when one of them is lost, use split",
                namespace,
                report.mentioned,
                report.batch_id,
                self._input.name,
            )
        if not report.vanished:
            return
        log.warning(
            "%s: in batch %d of query %s messages of %d trees vanished: nothing was emitted from "
            "them, and they were neither acked nor failed. Their trees %s. The first anchors: %s. "
            "If rows are left out on purpose, ack them: b.ack(rows)",
            namespace,
            report.batch_id,
            self._input.name,
            report.vanished,
            "fail" if self._unmentioned == "fail" else "will expire",
            ", ".join(each.partition(":")[0] for each in report.examples),
        )

    def delivered_twice(self, terms: list[Terms]) -> DataFrame:
        """Return the anchors of messages that are in this batch more than once.

        A queue that delivers at least once may deliver a message twice.
        """
        inputs = [each.df.select("anchor", "delta") for each in terms if each.kind is Kind.INPUT]
        counts = reduce(DataFrame.unionAll, inputs).groupBy("anchor", "delta").count()
        twice = counts.where("count > 1").selectExpr(f"anchor AS {_TWICE}").distinct()
        return self._input.freeze(twice)

    def without(self, terms: list[Terms], twice: DataFrame) -> list[Terms]:
        """Return the terms without those of these trees, and with a failure of each of them.

        A message that was processed twice has emitted its children twice.
        """
        log.warning(
            "%s: batch %d has messages that were delivered twice; their trees are failed",
            self._input.application.namespace,
            self._input.batch_id,
        )
        same = F.col("anchor") == F.col(_TWICE)
        others = [
            Terms(each.kind, partial(each.df.join, twice, same, "left_anti")) for each in terms
        ]
        why = F.lit("a message was delivered twice in one batch").alias("text")
        failed = partial(twice.select, F.col(_TWICE).alias("anchor"), why)
        return [*others, Terms(Kind.FAIL, failed)]

    def _add(self, kind: Kind, rows: DataFrame, unanchored: bool, **more: str) -> None:
        self._terms.append(self._term(kind, rows, unanchored, **more))

    def _term(self, kind: Kind, rows: DataFrame, unanchored: bool, **more: str) -> Terms:
        pairs = partial(self._pairs, rows, unanchored, **more)
        if need_ids(rows, self._names):
            return Terms(kind, pairs)
        names = {"anchor": self._names.anchor, "delta": self._names.tuple, **more}
        return Terms(kind, pairs, self._input.id_columns(rows, names, unanchored))

    def _pairs(self, df: DataFrame, unanchored: bool, **more: str) -> DataFrame:
        """Return rows (anchor, delta, ..), one for each tree that a message belongs to.

        ``more`` are further columns, by their names in the result.
        """
        others = [f"{column} AS {name}" for name, column in more.items()]
        if need_ids(df, self._names):
            # The outer variant keeps messages without a tree, which are an error unless allowed.
            explode = "explode" if unanchored else "explode_outer"
            pairs = df.selectExpr(f"{explode}(`{self._names.anchors}`) AS {_PAIR}", *others)
            ids = [f"{_PAIR}.anchor AS anchor", f"{_PAIR}.tuple AS delta"]
            found = pairs.selectExpr(*ids, *more)
        else:
            ids = [f"`{self._names.anchor}` AS anchor", f"`{self._names.tuple}` AS delta"]
            found = df.selectExpr(*ids, *others)
        return found.where("anchor IS NOT NULL OR delta IS NOT NULL") if unanchored else found


def _ids_of(df: DataFrame, children: str | Column) -> Column:
    """Return the children as ARRAY<BIGINT>, without nulls and zeros."""
    column = F.col(children) if isinstance(children, str) else children
    kind = df.select(column.alias("c")).schema["c"].dataType
    if isinstance(kind, LongType):
        column = F.array(column)
    elif not isinstance(kind, ArrayType) or not isinstance(kind.elementType, LongType):
        raise InvalidBatchError(
            f"children must be bigint or array<bigint>, not {kind.simpleString()}: make them with "
            "acker.ids.tuple_id()"
        )
    return F.filter(column, lambda id_: id_ != 0)
