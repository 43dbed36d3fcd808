"""Fold the rows of a micro-batch per anchor, in one order whatever order they come in.

Each input row is whole: one processed message, its id XOR the ids of all it caused.
Folding merges whole rows, so it never splits one.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from acker_redis.columns import FAIL, MAX_ROWS, MAX_TEXTS, TRACK, Columns, check_text
from acker_redis.errors import InvalidBatchError
from acker_redis.ids import ANCHOR_MAX

ROW_COLUMNS = ("anchor", "tuple", "delta", "source_id", "why")
"""Columns of the rows to fold: three BIGINT, two STRING.

``tuple`` is the message's own id (0 for a tree that is tracked), ``source_id`` is set in
rows that track, ``why`` in rows that fail; else they are null.
"""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Folded:
    """One row per anchor, sorted by anchor."""

    anchors: Ints
    deltas: Ints
    source_ids: tuple[bytes, ...]
    """One per row if the rows track, else none."""
    whys: dict[int, bytes]
    """Row number -> why, for the rows that fail."""
    messages: int
    """Rows that were folded (trees already, where Spark had folded them)."""

    def __len__(self) -> int:
        return len(self.anchors)

    @property
    def digest(self) -> str:
        """32 hex digits that tell this content from another, whatever the shards."""
        digest = hashlib.blake2b(digest_size=16)
        # How it is cut belongs to it: a version that cuts otherwise must not go on half way.
        digest.update(b"%d %d " % (MAX_ROWS, MAX_TEXTS))
        digest.update(self.anchors.astype(">i8").tobytes())
        digest.update(self.deltas.astype(">i8").tobytes())
        for text in self.source_ids:
            digest.update(b"s%d " % len(text) + text)
        for row, why in sorted(self.whys.items()):
            digest.update(b"w%d %d " % (row, len(why)) + why)
        return digest.hexdigest()

    def columns(self, task: str, shards: int) -> dict[int, list[Columns]]:
        """Wire columns per shard, in chunks that one call may have: rows and bytes of texts."""
        parts: dict[int, list[Columns]] = {}
        shard_of = self.anchors % shards
        for shard in range(shards):
            rows = np.flatnonzero(shard_of == shard)
            if len(rows):
                parts[shard] = [self._chunk(chunk, task) for chunk in self._chunks(rows)]
        return parts

    def _chunks(self, rows: Ints) -> Iterator[Ints]:
        # By the content alone: a batch that is run again must fall into the same chunks.
        sizes = np.array([len(self.source_ids[row]) for row in rows] if self.source_ids else 0)
        sizes = np.broadcast_to(sizes, rows.shape) + [len(self.whys.get(int(r), b"")) for r in rows]
        ends, start = np.cumsum(sizes), 0
        while start < len(rows):
            before = ends[start - 1] if start else 0
            fits = int(np.searchsorted(ends, before + MAX_TEXTS, side="right"))
            end = min(start + MAX_ROWS, fits)
            yield rows[start:end]
            start = end

    def _chunk(self, rows: Ints, task: str) -> Columns:
        failed = [int(row) for row in rows if int(row) in self.whys] if self.whys else []
        flags = np.full(len(rows), TRACK if self.source_ids else 0, dtype=np.uint8)
        flags[np.isin(rows, failed)] |= FAIL
        sources = tuple(self.source_ids[row] for row in rows) if self.source_ids else ()
        return Columns(
            flags=flags.tobytes(),
            anchors=self.anchors[rows].astype(">i8").tobytes(),
            deltas=self.deltas[rows].astype(">i8").tobytes(),
            task=task if sources else "",
            texts=sources + tuple(self.whys[row] for row in failed),
        )


def fold_in_spark(rows: DataFrame) -> DataFrame:
    """Fold in the executors (``bit_xor``): one row per anchor, the columns of ROW_COLUMNS.

    For batches too large to be collected row by row. ``tuple`` becomes null where a
    message was there twice, which :func:`fold` then refuses.
    """
    distinct = F.count("*") == F.count_distinct("tuple")
    # The first that says something, in the order of the tuples; false sorts before true.
    said = F.struct((F.col("why") == "").alias("empty"), "tuple", "why")
    first_why = F.min(F.when(F.col("why").isNotNull(), said))
    return rows.groupBy("anchor").agg(
        F.when(distinct, F.min("tuple")).alias("tuple"),
        F.bit_xor("delta").alias("delta"),
        F.min("source_id").alias("source_id"),
        first_why.getField("why").alias("why"),
    )


def fold(rows: pa.Table, tracks: bool = False) -> Folded:
    """Fold rows with the columns of ROW_COLUMNS, in any order; ``tracks``: of a source.

    Raises InvalidBatchError for a null or illegal anchor, for a tree that is tracked twice
    or a message that is there twice (two rows would cancel, or count one message double),
    and for a source id or why that the scripts would refuse.
    """
    for name in ("anchor", "tuple", "delta"):
        if rows.column(name).null_count:
            raise InvalidBatchError(
                f"column {name} has {rows.column(name).null_count} nulls; a message needs the "
                "anchor and tuple it came with, and comes once per batch"
            )
    anchors, tuples, deltas = (_ints(rows, name) for name in ("anchor", "tuple", "delta"))
    if len(anchors) == 0:
        return Folded(anchors, deltas, (), {}, 0)
    if anchors.min() < 1 or anchors.max() > ANCHOR_MAX:
        raise InvalidBatchError("an anchor is a number from 1 to 2^62-1; make it with anchor()")
    order = np.lexsort((tuples, anchors))
    anchors, tuples, deltas = anchors[order], tuples[order], deltas[order]
    same = anchors[1:] == anchors[:-1]
    twice = same & (tuples[1:] == tuples[:-1])
    if twice.any():
        raise InvalidBatchError(
            f"a message is there twice: anchor {anchors[1:][twice][0]}, tuple "
            f"{tuples[1:][twice][0]}; return each input row at most once, or make the source "
            "id unique"
        )
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    return Folded(
        anchors=anchors[starts],
        deltas=np.bitwise_xor.reduceat(deltas, starts),
        source_ids=_source_ids(rows.column("source_id"), order[starts]) if tracks else (),
        whys=_whys(rows.column("why"), order, starts),
        messages=len(order),
    )


def _ints(rows: pa.Table, name: str) -> Ints:
    return np.asarray(rows.column(name).to_numpy(), dtype=np.int64)


def _source_ids(column: pa.ChunkedArray, firsts: Ints) -> tuple[bytes, ...]:
    if column.null_count:
        raise InvalidBatchError(f"column source_id has {column.null_count} nulls")
    texts = column.to_pylist()
    return tuple(check_text("source id", texts[row], 1) for row in firsts)


def _whys(column: pa.ChunkedArray, order: Ints, starts: Ints) -> dict[int, bytes]:
    if column.null_count == len(column):
        return {}
    texts = column.to_pylist()
    whys: dict[int, bytes] = {}
    groups = np.cumsum(np.isin(np.arange(len(order)), starts)) - 1
    for place in np.flatnonzero([texts[row] is not None for row in order]):
        row = int(groups[place])
        # The first that says something, in the order of the tuples.
        whys[row] = whys.get(row) or check_text("why", texts[order[place]], 0)
    return whys
