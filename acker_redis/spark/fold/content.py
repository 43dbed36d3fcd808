"""All that a micro-batch has to say to one shard: merged, checked, and cut into calls.

This is where a message's row becomes whole. Its input, all it caused and whether it failed may come
from different DataFrames and partitions; they are brought into one row per anchor here, whatever
the plan was, and a child without its input is refused. The same content gives the same calls and
the same digest, whichever way its terms came.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acker_redis.batching.column_batch import ColumnBatch
from acker_redis.batching.sent import Part
from acker_redis.errors import DuplicateMessageError, InvalidBatchError
from acker_redis.protocol.arrays import Ints, wire
from acker_redis.protocol.blocks import BlockPart, calls, pack_deltas, pack_track, split_failures
from acker_redis.protocol.ids import ANCHOR_MAX, BLOCK_MAX, block_number
from acker_redis.protocol.rows import FAIL, MAX_ROWS, MAX_TEXTS, TOUCH, TRACK, Columns
from acker_redis.protocol.texts import check_text
from acker_redis.spark.fold.merged import Merged, numbers
from acker_redis.spark.fold.terms import LOOSE, Kind, Packed, unpack_texts


@dataclass(frozen=True, slots=True)
class Sealed:
    """The calls of one shard, in their order."""

    shard: int
    parts: tuple[Part, ...]
    digest: str
    """32 hex digits that tell this content, and how it is cut, from any other."""
    messages: int
    """Terms of inputs and tracks."""
    trees: int
    """Anchors that are heard of."""


class Content:
    """Terms of one shard. ``labels`` names the blocks that are tracked, by number.

    With ``fail_all`` nothing is acked or emitted: all trees that are named fail, for this reason.
    """

    def __init__(
        self,
        shard: int,
        shards: int,
        task: str = "",
        labels: Mapping[int, str] | None = None,
        fail_all: str | None = None,
    ) -> None:
        self._shard, self._shards = shard, shards
        self._task, self._labels = task, labels or {}
        self._fail_all = fail_all
        self._inputs, self._tracked = Merged(), Merged()
        self._terms = {Kind.INPUT: 0, Kind.TRACK: 0}
        self._rows: dict[Kind, list[Packed]] = {}

    def add(self, row: Packed) -> None:
        """Take a packed row of this shard. Raises InvalidBatchError if it says what is wrong."""
        if row.kind is Kind.ERROR:
            raise InvalidBatchError(row.texts.decode())
        if row.kind in self._terms:
            self._terms[row.kind] += row.terms
        if row.kind is Kind.INPUT or (row.kind is Kind.TRACK and row.block != LOOSE):
            merged = self._inputs if row.kind is Kind.INPUT else self._tracked
            if row.block == LOOSE:
                merged.add_loose(row.anchors, row.deltas)
            else:
                merged.add_block(row.block, row.anchors, row.deltas)
        else:
            self._rows.setdefault(row.kind, []).append(row)

    def seal(self) -> Sealed:
        """All of it, as it is sent.

        Raises InvalidBatchError for a source id or a child that is there twice, for a child whose
        input is not in this batch, and for a source id that the scripts would refuse.
        """
        if self._fail_all is None:
            self._add_children()
        parts = [
            *self._track_loose(),
            *(Part(self._shard, call) for call in calls(self._track_blocks())),
            *self._bolts(),
            *self._touches(),
        ]
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            digest.update(part.rows.digest.encode())
        trees = sum(_trees(part) for part in parts)
        return Sealed(
            self._shard, tuple(parts), digest.hexdigest(), sum(self._terms.values()), trees
        )

    def _add_children(self) -> None:
        rows = self._rows.get(Kind.CHILD, [])
        if not rows:
            return
        anchors, ids = _column(row.anchors for row in rows), _column(row.deltas for row in rows)
        _check_distinct(anchors, ids)
        self._check_inputs(anchors)
        self._inputs.add(anchors, ids)

    def _check_inputs(self, anchors: Ints) -> None:
        """Each child has its input here; else its tree may be complete already, and say so."""
        children = np.unique(anchors)
        ones, deltas = self._inputs.loose_arrays()
        lost = np.setdiff1d(children[children <= ANCHOR_MAX], ones[deltas != 0], assume_unique=True)
        in_blocks = children[children > ANCHOR_MAX]
        starts = np.flatnonzero(np.diff(in_blocks >> 12)) + 1
        for some in np.split(in_blocks, starts) if len(in_blocks) else ():
            slots = self._inputs.slots(int(some[0]) >> 12 & BLOCK_MAX)
            lost = np.concatenate([lost, some[slots[some & 0xFFF] == 0]])
        if len(lost):
            raise DuplicateMessageError(
                f"{len(lost)} trees get children, but no input of theirs is acked in this batch "
                f"(anchor {lost[0]}): emit from rows of this batch's df, with the anchor and tuple "
                "they came with, and do not ack without them; or an input is there twice"
            )

    def _track_loose(self) -> Iterator[Part]:
        rows = self._rows.get(Kind.TRACK, [])
        if not rows:
            return
        anchors, deltas = _column(row.anchors for row in rows), _column(row.deltas for row in rows)
        texts = pa.chunked_array([unpack_texts(row.ends, row.texts) for row in rows])
        order = np.argsort(anchors, kind="stable")
        anchors, deltas = anchors[order], deltas[order]
        ids = texts.take(pa.array(order)).combine_chunks()
        twice = np.flatnonzero(anchors[1:] == anchors[:-1])
        if len(twice):
            raise InvalidBatchError(
                f"{len(twice)} source ids are there more than once in this batch, "
                f"{ids[int(twice[0])].as_py().decode(errors='replace')!r} for one: make the source "
                "id unique, or give a replay its attempt="
            )
        sizes = np.asarray(pc.binary_length(ids))
        why = None if self._fail_all is None else check_text("why", self._fail_all, 0)
        for start, end in _chunks(sizes + len(why or b"")):
            sources = ids[start:end].to_pylist()
            for each in sources:
                check_text("source id", each.decode(errors="surrogateescape"), 1)
            flag = TRACK if why is None else TRACK | FAIL
            flags = bytes([flag]) * (end - start)
            whys = () if why is None else (why,) * (end - start)
            yield Part(
                self._shard,
                Columns(
                    flags,
                    wire(anchors[start:end]),
                    wire(deltas[start:end]),
                    self._task,
                    (*sources, *whys),
                ),
            )

    def _track_blocks(self) -> Iterator[BlockPart]:
        loose = sum(row.terms for row in self._rows.get(Kind.TRACK, []))
        left = self._terms[Kind.TRACK] - loose
        for block, _, _ in self._tracked.blocks():
            row = self._tracked.slots(block)
            left -= int(np.count_nonzero(row))
            last = int(np.max(np.flatnonzero(row), initial=0))
            yield from self._track_block(block, row[: last + 1].tobytes())
        if left:
            raise InvalidBatchError(
                f"{left} records of this batch have a number that another has too: number them "
                "uniquely (offset, row number), or give a replay its attempt="
            )

    def _track_block(self, block: int, column: bytes) -> Iterator[BlockPart]:
        label = self._labels[block]
        if self._fail_all is None:
            yield pack_track(block, self._task, label, column)
            return
        # Another content of this block may be pending: it fails under a number of its own.
        known = hashlib.blake2b(column, digest_size=8).hexdigest()
        candidates = (block_number(self._task, label, known, turn) for turn in count())
        number = next(each for each in candidates if each % self._shards == self._shard)
        failed = dict.fromkeys(range(len(column) // 8), self._fail_all)
        # As many as a call may carry; nobody else knows this number, so the block does not end.
        yield pack_track(number, self._task, label, column)
        yield from (pack_deltas(number, {}, lot) for lot in split_failures(failed))

    def _bolts(self) -> Iterator[Part]:
        failed: dict[int, str] = {}
        for row in self._rows.get(Kind.FAIL, []):
            whys = unpack_texts(row.ends, row.texts).to_pylist()
            for anchor, why in zip(numbers(row.anchors).tolist(), whys, strict=True):
                # Of several the first that says something, by the alphabet: in any order the same.
                known = failed.get(anchor)
                text = why.decode(errors="replace")
                if not known or (text and text < known):
                    failed[anchor] = text
        # However they came: where they do not fit one call, their order says where it is cut.
        failed = dict(sorted(failed.items()))
        if self._fail_all is not None:
            anchors = sorted({*self._anchors(), *failed})
            yield from ColumnBatch([], [], dict.fromkeys(anchors, self._fail_all)).parts(
                self._shards
            )
            return
        yield from ColumnBatch.of(self._inputs, failed).parts(self._shards)

    def _anchors(self) -> Iterator[int]:
        yield from self._inputs.loose_arrays()[0].tolist()
        for block, _, _ in self._inputs.blocks():
            base = 1 << 62 | block << 12
            yield from (base + slot for slot in np.flatnonzero(self._inputs.slots(block)).tolist())

    def _touches(self) -> Iterator[Part]:
        rows = self._rows.get(Kind.TOUCH, [])
        if not rows:
            return
        anchors = np.unique(_column(row.anchors for row in rows))
        loose = anchors[anchors <= ANCHOR_MAX]
        for at in range(0, len(loose), MAX_ROWS):
            some = wire(loose[at : at + MAX_ROWS])
            flags = bytes([TOUCH]) * (len(some) // 8)
            yield Part(self._shard, Columns(flags, some, bytes(len(some)), "", ()))
        blocks = np.unique(anchors[anchors > ANCHOR_MAX] >> 12 & BLOCK_MAX).tolist()
        touches = (pack_deltas(block, {}, touch=True) for block in blocks)
        yield from (Part(self._shard, call) for call in calls(touches))


def _column(columns: Iterable[bytes]) -> Ints:
    return numbers(b"".join(columns))


def _check_distinct(anchors: Ints, ids: Ints) -> None:
    """Two children of one id would cancel, and the tree be complete without them."""
    order = np.argsort(ids, kind="stable")
    same = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    # Most often there is none; and in different trees equal ids do not harm.
    if not len(same):
        return
    either = np.unique(np.concatenate([order[same], order[same + 1]]))
    pairs = np.stack([ids[either], anchors[either]])
    _, counts = np.unique(pairs, axis=1, return_counts=True)
    if (counts > 1).any():
        raise DuplicateMessageError(
            f"{int(counts[counts > 1].sum())} messages of this batch share an id with another of "
            "their tree, and would cancel: several rows that one message causes on an edge need "
            "key=[columns that tell them apart], and an edge is emitted once per batch"
        )


def _chunks(sizes: Ints) -> Iterator[tuple[int, int]]:
    """Where calls begin and end: by rows, and by bytes of their texts."""
    ends, start = np.cumsum(sizes), 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        fits = int(np.searchsorted(ends, before + MAX_TEXTS, side="right"))
        end = max(start + 1, min(start + MAX_ROWS, fits))
        yield start, end
        start = end


def _trees(part: Part) -> int:
    if isinstance(part.rows, Columns):
        return len(part.rows)
    return sum(len(each.slots) // 2 or len(each.deltas) // 8 for each in part.rows.parts)
