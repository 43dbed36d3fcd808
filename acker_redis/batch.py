"""Batches: rows folded per anchor, and the columns of bytes that go over the wire.

A row says what one processed message did to its tree: the message's own id XOR the ids
of all messages it caused. It is never split: not into two rows, not over two batches.
"""

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from acker_redis.errors import InvalidBatchError
from acker_redis.ids import check_anchor, check_tuple_id, shard_of, xor_ids
from acker_redis.keys import check_name

TRACK, FAIL, TOUCH = 1, 2, 4
MAX_ROWS = 1024
"""Rows (distinct anchors) of one batch at most."""
MAX_TEXT = 255
"""Bytes of a source id or of a why at most."""
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


@dataclass(slots=True)
class Sent:
    """A batch's number in its lane, and the shards that have answered."""

    namespace: str
    producer: str
    seq: int
    at: float
    """When it was sent first, on the ``time.monotonic`` clock."""
    replies: dict[int, Any] = field(default_factory=dict)
    """ShardApplied per shard."""


class Batch:
    """Rows of one call, folded per anchor; at most 1024 anchors and 64 KiB of texts.

    ``task`` is the source that tracks; a batch without TRACK rows needs none. A batch is
    applied all or nothing (per shard), and once: it may be applied again after an error.

    Raises InvalidBatchError from every method for a row that cannot be applied; the
    batch is then as it was.
    """

    def __init__(self, task: str = "") -> None:
        self.task = check_name("task", task) if task else ""
        self.sent: Sent | None = None
        """Where and when it was sent first; set by the client, and no row comes in any more."""
        self._rows: dict[int, _Row] = {}
        self._texts = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def full(self) -> bool:
        """Whether another row could be one too many, or its text too long for the rest."""
        return len(self._rows) >= MAX_ROWS or self._texts > MAX_TEXTS - MAX_TEXT

    def track(self, anchor: int, source_id: str, emitted: Iterable[int]) -> None:
        """Begin a tree: the source's own id for it, and the ids of all its first messages.

        With no messages the tree is complete at once. ``source_id`` has 1 to 255 bytes of
        UTF-8 without control characters, and comes back with the verdict.
        """
        if not self.task:
            raise InvalidBatchError("name the source: Batch(task=...), to track in this batch")
        text = check_text("source id", source_id, 1)
        row = self._rows.get(check_anchor(anchor))
        if row and row.flags & TRACK:
            raise InvalidBatchError(f"anchor {anchor} is tracked twice; draw one per attempt")
        self._fold(anchor, xor_ids(emitted), TRACK, text).source_id = text

    def ack(self, anchor: int, tuple_id: int, emitted: Iterable[int] = ()) -> None:
        """A message was processed; ``emitted`` are the ids of all messages it caused."""
        self._fold(anchor, _whole_row(tuple_id, emitted), 0)

    def fail(
        self, anchor: int, why: str = "", tuple_id: int | None = None, emitted: Iterable[int] = ()
    ) -> None:
        """The tree has failed, and is nacked at once; ``why`` has up to 255 bytes.

        Give ``tuple_id`` (and ``emitted``) when the message counts as processed.
        """
        text = check_text("why", why, 0)
        delta = xor_ids(emitted) if tuple_id is None else _whole_row(tuple_id, emitted)
        said = self._rows.get(check_anchor(anchor))
        if said and said.why:
            text = b""  # the first that says something wins
        row = self._fold(anchor, delta, FAIL, text)
        row.why = row.why or text

    def touch(self, anchor: int) -> None:
        """More time is needed: the tree's clock starts anew (Storm's resetTimeout)."""
        self._fold(anchor, 0, TOUCH)

    def columns(self, shards: int = 1) -> dict[int, Columns]:
        """Wire columns per shard, rows in the order of their first appearance."""
        parts: dict[int, list[_Row]] = {}
        for row in self._rows.values():
            parts.setdefault(shard_of(row.anchor, shards), []).append(row)
        return {shard: _pack(rows, self.task) for shard, rows in parts.items()}

    def _fold(self, anchor: int, delta: int, flags: int, text: bytes = b"") -> "_Row":
        if self.sent:
            raise InvalidBatchError("this batch was sent already; put new rows into a new one")
        row = self._rows.get(check_anchor(anchor))
        if self._texts + len(text) > MAX_TEXTS or (row is None and len(self._rows) >= MAX_ROWS):
            raise InvalidBatchError(
                f"a batch has at most {MAX_ROWS} rows and {MAX_TEXTS} bytes of source ids and "
                "whys; apply it and begin another"
            )
        if row is None:
            row = self._rows[anchor] = _Row(anchor)
        self._texts += len(text)
        row.delta ^= delta
        row.flags |= flags
        return row


@dataclass(slots=True)
class _Row:
    anchor: int
    delta: int = 0
    flags: int = 0
    source_id: bytes = b""
    why: bytes = b""


def check_text(kind: str, text: str, least: int) -> bytes:
    """UTF-8 of a source id or why; InvalidBatchError if the scripts would refuse it."""
    try:
        data = text.encode()
    except (UnicodeEncodeError, AttributeError):
        raise InvalidBatchError(f"a {kind} is text that UTF-8 can hold, not {text!r}") from None
    if not least <= len(data) <= MAX_TEXT:
        raise InvalidBatchError(f"a {kind} has {least} to {MAX_TEXT} bytes, this one {len(data)}")
    if any(byte < 0x20 or byte == 0x7F for byte in data):
        raise InvalidBatchError(f"a {kind} has no control characters: {text!r}")
    return data


def _whole_row(tuple_id: int, emitted: Iterable[int]) -> int:
    children = list(emitted)
    if check_tuple_id(tuple_id) in children:
        raise InvalidBatchError("a message cannot have the id of one it caused; draw another")
    return tuple_id ^ xor_ids(children)


def _pack(rows: list[_Row], task: str) -> Columns:
    form = struct.Struct(f">{len(rows)}Q")
    sources = tuple(row.source_id for row in rows if row.flags & TRACK)
    return Columns(
        flags=bytes(row.flags for row in rows),
        anchors=form.pack(*(row.anchor for row in rows)),
        deltas=form.pack(*(row.delta for row in rows)),
        task=task if sources else "",
        texts=sources + tuple(row.why for row in rows if row.flags & FAIL),
    )
