"""Pack rows of the reference model into the bytes of the wire."""

import struct
from collections.abc import Sequence

from acker_redis.protocol.blocks import BlockPart, pack_deltas, pack_track
from acker_redis.protocol.rows import FAIL, TRACK, Columns
from proof.reference.acker import TreeRow
from proof.reference.blocks import BlockRow


def pack(rows: Sequence[TreeRow], task: str = "") -> Columns:
    """Return the wire columns of rows, valid or not: nothing is folded or validated."""
    form = struct.Struct(f">{len(rows)}Q")
    sources = [row.source_id for row in rows if row.flags & TRACK]
    whys = [row.why for row in rows if row.flags & FAIL]
    return Columns(
        flags=bytes(row.flags for row in rows),
        anchors=form.pack(*(row.anchor for row in rows)),
        deltas=form.pack(*(row.delta for row in rows)),
        task=task,
        texts=tuple(text.encode() for text in (*sources, *whys)),
    )


def pack_block(row: BlockRow) -> BlockPart:
    """Return one block of a call, packed from a row of the reference model."""
    if not row.task:
        dense = sorted(row.deltas) == list(range(len(row.deltas)))
        return pack_deltas(row.block, row.deltas, row.failed, row.touch, dense=dense)
    column = [row.deltas[slot] for slot in range(len(row.deltas))]
    present = set(range(len(column))) - row.absent if row.absent else None
    return pack_track(row.block, row.task, row.label, column, row.failed, row.touch, present)
