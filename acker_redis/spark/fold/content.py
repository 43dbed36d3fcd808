"""The content of a micro-batch for one shard: merged, checked, and cut into calls.

This module makes the row of each message whole. A message's input, its children and its failure may
come from different DataFrames and partitions. :class:`Content` merges them into one row per anchor,
independent of the plan, and refuses a child without an input. It finds the messages that the job
does not mention (:mod:`~acker_redis.spark.fold.vanished`). The result is deterministic: the same
content gives the same calls and the same digest, in any order and any partitions of its terms.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acker_redis.batching.column_batch import ColumnBatch
from acker_redis.batching.sent import Part
from acker_redis.errors import DuplicateMessageError, InvalidBatchError
from acker_redis.protocol.arrays import Ints, distinct, wire
from acker_redis.protocol.blocks import BlockPart, calls, pack_deltas, pack_track, split_failures
from acker_redis.protocol.ids import ANCHOR_MAX, BLOCK_MAX
from acker_redis.protocol.rows import FAIL, MAX_ROWS, MAX_TEXTS, TOUCH, TRACK, Columns
from acker_redis.protocol.slots import count_slots
from acker_redis.protocol.texts import CONTROL, MAX_TEXT, check_text
from acker_redis.spark.fold.merged import Merged, numbers
from acker_redis.spark.fold.report import EXAMPLES
from acker_redis.spark.fold.terms import (
    CHANGED_NUMBER,
    ELSEWHERE,
    LOOSE,
    Kind,
    Packed,
    unpack_texts,
)
from acker_redis.spark.fold.vanished import Pairs, Unmentioned, vanished

_HARMLESS = f"^[^{CONTROL.pattern[1:-1]}]{{1,{MAX_TEXT}}}$"
"""What ``check_text`` accepts as a source id, in bytes."""
_COUNTED = 1 << 17
"""Maximum number of mentions that are all counted."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The calls of one shard, in their order."""

    shard: int
    parts: tuple[Part, ...]
    digest: str
    """32 hex digits that identify this content and its cut into calls."""
    messages: int
    """Number of INPUT and TRACK terms."""
    trees: int
    """Number of anchors in the calls; a dense column of a bolt counts all its slots."""
    vanished: int = 0
    """Number of trees with a message that vanished."""
    examples: tuple[str, ...] = ()
    """``anchor:tuple`` of some of these messages."""
    mentioned: int = 0
    """How often a message was mentioned at most; 0 if there are parts, or no mentions. Of many
    mentions, a sixteenth is counted."""


class Content:
    """The terms of one shard. ``labels`` has the labels of the tracked blocks, by block number.

    With ``fail_all`` the content acks and emits nothing: it fails all named trees with this reason.
    Unless ``unmentioned`` is ``ack``, each message and each part needs a MENTION term, or its tree
    a FAIL term. The trees of the others fail with the reason ``why_vanished``, or their messages
    are not acked.
    """

    def __init__(
        self,
        shard: int,
        shards: int,
        source: str = "",
        labels: Mapping[int, str] | None = None,
        fail_all: str | None = None,
        unmentioned: Unmentioned = "ack",
        why_vanished: str = "",
    ) -> None:
        self._shard, self._shards = shard, shards
        self._source, self._labels = source, labels or {}
        self._fail_all = fail_all
        self._unmentioned, self._why_vanished = unmentioned, why_vanished
        self._vanished: Pairs = np.empty(0, np.int64), np.empty(0, np.int64)
        self._inputs, self._tracked = Merged(), Merged()
        self._mentioned = 0
        self._terms = {Kind.INPUT: 0, Kind.TRACK: 0}
        self._rows: dict[Kind, list[Packed]] = {}

    def add(self, row: Packed) -> None:
        """Add a packed row of this shard. Raises InvalidBatchError for a row of kind ERROR."""
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
        """Return the calls of the shard.

        Raises InvalidBatchError for a source id that occurs twice, and for one that the scripts
        would refuse. Raises DuplicateMessageError for a child that occurs twice, and for a child or
        a mention whose input is not in this batch.
        """
        if self._fail_all is None:
            self._make_whole()
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
        lost = zip(*(column[:EXAMPLES].tolist() for column in self._vanished), strict=True)
        return Sealed(
            self._shard,
            tuple(parts),
            digest.hexdigest(),
            sum(self._terms.values()),
            trees,
            len(self._vanished[0]),
            tuple(f"{anchor}:{id_}" for anchor, id_ in lost),
            self._mentioned,
        )

    def _make_whole(self) -> None:
        """Add the children to the inputs, after all checks of the inputs alone."""
        children, mentions = self._pairs(Kind.CHILD), self._pairs(Kind.MENTION)
        parts = self._pairs(Kind.PART)
        _check_distinct(*_both(children, parts))
        self._check_inputs(np.concatenate([children[0], parts[0], mentions[0]]))
        if self._unmentioned != "ack":
            anchors, ids = vanished(self._inputs, parts, mentions, children)
            failed = _column(row.anchors for row in self._rows.get(Kind.FAIL, []))
            if not len(parts[1]):
                self._mentioned = _most(mentions[1])
            others = np.isin(anchors, failed, invert=True)
            self._vanished = anchors[others], ids[others]
        if self._unmentioned == "leave":
            self._inputs.add(*self._vanished)  # takes them away
        self._inputs.add(*children)

    def _pairs(self, kind: Kind) -> Pairs:
        rows = self._rows.get(kind, [])
        return _column(row.anchors for row in rows), _column(row.deltas for row in rows)

    def _check_inputs(self, anchors: Ints) -> None:
        """Raise DuplicateMessageError unless each of these trees has an input in this batch.

        Without an input, the tree may already be complete, and Redis may have sent its ack.
        """
        named = distinct(anchors)
        ones, deltas = self._inputs.loose_arrays()
        lost = np.setdiff1d(named[named <= ANCHOR_MAX], ones[deltas != 0], assume_unique=True)
        in_blocks = named[named > ANCHOR_MAX]
        starts = np.flatnonzero(np.diff(in_blocks >> 12)) + 1
        for some in np.split(in_blocks, starts) if len(in_blocks) else ():
            slots = self._inputs.slots(int(some[0]) >> 12 & BLOCK_MAX)
            lost = np.concatenate([lost, some[slots[some & 0xFFF] == 0]])
        if len(lost):
            raise DuplicateMessageError(
                f"{len(lost)} trees get children or acks, but no input of these trees is in this "
                f"batch (anchor {lost[0]}): emit from, and ack, rows of this batch's df, with the "
                "anchor and tuple that they came with. Or an input occurs twice, and cancels"
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
                f"{len(twice)} source ids occur more than once in this batch, for example "
                f"{ids[int(twice[0])].as_py().decode(errors='replace')!r}: make the source id "
                "unique (with key=, source id and key together), or give a replay its attempt=; "
                f"{ELSEWHERE}"
            )
        _check_source_ids(ids)
        sizes = np.asarray(pc.binary_length(ids))
        why = None if self._fail_all is None else check_text("why", self._fail_all, 0)
        for start, end in _chunks(sizes + len(why or b"")):
            sources = ids[start:end].to_pylist()
            flag = TRACK if why is None else TRACK | FAIL
            flags = bytes([flag]) * (end - start)
            whys = () if why is None else (why,) * (end - start)
            yield Part(
                self._shard,
                Columns(
                    flags,
                    wire(anchors[start:end]),
                    wire(deltas[start:end]),
                    self._source,
                    (*sources, *whys),
                ),
            )

    def _track_blocks(self) -> Iterator[BlockPart]:
        loose = sum(row.terms for row in self._rows.get(Kind.TRACK, []))
        left = self._terms[Kind.TRACK] - loose
        for block, _, _ in self._tracked.blocks():
            row = self._tracked.slots(block)
            trees = np.flatnonzero(row)
            left -= len(trees)
            if len(trees):
                yield from self._track_block(block, row[: trees[-1] + 1])
        # Each record must have a slot that is not 0. Otherwise it would get no verdict: records of
        # one number share a slot, and an even number of them cancel.
        if left:
            raise InvalidBatchError(
                f"{left} records of this batch have the number of another record: number them "
                "uniquely (offset, row number), or give a replay its attempt="
            )

    def _track_block(self, block: int, row: Ints) -> Iterator[BlockPart]:
        """Yield the parts that track a block; a slot with delta 0 holds no tree."""
        if block not in self._labels:
            raise InvalidBatchError(CHANGED_NUMBER)
        label, column = self._labels[block], row.tobytes()
        held = row != 0
        present = b"" if held.all() else np.packbits(held).tobytes()
        if self._fail_all is None:
            yield replace(pack_track(block, self._source, label, column), present=present)
            return
        # The block may be pending with the content of an earlier run. This content therefore fails
        # under a separate block number, derived from the content.
        known = hashlib.blake2b(column, digest_size=16).digest() + block.to_bytes(8, "big")
        candidates = (_number(known + turn.to_bytes(4, "big")) for turn in count())
        number = next(each for each in candidates if each % self._shards == self._shard)
        failed = dict.fromkeys(np.flatnonzero(held).tolist(), self._fail_all)
        # A part carries a limited number of failures. No other batch uses this block number, so the
        # block does not end between two parts.
        yield replace(pack_track(number, self._source, label, column), present=present)
        yield from (pack_deltas(number, {}, lot) for lot in split_failures(failed))

    def _bolts(self) -> Iterator[Part]:
        failed: dict[int, str] = {}
        for row in self._rows.get(Kind.FAIL, []):
            whys = unpack_texts(row.ends, row.texts).to_pylist()
            for anchor, why in zip(numbers(row.anchors).tolist(), whys, strict=True):
                # Of several reasons keep the alphabetically first that is not empty: so the result
                # does not depend on the order of the rows.
                known = failed.get(anchor)
                text = why.decode(errors="replace")
                if not known or (text and text < known):
                    failed[anchor] = text
        if self._unmentioned == "fail":
            failed |= dict.fromkeys(self._vanished[0].tolist(), self._why_vanished)
        # Sorted, because their order decides where the rows are cut into calls.
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
        anchors = distinct(_column(row.anchors for row in rows))
        loose = anchors[anchors <= ANCHOR_MAX]
        for at in range(0, len(loose), MAX_ROWS):
            some = wire(loose[at : at + MAX_ROWS])
            flags = bytes([TOUCH]) * (len(some) // 8)
            yield Part(self._shard, Columns(flags, some, bytes(len(some)), "", ()))
        blocks = distinct(anchors[anchors > ANCHOR_MAX] >> 12 & BLOCK_MAX).tolist()
        touches = (pack_deltas(block, {}, touch=True) for block in blocks)
        yield from (Part(self._shard, call) for call in calls(touches))


def _check_source_ids(ids: pa.Array) -> None:
    """Raise InvalidBatchError for the first source id that the scripts would refuse."""
    with contextlib.suppress(pa.ArrowInvalid):  # for bytes that are no UTF-8
        ids.cast(pa.large_string())
        if pc.all(pc.match_substring_regex(ids, _HARMLESS)).as_py():
            return
    try:
        for each in ids.to_pylist():
            check_text("source id", each.decode(errors="surrogateescape"), 1)
    except InvalidBatchError as error:
        raise InvalidBatchError(f"{error}; {ELSEWHERE}") from error


def _both(one: Pairs, other: Pairs) -> Pairs:
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])


def _most(ids: Ints) -> int:
    some = ids if len(ids) < _COUNTED else ids[ids & 15 == 0]
    return int(np.unique(some, return_counts=True)[1].max()) if len(some) else 0


def _number(content: bytes) -> int:
    # An author of data cannot choose it: it depends on ids, and so on the salt.
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> 14


def _column(columns: Iterable[bytes]) -> Ints:
    return numbers(b"".join(columns))


def _check_distinct(anchors: Ints, ids: Ints) -> None:
    """Raise DuplicateMessageError for two children of one tree with the same id.

    Their ids would cancel in the checksum, and the tree would be complete without them.
    """
    # Usually no ids are equal. Equal ids in different trees are harmless.
    if len(distinct(ids)) == len(ids):
        return
    order = np.argsort(ids, kind="stable")
    same = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    either = distinct(np.concatenate([order[same], order[same + 1]]))
    pairs = np.stack([ids[either], anchors[either]])
    _, counts = np.unique(pairs, axis=1, return_counts=True)
    if (counts > 1).any():
        raise DuplicateMessageError(
            f"{int(counts[counts > 1].sum())} messages of this batch share an id with another "
            "message of their tree, and would cancel: several rows of one message on an edge, or "
            "elements of one array, need key=[columns that distinguish them], and an edge is "
            "emitted once per batch"
        )


def _chunks(sizes: Ints) -> Iterator[tuple[int, int]]:
    """Yield where each call begins and ends, limited by rows and by bytes of texts."""
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
    return sum(
        count_slots(each.present) or len(each.slots) // 2 or len(each.deltas) // 8
        for each in part.rows.parts
    )
