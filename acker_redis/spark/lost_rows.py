"""The rows of the messages that are missing in expired trees, for DataFrames of any size.

Spark brings the expired trees and their messages together by anchor, and calls a Python function
for each partition. (A call takes a millisecond, which is too long for each of 100,000 trees.) The
function is in ``lost_sets.py``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import LongType, StringType, StructField, StructType

from acker_redis.errors import InvalidBatchError
from acker_redis.missing.explain import NO_END
from acker_redis.protocol.arrays import Ints
from acker_redis.protocol.ids import EDGE_BIT
from acker_redis.spark.lost_sets import Messages
from acker_redis.spark.names import Names, check_case, check_hidden, need, need_ids

FOUND = "found"
_ANCHOR, _ID, _NUMBER, _RESIDUAL, _SHARED = (
    f"_acker_{name}" for name in ("anchor", "id", "number", "residual", "shared")
)

_HAS_IDS = f"{_ANCHOR} IS NOT NULL AND {_ID} IS NOT NULL"


def explain(
    verdicts: DataFrame,
    messages: DataFrame,
    *,
    names: Names | None = None,
    edges: bool = True,
) -> DataFrame:
    """Return the rows of the messages that are unaccounted for in expired trees.

    A message is unaccounted for if it was announced and not acked, or acked and never announced:
    the worker that sent it died before its own row was applied. The answer is never a guess.

    The result has the columns of ``messages``, and ``found`` (STRING), which is as in
    :class:`acker_redis.Explanation`. Each expired tree has at least one row: with ``found``, a row
    for each missing message. With ``none``, ``several`` or ``unknown`` it has one row, with its
    anchor, and nulls in all other columns. Rows of ``messages`` that repeat a message are all
    returned. Messages with ``anchors`` get columns ``anchor`` and ``tuple`` instead: the tree that
    misses the message, and its id in that tree.

    **An anchor that had several trees** has one row, ``several``. A source id that comes again has
    the anchor of its first tree, and a message of an earlier tree may have been acked in a later
    one. The verdicts show that only if all of them are passed: acks and other nacks, too.

    Spark shuffles only the messages of expired trees, and a task holds its part of them in memory.
    If the verdicts are few, wrap them in ``broadcast(verdicts)``: then Spark does not shuffle the
    others to find these. The executors need acker-redis.

    Args:
        verdicts: Rows of ``format("acker-outcomes")``, or others with the columns ``anchor`` and
            ``residual``. If they have a column ``reason``, only ``expired`` trees are explained.
        messages: All messages that may have belonged to these trees, with any columns: the rows of
            the queues, or a log. Rows without ids are ignored.
        names: The names of the columns of ids, as in ``Acker(.., names=)``.
        edges: Whether the namespace has edges: then 55 bits of an id are random, otherwise 63.
            True is right in both cases, and False finds larger sets.

    Raises:
        InvalidBatchError: A column is missing, has the wrong type, or is called ``found``.

    Examples:
        >>> verdicts = spark.read.parquet("/data/verdicts")
        >>> lost = explain(verdicts, FileQueue("/data/queue").read(spark, schema))
        >>> lost.where("found = 'found'").show()

    """
    names = names or Names()
    expired = _expired(verdicts)
    rows = _rows(messages, names)
    kept = [field for field in rows.schema.fields if not field.name.startswith("_acker_")]
    mine = rows.join(expired.select(_ANCHOR), _ANCHOR, "left_semi")
    schema = StructType([StructField(each.name, each.dataType) for each in kept])
    work = _Work(
        tuple(each.name for each in kept),
        names.anchor,
        names.tuple,
        _NUMBER in mine.columns,
        EDGE_BIT if edges else 63,
    )

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from work.run(batches)

    both = expired.unionByName(mine, allowMissingColumns=True).repartition(_ANCHOR)
    return both.mapInArrow(run, schema.add(FOUND, StringType()))


def _expired(verdicts: DataFrame) -> DataFrame:
    fix = "Pass rows of format('acker-outcomes'), or a table with these two columns"
    for name in ("anchor", "residual"):
        need(verdicts, name, LongType, fix)
    reason = F.col("reason") if "reason" in verdicts.columns else F.lit("expired")
    others = [name for name in ("at", "age_ms") if name in verdicts.columns]
    end = F.struct(reason.alias("reason"), "residual", *others)
    ends = verdicts.where(F.col("anchor").isNotNull() & ~reason.isin(*NO_END))
    # A stream of verdicts delivers at least once: the same end twice is one tree.
    trees = ends.groupBy(F.col("anchor").alias(_ANCHOR)).agg(
        F.min(end).alias("least"), F.max(end).alias("most"),
        F.max(F.when(reason == "expired", F.col("residual"))).alias(_RESIDUAL),
        F.bool_or(reason == "expired").alias("expired"),
    )  # fmt: skip
    shared = (~F.col("least").eqNullSafe(F.col("most"))).alias(_SHARED)
    return trees.where("expired").select(_ANCHOR, _RESIDUAL, shared)


def _rows(messages: DataFrame, names: Names) -> DataFrame:
    """Return the messages with their anchor and id; if they have several ids, with a number."""
    check_hidden(messages)
    check_case(messages, FOUND)
    if FOUND in messages.columns:
        raise InvalidBatchError(f"column {FOUND} of the messages: rename it, explain() adds one")
    if not need_ids(messages, names):
        columns = {_ANCHOR: F.col(names.anchor), _ID: F.col(names.tuple)}
        return messages.withColumns(columns).where(_HAS_IDS)
    # A message may have several ids in one tree, which count as their XOR.
    numbered = messages.withColumn(_NUMBER, F.monotonically_increasing_id())
    pairs = numbered.withColumn(_ID, F.explode(names.anchors)).drop(names.anchors)
    pairs = pairs.withColumns({_ANCHOR: F.col(_ID)["anchor"], _ID: F.col(_ID)["tuple"]})
    return pairs.where(_HAS_IDS).withColumns(
        {names.anchor: F.col(_ANCHOR), names.tuple: F.col(_ID)}
    )


@dataclass(frozen=True)
class _Work:
    """What Spark does for each partition; pickled to the executors."""

    kept: tuple[str, ...]
    """The columns of the messages."""
    anchor: str
    """The one that has the anchor."""
    tuple: str
    """The one that has the id."""
    numbered: bool
    """Whether a message may have several ids in one tree."""
    bits: int

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the missing messages of the trees of a partition.

        A row without an id is an expired tree; every other row is a message.
        """
        some = list(batches)
        if not some:
            return
        table = pa.Table.from_batches(some)
        is_tree = pc.is_null(table.column(_ID))
        found = self._lost(table.filter(is_tree), table.filter(pc.invert(is_tree)))
        yield from found.to_batches()

    def _lost(self, expired: pa.Table, messages: pa.Table) -> pa.Table:
        numbers = _ints(messages, _NUMBER) if self.numbered else None
        found = Messages(_ints(messages, _ANCHOR), _ints(messages, _ID), numbers)
        shared = expired.column(_SHARED)
        several = _ints(expired.filter(shared), _ANCHOR)
        expired = expired.filter(pc.invert(shared))
        lost = found.lost(_ints(expired, _ANCHOR), _ints(expired, _RESIDUAL), self.bits)
        others = [*lost.others.items(), ("several", several)]
        rows = messages.select(list(self.kept))
        hits = rows.take(pa.array(lost.rows))
        if self.numbered:
            hits = hits.set_column(self.kept.index(self.tuple), self.tuple, pa.array(lost.ids))
        tables = [_with_found(hits, "found")]
        for why, anchors in others:
            columns = [
                pa.array(anchors) if name == self.anchor else pa.nulls(len(anchors), kind)
                for name, kind in zip(rows.schema.names, rows.schema.types, strict=True)
            ]
            tables.append(_with_found(pa.table(columns, rows.schema.names), why))
        return pa.concat_tables(tables)


def _with_found(rows: pa.Table, why: str) -> pa.Table:
    return rows.append_column(FOUND, pa.array([why] * rows.num_rows, pa.string()))


def _ints(table: pa.Table, name: str) -> Ints:
    return np.asarray(table.column(name).fill_null(0).to_numpy(), dtype=np.int64)
