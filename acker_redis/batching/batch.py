"""Batches: rows folded per anchor, and the columns of bytes on the wire.

A row records the effect of one processed message on its tree: the message's own id XOR the ids of
all messages it caused. A row is never split, neither into two rows nor over two batches.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from acker_redis.batching.sent import Part, Sent
from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.blocks import (
    MAX_BLOCKS,
    BlockPart,
    calls,
    pack_column,
    pack_deltas,
    pack_track,
)
from acker_redis.protocol.id_maker import PLAIN, IdMaker
from acker_redis.protocol.ids import (
    ANCHOR_MAX,
    check_anchor,
    check_block,
    check_loose,
    shard_of,
    split_anchor,
    xor_ids,
)
from acker_redis.protocol.keys import check_name
from acker_redis.protocol.labels import CountedLabel
from acker_redis.protocol.rows import (
    FAIL,
    MAX_ROWS,
    MAX_TEXTS,
    TOUCH,
    TRACK,
    Columns,
    Row,
    check_row,
    whole,
)
from acker_redis.protocol.slots import unpack_slots
from acker_redis.protocol.texts import MAX_TEXT, check_text

__all__ = ["FAIL", "MAX_ROWS", "MAX_TEXT", "MAX_TEXTS", "TOUCH", "TRACK", "Batch", "Columns"]


class Batch:
    """A batch of rows, folded per anchor: at most 1024 anchors and 64 KiB of texts.

    A batch has one part per shard for loose trees, and another for the blocks of that shard (64 per
    part). Each part is applied atomically. After an error, apply the same batch again: that is
    idempotent.

    Every method raises InvalidBatchError for an invalid row; the batch is then unchanged.

    Args:
        source: The source that tracks. A batch without TRACK rows needs no source.
        ids: ``acker.ids``, for :meth:`track_block`.

    Examples:
        >>> batch = Batch("shop")
        >>> batch.track(7, "order-1", [40])
        >>> batch.ack(7, 40, [41, 42])
        >>> len(batch)  # rows of one anchor are folded into one
        1

    """

    def __init__(self, source: str = "", *, ids: IdMaker = PLAIN) -> None:
        self._ids = ids
        self.source = check_name("source", source) if source else ""
        self.sent: Sent | None = None
        """State of the sent batch. The client sets it; after that no row can be added."""
        self._deltas: dict[int, int] = {}
        """The rows: an anchor and its delta."""
        self._flags: dict[int, int] = {}
        """Of the rows that have flags."""
        self._source_ids: dict[int, bytes] = {}
        self._whys: dict[int, bytes] = {}
        self._blocks: dict[int, BlockPart] = {}
        self._texts = 0

    def __len__(self) -> int:
        return len(self._deltas)

    def __bool__(self) -> bool:
        return bool(self._deltas or self._blocks)

    @property
    def full(self) -> bool:
        """Whether the batch may have no room for one more row or block with the longest text."""
        rows, blocks = len(self._deltas) >= MAX_ROWS, len(self._blocks) >= MAX_BLOCKS
        return rows or blocks or self._texts > MAX_TEXTS - MAX_TEXT

    def track(self, anchor: int, source_id: str, emitted: Iterable[int]) -> None:
        """Begin a tree. With no messages the tree is complete at once.

        Args:
            anchor: The anchor of the tree, a new one for each attempt: see :func:`new_anchor`.
            source_id: The source's id of the record, 1 to 255 bytes of UTF-8 without control
                characters. The verdict carries it.
            emitted: The ids of all its first messages.

        """
        self._needs_source()
        text = check_text("source id", source_id, 1)
        if self._flags.get(check_loose(anchor), 0) & TRACK:
            raise InvalidBatchError(
                f"anchor {anchor} is tracked twice; draw a new anchor for each attempt"
            )
        self._fold(anchor, xor_ids(emitted), TRACK, text)

    def track_block(
        self,
        label: str,
        deltas: Iterable[int] | bytes,
        block: int | None = None,
        present: Iterable[int] | None = None,
    ) -> range:
        """Begin a block of trees, and return their anchors, by slot.

        Emit the messages after the batch was applied and only if the block was not rejected
        (:attr:`Applied.rejected_blocks`): rows of a block that is not pending are dropped.

        Args:
            label: The source's name for the block, 1 to 255 bytes. The verdicts carry it. It must
                differ between attempts, and never name other records later: the block would have
                the same anchors. Labels like ``orders/3@1000`` are reserved for Spark.
            deltas: One number per tree, for 1 to 4095 trees: the XOR of the ids of the tree's first
                messages (:func:`~acker_redis.protocol.ids.xor_ids`), 0 for a tree without messages,
                which is complete at once, and for a slot that is not ``present``.
                It may be an array of numpy or Arrow, or bytes: 8 per tree, big-endian.
            block: The number of the block. By default it is derived from source and label
                (:meth:`IdMaker.block`), so a program that runs again tracks the same block.
            present: The slots that hold a tree, at least one; None for all. The others get no
                verdict.

        """
        self._needs_source()
        check_text("label", label, 1)
        if CountedLabel.parse(label):
            raise InvalidBatchError(
                f"label {label!r} looks like one of Spark's labels, which name consecutive "
                "records: use a label that does not end in @ and a number"
            )
        number = self._ids.block(self.source, label) if block is None else check_block(block)
        part = pack_track(number, self.source, label, deltas, present=present)
        if number in self._blocks:
            raise InvalidBatchError(
                f"block {label!r} is tracked twice; use another label for each attempt"
            )
        for anchor in self._deltas:
            place = split_anchor(anchor)
            if place and place[0] == number and not part.has_tree(place[1]):
                raise InvalidBatchError(
                    f"this batch has a row of slot {place[1]}, but block {label!r} "
                    + _without(part, place[1])
                )
        self._check_room(texts=len(label.encode()), blocks=1)
        self._texts += len(label.encode())
        self._blocks[number] = part
        return part.anchors

    def ack(self, anchor: int, tuple_id: int, emitted: Iterable[int] = ()) -> None:
        """Ack a processed message.

        Args:
            anchor: The anchor of the tree.
            tuple_id: The id of the message in the tree.
            emitted: The ids of all messages that it caused in the tree.

        """
        self._fold(anchor, whole(tuple_id, emitted), 0)

    def fail(
        self,
        anchor: int,
        why: str = "",
        tuple_id: int | None = None,
        emitted: Iterable[int] = (),
    ) -> None:
        """Fail the tree, which is nacked at once.

        Args:
            anchor: The anchor of the tree.
            why: The reason, up to 255 bytes of UTF-8 without control characters.
            tuple_id: The id of the message, if it counts as processed. In a block this matters: a
                block also waits for the messages of its failed trees.
            emitted: The ids of all messages that it caused, if ``tuple_id`` is given.

        """
        text = check_text("why", why, 0)
        delta = xor_ids(emitted) if tuple_id is None else whole(tuple_id, emitted)
        if check_anchor(anchor) in self._whys:
            text = b""  # the first why wins
        self._fold(anchor, delta, FAIL, text)

    def touch(self, anchor: int) -> None:
        """Reset the timeout of the tree (Storm's resetTimeout); in a block, that of the block."""
        self._fold(anchor, 0, TOUCH)

    def add(self, row: Row) -> bool:
        """Fold in a whole row, as :mod:`acker_redis.trees.processing` makes them.

        Return False if the row needs another batch: this one is full, or tracks the anchor already.
        """
        text = check_row(row)
        if row.flags & TRACK:
            self._needs_source()
        self._check_slot(row.anchor)
        return self.fold(row.anchor, row.delta, row.flags, text) is not None

    def fold(self, anchor: int, delta: int, flags: int = 0, text: bytes = b"") -> int | None:
        """As :meth:`add`, for a validated row, with its text as UTF-8.

        Return the number of new rows, 1 for the first of an anchor, else 0; None for no room.
        """
        if self.sent:
            self._check_room()
        known = anchor in self._deltas
        if flags:
            if self._texts + len(text) > MAX_TEXTS or flags & TRACK & self._flags.get(anchor, 0):
                return None
            if not known and len(self._deltas) >= MAX_ROWS:
                return None
            self._mark(anchor, flags, text)
        if known:
            self._deltas[anchor] ^= delta
            return 0
        if len(self._deltas) >= MAX_ROWS:
            return None
        self._deltas[anchor] = delta
        return 1

    def fold_acks(self, acks: dict[int, int]) -> bool:
        """Fold in many acks, by anchor; return False, and fold none, if there is no room."""
        if self.sent:
            self._check_room()
        if len(self._deltas) + len(acks) > MAX_ROWS:
            return False
        for anchor in self._deltas.keys() & acks.keys():
            acks[anchor] ^= self._deltas[anchor]
        self._deltas |= acks
        return True

    def rows(self) -> list[Row]:
        """Return the folded rows, one per anchor; two if a tree is both tracked and failed."""
        found = []
        for anchor, delta in self._deltas.items():
            flags, why = self._flags.get(anchor, 0), self._whys.get(anchor, b"").decode()
            if flags & TRACK:
                found.append(Row(anchor, delta, TRACK, self._source_ids[anchor].decode()))
                if flags & FAIL:
                    found.append(Row(anchor, 0, FAIL, why))
            else:
                found.append(Row(anchor, delta, FAIL if flags & FAIL else flags, why))
        return found

    def columns(self, shards: int = 1) -> dict[int, Columns]:
        """Return the wire columns of the loose rows per shard, in order of first appearance."""
        loose = [anchor for anchor in self._deltas if anchor <= ANCHOR_MAX]
        if shards == 1 or not loose:
            return {0: self._pack(loose)} if loose else {}
        by_shard: dict[int, list[int]] = {}
        for anchor in loose:
            by_shard.setdefault(shard_of(anchor, shards), []).append(anchor)
        return {shard: self._pack(anchors) for shard, anchors in by_shard.items()}

    def parts(self, shards: int = 1) -> list[Part]:
        """Return the parts to send: the loose rows of each shard, then the blocks."""
        by_shard: dict[int, list[BlockPart]] = {}
        for part in self._block_parts():
            by_shard.setdefault(part.block % shards, []).append(part)
        found = [Part(shard, columns) for shard, columns in self.columns(shards).items()]
        for shard, blocks in by_shard.items():
            found += [Part(shard, call) for call in calls(blocks)]
        return found

    def _block_parts(self) -> Iterator[BlockPart]:
        rows: dict[int, _BlockRows] = {block: _BlockRows() for block in self._blocks}
        for anchor in [each for each in self._deltas if each > ANCHOR_MAX]:
            if place := split_anchor(anchor):
                its, delta = rows.setdefault(place[0], _BlockRows()), self._deltas[anchor]
                its.add(place[1], delta, self._flags.get(anchor, 0), self._whys.get(anchor, b""))
        for block, its in rows.items():
            tracked = self._blocks.get(block)
            if tracked is None:
                yield pack_deltas(block, its.deltas, its.failed, its.touch)
            elif its.touch or its.failed or its.deltas:
                label = tracked.header[3 + tracked.header[2] :].decode()
                column = its.folded_into(tracked.deltas)
                held = unpack_slots(tracked.present) or None
                yield pack_track(block, self.source, label, column, its.failed, its.touch, held)
            else:
                yield tracked

    def _fold(self, anchor: int, delta: int, flags: int, text: bytes = b"") -> None:
        self._check_slot(check_anchor(anchor))
        self._check_room(rows=anchor not in self._deltas, texts=len(text))
        self._deltas[anchor] = self._deltas.get(anchor, 0) ^ delta
        if flags:
            self._mark(anchor, flags, text)

    def _mark(self, anchor: int, flags: int, text: bytes) -> None:
        """Add the flags and the text of a row; the first why of an anchor wins."""
        self._flags[anchor] = self._flags.get(anchor, 0) | flags
        if flags & TRACK:
            self._source_ids[anchor] = text
        elif not text or anchor in self._whys:
            return
        else:
            self._whys[anchor] = text
        self._texts += len(text)

    def _pack(self, anchors: list[int]) -> Columns:
        """Return the wire columns of the rows of these anchors."""
        form = struct.Struct(f">{len(anchors)}Q")
        flags, texts, task = bytes(len(anchors)), list[bytes](), ""
        if self._flags:
            flags = bytes([self._flags.get(anchor, 0) for anchor in anchors])
            tracked = [anchor for anchor in anchors if anchor in self._source_ids]
            texts = [self._source_ids[anchor] for anchor in tracked]
            texts += [self._whys.get(a, b"") for a in anchors if self._flags.get(a, 0) & FAIL]
            task = self.source if tracked else ""
        deltas = form.pack(*[self._deltas[anchor] for anchor in anchors])
        return Columns(flags, form.pack(*anchors), deltas, task, tuple(texts))

    def _needs_source(self) -> None:
        if not self.source:
            raise InvalidBatchError("a TRACK row needs a source: use Batch(source=...)")

    def _check_slot(self, anchor: int) -> None:
        """Raise InvalidBatchError for a slot without a tree of a block tracked in this batch."""
        place = split_anchor(anchor)
        part = self._blocks.get(place[0]) if place else None
        if place and part and not part.has_tree(place[1]):
            raise InvalidBatchError(f"block {part.block} {_without(part, place[1])}")

    def _check_room(self, rows: int = 0, texts: int = 0, blocks: int = 0) -> None:
        if self.sent:
            raise InvalidBatchError("this batch was already sent; add new rows to a new batch")
        if self._texts + texts > MAX_TEXTS or len(self._deltas) + rows > MAX_ROWS:
            raise InvalidBatchError(
                f"a batch has at most {MAX_ROWS} rows and {MAX_TEXTS} bytes of source ids and "
                "whys; apply this one and begin another"
            )
        if len(self._blocks) + blocks > MAX_BLOCKS:
            raise InvalidBatchError(
                f"a batch tracks at most {MAX_BLOCKS} blocks; apply this one and begin another"
            )


@dataclass(slots=True)
class _BlockRows:
    """Rows of the trees of one block."""

    deltas: dict[int, int] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    touch: bool = False

    def add(self, slot: int, delta: int, flags: int, why: bytes) -> None:
        if delta:
            self.deltas[slot] = delta
        if flags & FAIL:
            self.failed[slot] = why.decode()
        self.touch |= bool(flags & TOUCH)

    def folded_into(self, column: bytes) -> bytes:
        """Return the column of a TRACK with these deltas folded in."""
        values = list(struct.unpack(f">{len(column) // 8}Q", column))
        for slot, delta in self.deltas.items():
            values[slot] ^= delta
        return pack_column(values)


def _without(part: BlockPart, slot: int) -> str:
    """Return what a block says of a slot that holds no tree."""
    if slot in range(len(part.anchors)):
        return f"was tracked without a tree in slot {slot}"
    return f"has only {len(part.anchors)} slots, so no slot {slot}"
