"""Entries of a task's stream as rows of a table, without the I/O."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.labels import namer
from acker_redis.protocol.outcome import BlockOutcome, Entry

SCHEMA = (
    "namespace STRING, task STRING, verdict STRING, reason STRING, why STRING, anchor BIGINT, "
    "source_id STRING, age_ms BIGINT, at TIMESTAMP, trees BIGINT, label STRING"
)
_TYPES: dict[str, pa.DataType] = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
ARROW_SCHEMA = pa.schema(
    [(name, _TYPES[kind]) for name, kind in (column.split() for column in SCHEMA.split(", "))]
)

BATCH_ROWS = 10_000
"""A record batch ends with the entry that brings it to this number of rows; an entry gives up to
4095 rows."""


class OutcomeRow(NamedTuple):
    """The verdict of one tree, or the common verdict of consecutive trees of a block."""

    verdict: str
    """``ack``, ``nack`` or ``touch``."""
    reason: str
    why: str
    """The reason that the bolt gave for a failure, or ''."""
    anchor: int
    """Anchor of the first tree."""
    source_id: str
    """Source id of the first tree; in a block it follows from the label, see
    :mod:`acker_redis.protocol.labels`."""
    age_ms: int
    at_ms: int
    """When Redis wrote the entry, in ms since 1970."""
    trees: int
    """Number of trees."""
    label: str | None
    """Label of the block; None for a loose tree."""


def rows_of(entry: Entry, task: str, expand: bool) -> Iterator[OutcomeRow]:
    """Yield the rows of an entry: with ``expand`` one per tree, else one per range of trees.

    Only acks and touches of a block form ranges: each nack and each loose tree has its own row. The
    rows contain each verdict of the entry exactly once.
    """
    block = entry.block
    if block is None:
        for o in entry.outcomes:
            yield OutcomeRow(
                o.verdict, o.reason, o.why, o.anchor, o.source_id, o.age_ms, entry.at_ms, 1, None
            )
        return
    named = namer(task, block.label, block.block)
    for verdict, reason, slot, trees, why in _singles(block) if expand else _ranges(block):
        anchor = block_anchor(block.block, slot)
        yield OutcomeRow(
            verdict,
            reason,
            why,
            anchor,
            named(slot),
            block.age_ms,
            entry.at_ms,
            trees,
            block.label,
        )


_Verdicts = Iterator[tuple[str, str, int, int, str]]
"""Verdict, reason, first slot, trees, why."""


def _singles(block: BlockOutcome) -> _Verdicts:
    for one in block.expand():
        yield one.verdict, one.reason, one.slot or 0, 1, one.why


def _ranges(block: BlockOutcome) -> _Verdicts:
    if block.verdict == "nack":
        yield from _singles(block)
        return
    if block.verdict == "touch":
        yield "touch", block.reason, 0, block.slots, ""
        return
    for slot in block.nacked:
        yield "nack", "expired", slot, 1, ""
    for first, end in block.acked():
        yield "ack", "completed", first, end - first, ""


def record_batches(
    entries: Iterable[Entry], namespace: str, task: str, expand: bool
) -> Iterator[pa.RecordBatch]:
    """Yield record batches of the rows of entries; hold the rows of one batch in memory."""
    rows: list[OutcomeRow] = []
    for entry in entries:
        rows += rows_of(entry, task, expand)
        if len(rows) >= BATCH_ROWS:
            yield _batch(rows, namespace, task)
            rows = []
    if rows:
        yield _batch(rows, namespace, task)


def _batch(rows: list[OutcomeRow], namespace: str, task: str) -> pa.RecordBatch:
    columns: dict[str, Sequence[Any]] = dict(
        zip(OutcomeRow._fields, zip(*rows, strict=True), strict=True)
    )
    columns |= {"namespace": [namespace] * len(rows), "task": [task] * len(rows)}
    columns["at"] = [1000 * ms for ms in columns["at_ms"]]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in ARROW_SCHEMA], schema=ARROW_SCHEMA
    )
