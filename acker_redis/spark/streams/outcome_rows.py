"""Entries of the stream of a source as rows of a table, without the I/O."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.labels import namer
from acker_redis.protocol.outcome import (
    BlockOutcome,
    Entry,
    Outcome,
    VerdictKind,
    odd_edges,
    ranges_without,
)

SCHEMA = (
    "namespace STRING, source STRING, verdict STRING, reason STRING, why STRING, anchor BIGINT, "
    "source_id STRING, age_ms BIGINT, at TIMESTAMP, trees BIGINT, label STRING, "
    "residual BIGINT, edges ARRAY<STRING>, idle_ms BIGINT, cause STRING"
)
_TYPES: dict[str, pa.DataType] = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "ARRAY<STRING>": pa.list_(pa.string()),
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
    residual: int | None = None
    """Of an expired tree: the XOR of the ids of its outstanding messages. None if the block has
    lost its checksums, and for all other verdicts."""
    edges: tuple[str, ...] = ()
    """Edges on which an odd number of messages is unaccounted for."""
    idle_ms: int | None = None
    """Of an expired tree: milliseconds from its last row to the verdict."""
    cause: str = ""
    """Of an expired tree: ``idle`` or ``deadline``."""


def rows_of(entry: Entry, expand: bool) -> Iterator[OutcomeRow]:
    """Yield the rows of an entry: with ``expand`` one per tree, else one per range of trees.

    Only acks and touches of a block form ranges, which end at a slot without a tree: each nack and
    each loose tree has its own row. The rows contain each verdict of the entry exactly once.
    """
    block = entry.block
    if block is None:
        for outcome in entry.outcomes:
            yield _row(outcome, outcome.source_id, entry.at_ms, 1, None)
        return
    named = namer(block.label)
    for outcome, trees in _singles(block) if expand else _ranges(block):
        yield _row(outcome, named(outcome.slot or 0), entry.at_ms, trees, block.label)


def _row(o: Outcome, source_id: str, at_ms: int, trees: int, label: str | None) -> OutcomeRow:
    row = OutcomeRow(o.verdict, o.reason, o.why, o.anchor, source_id, o.age_ms, at_ms, trees, label)
    if o.reason != "expired":
        return row
    return row._replace(
        residual=_signed(o.residual) or None, edges=o.edges, idle_ms=o.idle_ms, cause=o.cause
    )


def _signed(residual: int) -> int:
    # A client may have set bit 63 of a delta by mistake. The stream of verdicts must not stop then.
    return residual - 2**64 if residual >= 2**63 else residual


_Verdicts = Iterator[tuple[Outcome, int]]
"""Outcomes of the first tree, and the number of trees."""


def _singles(block: BlockOutcome) -> _Verdicts:
    for one in block.expand():
        yield one, 1


def _ranges(block: BlockOutcome) -> _Verdicts:
    if block.verdict == "nack":
        yield from _singles(block)
        return
    if block.verdict == "touch":
        for first, end in ranges_without(block.slots, block.absent):
            yield _outcome(block, "touch", block.reason, first), end - first
        return
    # Without an Outcome for each tree that is acked: most trees of a block are.
    for slot, residual in zip(block.nacked, block.residuals, strict=True):
        yield (
            replace(
                _outcome(block, "nack", "expired", slot),
                cause=block.cause,
                residual=residual,
                idle_ms=block.idle_ms,
                edges=odd_edges(block.edges, residual),
            ),
            1,
        )
    for first, end in block.acked():
        yield _outcome(block, "ack", "completed", first), end - first


def _outcome(block: BlockOutcome, verdict: VerdictKind, reason: str, slot: int) -> Outcome:
    anchor = block_anchor(block.block, slot)
    return Outcome(verdict, reason, anchor, block.label, block.age_ms, "")


def record_batches(
    entries: Iterable[Entry], namespace: str, source: str, expand: bool
) -> Iterator[pa.RecordBatch]:
    """Yield record batches of the rows of entries; hold the rows of one batch in memory."""
    rows: list[OutcomeRow] = []
    for entry in entries:
        rows += rows_of(entry, expand)
        if len(rows) >= BATCH_ROWS:
            yield _batch(rows, namespace, source)
            rows = []
    if rows:
        yield _batch(rows, namespace, source)


def _batch(rows: list[OutcomeRow], namespace: str, source: str) -> pa.RecordBatch:
    columns: dict[str, Sequence[Any]] = dict(
        zip(OutcomeRow._fields, zip(*rows, strict=True), strict=True)
    )
    columns |= {"namespace": [namespace] * len(rows), "source": [source] * len(rows)}
    columns["at"] = [1000 * ms for ms in columns["at_ms"]]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in ARROW_SCHEMA], schema=ARROW_SCHEMA
    )
