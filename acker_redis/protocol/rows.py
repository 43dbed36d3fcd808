"""Rows: what one message did to one of its trees; and columns of rows, as they are sent."""

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

TRACK, FAIL, TOUCH = 1, 2, 4
MAX_ROWS = 1024
"""Rows (distinct anchors) of one batch at most."""
MAX_TEXTS = 64 * 1024
"""Bytes of all source ids and whys of one batch at most."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of one shard as they are sent: ``n`` flags, ``8n`` bytes each of anchors, deltas."""

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
        """16 hex digits that tell these rows from others."""
        digest = hashlib.blake2b(self.flags, digest_size=8)
        digest.update(self.anchors + self.deltas + self.task.encode())
        for text in self.texts:
            digest.update(b"%d " % len(text) + text)
        return digest.hexdigest()

    def anchor(self, row: int) -> int:
        """Anchor of a row, counted from 0."""
        return int.from_bytes(self.anchors[8 * row : 8 * row + 8], "big")


class Row(NamedTuple):
    """A row of a loose tree, or of one in a block.

    It is whole: the message's own id XOR the ids of all messages it caused, never split.

    >>> ack_row(7, 40, [41, 42]).delta == 40 ^ 41 ^ 42
    True
    """

    anchor: int
    delta: int
    flags: int = 0
    """TRACK, FAIL or TOUCH; 0 is an ack."""
    text: str = ""
    """Source id of a TRACK; why, of a FAIL."""


def track_row(anchor: int, source_id: str, emitted: Iterable[int]) -> Row:
    """A tree begins; see :meth:`Batch.track`."""
    return Row(anchor, xor_ids(emitted), TRACK, source_id)


def ack_row(anchor: int, tuple_id: int, emitted: Iterable[int] = ()) -> Row:
    """A message was processed; see :meth:`Batch.ack`."""
    return Row(anchor, whole(tuple_id, emitted))


def fail_row(
    anchor: int, why: str = "", tuple_id: int | None = None, emitted: Iterable[int] = ()
) -> Row:
    """A tree failed; see :meth:`Batch.fail`."""
    return Row(
        anchor, xor_ids(emitted) if tuple_id is None else whole(tuple_id, emitted), FAIL, why
    )


def touch_row(anchor: int) -> Row:
    """A tree needs more time; see :meth:`Batch.touch`."""
    return Row(anchor, 0, TOUCH)


def whole(tuple_id: int, emitted: Iterable[int]) -> int:
    """Delta of a processed message: its id XOR the ids of all it caused."""
    children = list(emitted)
    if check_tuple_id(tuple_id) in children:
        raise InvalidBatchError("a message cannot have the id of one it caused; draw another")
    return tuple_id ^ xor_ids(children)


def check_row(row: Row) -> bytes:
    """UTF-8 of a row's text, or InvalidBatchError if the row cannot be."""
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


def check_rows(rows: Iterable[Row], task: str) -> list[Row]:
    """The rows, if a producer of this task may send them; InvalidBatchError otherwise."""
    rows = list(rows)
    for row in rows:
        anchor, delta, flags, _ = row
        if (
            flags
            or type(anchor) is not int
            or not 1 <= anchor <= ANCHOR_MAX
            or (type(delta) is not int or not 0 <= delta <= TUPLE_MAX)
        ):  # not an ack of a loose tree, as most are
            check_row(row)
        if flags == TRACK and not task:
            raise InvalidBatchError("name the source: Producer(acker, task), to track by it")
    return rows
