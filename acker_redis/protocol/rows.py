"""Rows, which record the effect of one message on one tree, and columns of rows for the wire."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import (
    ANCHOR_MAX,
    TUPLE_MAX,
    check_anchor,
    check_loose,
    check_tuple_id,
    xor_ids,
)
from acker_redis.protocol.texts import check_text

# From lua/spec.json, by python -m proof.spec
TRACK, FAIL, TOUCH = 1, 2, 4
MAX_ROWS = 1024
"""Maximum rows (distinct anchors) of one batch."""
MAX_TEXTS = 64 * 1024
"""Maximum bytes of all source ids and whys of one batch."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of one shard on the wire: ``n`` flags, ``8n`` bytes of anchors, ``8n`` of deltas."""

    flags: bytes
    anchors: bytes
    deltas: bytes
    task: str
    texts: tuple[bytes, ...]
    """Source ids of the TRACK rows, then whys of the FAIL rows, each in row order."""

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def digest(self) -> str:
        """16 hex digits that identify the content of these rows."""
        digest = hashlib.blake2b(self.flags, digest_size=8)
        digest.update(self.anchors + self.deltas + self.task.encode())
        digest.update(b"".join(b"%d %b" % (len(text), text) for text in self.texts))
        return digest.hexdigest()

    def anchor(self, row: int) -> int:
        """Return the anchor of a row, counted from 0."""
        return int.from_bytes(self.anchors[8 * row : 8 * row + 8], "big")


class Row(NamedTuple):
    """The effect of one message on one tree, loose or in a block.

    A row is whole: its delta is the message's own id XOR the ids of all messages it caused. A row
    is never split.

    >>> ack_row(7, 40, [41, 42]).delta == 40 ^ 41 ^ 42
    True
    """

    anchor: int
    delta: int
    flags: int = 0
    """TRACK, FAIL or TOUCH; 0 is an ack."""
    text: str = ""
    """Source id of a TRACK row; why of a FAIL row."""


def track_row(anchor: int, source_id: str, emitted: Iterable[int]) -> Row:
    """Return the row that begins a tree; see :meth:`Batch.track`."""
    return Row(anchor, xor_ids(emitted), TRACK, source_id)


def ack_row(anchor: int, tuple_id: int, emitted: Iterable[int] = ()) -> Row:
    """Return the row of a processed message; see :meth:`Batch.ack`."""
    return Row(anchor, whole(tuple_id, emitted))


def fail_row(
    anchor: int, why: str = "", tuple_id: int | None = None, emitted: Iterable[int] = ()
) -> Row:
    """Return the row that fails a tree; see :meth:`Batch.fail`."""
    return Row(
        anchor, xor_ids(emitted) if tuple_id is None else whole(tuple_id, emitted), FAIL, why
    )


def touch_row(anchor: int) -> Row:
    """Return the row that resets a tree's timeout; see :meth:`Batch.touch`."""
    return Row(anchor, 0, TOUCH)


def whole(tuple_id: int, emitted: Iterable[int]) -> int:
    """Return the delta of a processed message: its id XOR the ids of all messages it caused."""
    children = list(emitted)
    if check_tuple_id(tuple_id) in children:
        raise InvalidBatchError("a message and one that it caused have the same id; draw another")
    return tuple_id ^ xor_ids(children)


def check_row(row: Row) -> bytes:
    """Return the UTF-8 of a row's text; raise InvalidBatchError if the row is invalid."""
    anchor, delta, flags, text = row
    check_anchor(anchor)
    if type(delta) is not int or not 0 <= delta <= TUPLE_MAX:
        raise InvalidBatchError(f"a delta is a number from 0 to 2^63-1, not {delta!r}")
    if type(flags) is not int:
        raise InvalidBatchError(f"flags are a whole number, not {flags!r}")
    if not flags:
        return b""
    if flags == TRACK:
        check_loose(anchor)
        return check_text("source id", text, 1)
    if flags == FAIL:
        return check_text("why", text, 0)
    if flags != TOUCH:
        raise InvalidBatchError(f"a row is an ack (0), TRACK, FAIL or TOUCH, not {flags!r}")
    return b""


def check_rows(rows: Iterable[Row], source: str) -> list[Row]:
    """Return the rows; raise InvalidBatchError if a producer of this source may not send them."""
    rows = list(rows)
    for row in rows:
        anchor, delta, flags, _ = row
        if (
            flags
            or type(anchor) is not int
            or not 1 <= anchor <= ANCHOR_MAX
            or (type(delta) is not int or not 0 <= delta <= TUPLE_MAX)
        ):  # Acks of loose trees, the usual case, need no further check.
            check_row(row)
        if flags == TRACK and not source:
            raise InvalidBatchError("a TRACK row needs a source: use Producer(acker, source)")
    return rows
