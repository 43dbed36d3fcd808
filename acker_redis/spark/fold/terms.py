"""The terms of a micro-batch, packed on the executors into few, large rows.

One :class:`Packer` folds each partition of a DataFrame of *terms*, in an executor or, for small
batches, in the driver. The packed rows go to the partition of their shard, where
:mod:`acker_redis.spark.fold.content` merges them. A term is a statement of one message about the
tree of one anchor:

=========  =================================================  ==========================
kind       meaning, and delta                                 text
=========  =================================================  ==========================
INPUT      the message was processed: its id, perhaps XOR
           the ids of its children
CHILD      a message of this batch caused another: the id of
           the new message
MENTION    the job has processed a message of this batch, or
           emitted from it: the message's id
PART       split() has made a row of a message of this batch:
           the id of the row
FAIL       the tree fails                                     why the tree fails
TOUCH      the tree needs more time
TRACK      a source tracks the tree: the XOR of the ids of    source id of a loose tree
           its first messages
=========  =================================================  ==========================

ERROR is not a term: it carries an error of the batch to each shard.

INPUT terms are folded at once, because XOR gives the same result in any order. CHILD, PART and
MENTION terms are kept as single ids: equal ids must be found when all terms of a shard are
together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.arrays import Ints, wire
from acker_redis.protocol.ids import ANCHOR_MAX, BLOCK_MAX, SLOTS
from acker_redis.protocol.texts import clipped
from acker_redis.spark.fold.merged import Merged
from acker_redis.spark.fold.scatter import Scatter

LOOSE = -1
"""Block number of rows of loose trees."""
_SOME = 1 << 17
"""Terms that are folded together."""
_FULL = 1 << 22
"""Maximum terms of one kind that are held before they are packed."""
_PIECE = 1 << 20
"""Maximum anchors in one packed row: 8 MiB per column."""


_Columns = tuple[Ints, Ints | None, pa.Array | None]


class Kind(IntEnum):
    """The kind of a term; the module describes each."""

    INPUT = 0
    CHILD = 1
    FAIL = 2
    TOUCH = 3
    TRACK = 4
    ERROR = 5
    MENTION = 6
    PART = 7


@dataclass(frozen=True, slots=True)
class Packed:
    """Terms of one kind and one shard.

    A row of kind INPUT, or of kind TRACK without texts, has terms of one block or of loose trees. A
    row of another kind has terms of any trees.
    """

    shard: int
    kind: Kind
    block: int
    """Number of the block, or LOOSE."""
    anchors: bytes
    """Anchors, 8 bytes each, big-endian; for a block its slots, 2 bytes each, empty if dense."""
    deltas: bytes
    """Deltas, 8 bytes each, big-endian; empty for FAIL and TOUCH."""
    ends: bytes
    """End of each text in ``texts``, 8 bytes each, little-endian; empty without texts."""
    texts: bytes
    """The concatenated texts, in UTF-8."""
    terms: int
    """Number of terms that were folded into the row."""


ELSEWHERE = "bad_rows= of track() names a queue for such rows, and the others go on"
CHANGED_NUMBER = (
    "the number of a record changed while its batch ran: the plan gives another one each time; "
    "number the records by a column that the source holds (offset, row number), or pass "
    "b.freeze(df)"
)


SPARK_SCHEMA = (
    "shard INT, kind INT, block BIGINT, anchors BINARY, deltas BINARY, ends BINARY, texts BINARY, "
    "terms BIGINT"
)
ARROW_SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("kind", pa.int32()),
        ("block", pa.int64()),
        ("anchors", pa.binary()),
        ("deltas", pa.binary()),
        ("ends", pa.binary()),
        ("texts", pa.binary()),
        ("terms", pa.int64()),
    ]
)


class Packer:
    """Packs the terms of one partition, for a namespace with ``shards`` shards.

    Memory: up to 4 million terms of 16 bytes for each kind, and texts.

    >>> packer = Packer(1)
    >>> list(packer.add(Kind.INPUT, np.array([7, 7]), np.array([40, 41])))
    []
    >>> [(row.kind.name, row.anchors.hex(), row.deltas.hex()) for row in packer.finish()]
    [('INPUT', '0000000000000007', '0000000000000001')]
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._columns: dict[tuple[Kind, bool], list[_Columns]] = {}
        self._held: dict[tuple[Kind, bool], int] = {}
        self._folding: dict[Kind, _Folding] = {}

    def add(
        self, kind: Kind, anchors: Ints, deltas: Ints | None = None, texts: pa.Array | None = None
    ) -> Iterator[Packed]:
        """Add columns of terms of one kind; yield packed rows when enough terms are held.

        Raises InvalidBatchError for an invalid anchor or id.
        """
        if not len(anchors):
            return
        if kind is Kind.TRACK and texts is None and anchors.min() <= ANCHOR_MAX:
            raise InvalidBatchError(CHANGED_NUMBER)  # a loose tree has a source id
        _check(kind, anchors, deltas)
        if texts is not None:
            texts = _whys(texts) if kind is Kind.FAIL else _source_ids(texts)
        if kind is Kind.INPUT or (kind is Kind.TRACK and texts is None):
            if kind not in self._folding:
                self._folding[kind] = _Folding(kind, self._shards)
            yield from self._folding[kind].add(anchors, deltas if deltas is not None else anchors)
            return
        key = kind, texts is not None
        self._columns.setdefault(key, []).append((anchors, deltas, texts))
        self._held[key] = self._held.get(key, 0) + len(anchors)
        if self._held[key] >= _FULL:
            yield from self._pack(key)

    def finish(self) -> Iterator[Packed]:
        """Yield the packed rows of all remaining terms."""
        for folding in self._folding.values():
            yield from folding.finish()
        for key in list(self._columns):
            yield from self._pack(key)

    def _pack(self, key: tuple[Kind, bool]) -> Iterator[Packed]:
        self._held[key] = 0
        kind, columns = key[0], self._columns.pop(key)
        anchors = np.concatenate([each[0] for each in columns])
        some = [each[1] for each in columns if each[1] is not None]
        ids = np.concatenate(some) if some else None
        said = [each[2] for each in columns if each[2] is not None]
        texts = pa.chunked_array(said) if said else None
        for shard, mine in _by_shard(anchors, self._shards):
            for at in range(0, len(mine), _PIECE):
                rows = mine[at : at + _PIECE]
                ends, data = pack_texts(
                    None if texts is None else texts.take(rows).combine_chunks()
                )
                yield Packed(
                    shard=shard,
                    kind=kind,
                    block=LOOSE,
                    anchors=wire(anchors[rows]),
                    deltas=b"" if ids is None else wire(ids[rows]),
                    ends=ends,
                    texts=data,
                    terms=len(rows),
                )


class _Folding:
    """The fold of the INPUT or TRACK terms of a partition."""

    def __init__(self, kind: Kind, shards: int) -> None:
        self._kind, self._shards = kind, shards
        self._begin()

    def _begin(self) -> None:
        self._waiting: list[tuple[Ints, Ints]] = []
        self._rows, self._enough = 0, _SOME
        self._scatter = Scatter()
        self._merged = Merged()
        self._terms = np.zeros(self._shards, dtype=np.int64)
        self._held, self._full = 0, False

    def add(self, anchors: Ints, deltas: Ints) -> Iterator[Packed]:
        """Add columns; yield packed rows when enough terms are held."""
        self._waiting.append((anchors, deltas))
        self._rows += len(anchors)
        if self._rows >= self._enough:
            self._fold(self._rows >= _FULL)
            if self._full:
                yield from self.finish()

    def finish(self) -> Iterator[Packed]:
        """Yield the packed rows of all remaining terms."""
        if self._rows:
            self._fold(last=True)
        for block, slots, deltas in self._scatter.blocks():
            self._merged.add_block(block, slots, deltas)
        terms = self._terms.tolist()
        for shard, names, column in self._merged.loose(self._shards):
            yield Packed(shard, self._kind, LOOSE, names, column, b"", b"", terms[shard])
            terms[shard] = 0  # counted once per shard
        for block, names, column in self._merged.blocks():
            shard = block % self._shards
            yield Packed(shard, self._kind, block, names, column, b"", b"", terms[shard])
            terms[shard] = 0
        self._begin()

    def _fold(self, last: bool) -> None:
        """Fold the waiting terms; terms of blocks wait if they are too few, unless ``last``."""
        anchors = np.concatenate([each for each, _ in self._waiting])
        deltas = np.concatenate([each for _, each in self._waiting])
        in_block = anchors > ANCHOR_MAX
        if not in_block.all():
            self._take(anchors[~in_block], deltas[~in_block])
            anchors, deltas = anchors[in_block], deltas[in_block]
        self._waiting, self._rows = [(anchors, deltas)], len(anchors)
        if not len(anchors) or self._scatter.add(anchors, deltas):
            self._count(anchors)
        elif last:
            self._take(anchors, deltas)
        else:
            self._enough = min(2 * self._enough, _FULL)
            return
        self._waiting, self._rows = [], 0

    def _take(self, anchors: Ints, deltas: Ints) -> None:
        self._count(anchors)
        self._merged.add(anchors, deltas)
        self._held += len(anchors)
        self._full = self._held >= _FULL

    def _count(self, anchors: Ints) -> None:
        if self._shards == 1:
            self._terms[0] += len(anchors)
        else:
            shard_of = shards_of(anchors, self._shards)
            self._terms += np.bincount(shard_of, minlength=self._shards)


def _by_shard(anchors: Ints, shards: int) -> Iterator[tuple[int, Ints]]:
    """Yield each shard with the places of its anchors."""
    if shards == 1:
        yield 0, np.arange(len(anchors))
        return
    shard_of = shards_of(anchors, shards)
    order = np.argsort(shard_of, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(shard_of[order])) + 1):
        yield int(shard_of[mine[0]]), mine


def _check(kind: Kind, anchors: Ints, deltas: Ints | None) -> None:
    in_block = anchors > ANCHOR_MAX
    if anchors.min() < 1 or (in_block & (anchors & 0xFFF >= SLOTS)).any():
        raise InvalidBatchError(
            "an anchor must be a number from 1 to 2^62-1, or the anchor of a slot in a block: keep "
            "the anchors that track() gives"
        )
    if deltas is not None and deltas.min() < (1 if kind in (Kind.CHILD, Kind.PART) else 0):
        raise InvalidBatchError(
            "an id of a message must be a number from 1 to 2^63-1: make ids with acker.ids"
        )


def _whys(texts: pa.Array) -> pa.Array:
    """Return reasons that a row can hold: cut to their limit, invalid bytes replaced, no nulls.

    A null becomes an empty reason. Reasons are for people, so a change of their text is harmless.
    """
    # Spark does not guarantee that its strings are UTF-8.
    texts = texts.cast(pa.binary()).fill_null(b"")
    harmless = pc.match_substring_regex(texts, r"^[ -~]{0,255}$")
    if pc.all(harmless).as_py() is not False:
        return texts
    words = (text.decode(errors="replace") for text in texts.to_pylist())
    return pa.array([clipped(text).encode() for text in words], pa.binary())


def _source_ids(texts: pa.Array) -> pa.Array:
    if texts.null_count:
        raise InvalidBatchError(
            f"{texts.null_count} rows have no source id: it must not be null; {ELSEWHERE}"
        )
    return texts


def bad(error: InvalidBatchError, shards: int) -> Iterator[Packed]:
    """Yield the error of a partition as a row for each shard: no shard then applies the batch."""
    for shard in range(shards):
        yield Packed(shard, Kind.ERROR, LOOSE, b"", b"", b"", str(error).encode(), 0)


def shards_of(anchors: Ints, shards: int) -> Ints:
    """Return the shard of each anchor, loose or in a block."""
    return np.where(anchors > ANCHOR_MAX, anchors >> 12 & BLOCK_MAX, anchors) % shards


def pack_texts(texts: pa.Array | None) -> tuple[bytes, bytes]:
    """Return ``ends`` and ``texts`` of :class:`Packed` for a column of strings without nulls."""
    if texts is None:
        return b"", b""
    column = texts.cast(pa.large_binary())
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, "<i8", len(column) + 1, 8 * column.offset)
    start, stop = int(ends[0]), int(ends[-1])
    return (ends[1:] - start).tobytes(), bytes(data.slice(start, stop - start)) if data else b""


def unpack_texts(ends: bytes, texts: bytes) -> pa.Array:
    """Return the column of bytes that :func:`pack_texts` packed."""
    offsets = np.concatenate(([0], np.frombuffer(ends, "<i8"))).astype("<i8")
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
