"""A batch from two columns: anchors, loose or in blocks, and deltas, in any order."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from acker_redis.batching.fold_plain import PlainFold
from acker_redis.batching.sent import Part, Sent
from acker_redis.protocol.blocks import BlockPart, calls, pack_deltas, split_failures, unpack_column
from acker_redis.protocol.ids import check_anchor, split_anchor
from acker_redis.protocol.rows import FAIL, MAX_ROWS, MAX_TEXTS, Columns
from acker_redis.protocol.texts import MAX_TEXT, check_text


class Folded(Protocol):
    """Rows by anchor, each once and ascending, as they are sent."""

    def loose(self, shards: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Each shard with columns of its loose anchors and of their deltas."""

    def blocks(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Each block with its column: slots ('' if dense) and deltas."""


class ColumnBatch:
    """Rows of bolts, as many as there are; each is one message's whole row.

    ``anchors`` and ``deltas`` are columns of equal length, in any order: arrays of numpy or
    Arrow, or plain sequences. A delta is a message's id XOR the ids of all it caused in the
    anchor's tree. Rows of one anchor are folded; the columns of a block are packed dense or
    sparse, whichever is cheaper. With numpy (``acker-redis[numpy]``) 10 million rows over some
    hundred blocks take about a second; without it plain Python does the same, a dozen times slower.

    ``failed`` names the anchors whose trees fail, and why; what their messages caused stands
    in the columns as for all others.

    Apply it with :meth:`Acker.apply`: in parts, each all or nothing, each once. Raises
    InvalidBatchError for columns that cannot be.

    >>> acker = Acker.from_url(url, "orders")
    >>> anchors = acker.track_block("shop", "page 1", [40, 41, 42])
    >>> acker.apply(ColumnBatch(list(anchors), [40, 41, 42])).acked
    3
    """

    def __init__(self, anchors: Any, deltas: Any, failed: Mapping[int, str] | None = None) -> None:
        self.sent: Sent | None = None
        """Where and when it was sent first; set by the client."""
        self._loose_failed: dict[int, bytes] = {}
        self._block_failed: dict[int, dict[int, str]] = {}
        for anchor, why in (failed or {}).items():
            text, place = check_text("why", why, 0), split_anchor(check_anchor(anchor))
            if place is None:
                self._loose_failed[anchor] = text
            else:
                self._block_failed.setdefault(place[0], {})[place[1]] = why
        self._folded: Folded = fold(anchors, deltas)

    @classmethod
    def of(cls, folded: "Folded", failed: Mapping[int, str] | None = None) -> "ColumnBatch":
        """A batch of columns that were folded elsewhere."""
        batch = cls([], [], failed)
        batch._folded = folded
        return batch

    def parts(self, shards: int = 1) -> list[Part]:
        """All of it as it is sent: the loose rows of each shard, then its blocks."""
        found = list(self._loose_parts(shards))
        by_shard: dict[int, list[BlockPart]] = {}
        for part in self._block_parts():
            by_shard.setdefault(part.block % shards, []).append(part)
        for shard, blocks in sorted(by_shard.items()):
            found += [Part(shard, call) for call in calls(blocks)]
        return found

    def _loose_parts(self, shards: int) -> Iterator[Part]:
        failed = dict(self._loose_failed)
        # Where there may be whys, so few that all may be as long as they like.
        size = 8 * (MAX_TEXTS // MAX_TEXT if failed else MAX_ROWS)
        for shard, anchors, deltas in self._folded.loose(shards):
            for at in range(0, len(anchors), size):
                some = anchors[at : at + size]
                yield Part(shard, _columns(some, deltas[at : at + size], failed))
        by_shard: dict[int, list[int]] = {}
        for anchor in sorted(failed):
            by_shard.setdefault(anchor % shards, []).append(anchor)
        for shard, left in sorted(by_shard.items()):
            for at in range(0, len(left), size // 8):
                some = b"".join(a.to_bytes(8, "big") for a in left[at : at + size // 8])
                yield Part(shard, _columns(some, bytes(len(some)), failed))

    def _block_parts(self) -> Iterator[BlockPart]:
        failed = dict(self._block_failed)
        for block, slots, deltas in self._folded.blocks():
            *lots, last = split_failures(failed.pop(block, {}))
            if not lots:
                yield replace(pack_deltas(block, {}, last), slots=slots, deltas=deltas)
                continue
            # A failure and its delta are never parted: what lies between two calls may be the
            # end of the block and its next life, which would hear of the delta alone, and ack.
            rest = unpack_column(slots, deltas)
            for lot in lots:
                own = {slot: rest.pop(slot) for slot in lot if slot in rest}
                yield pack_deltas(block, own, lot, dense=False)
            yield pack_deltas(block, rest, last)
        for block, whys in failed.items():
            yield from (pack_deltas(block, {}, lot) for lot in split_failures(whys))


def fold(anchors: Any, deltas: Any) -> Folded:
    """Fold by numpy where it is installed, else in plain Python."""
    try:
        from acker_redis.batching.fold_numpy import NumpyFold
    except ModuleNotFoundError:
        return PlainFold(anchors, deltas)
    return NumpyFold(anchors, deltas)


def _columns(anchors: bytes, deltas: bytes, failed: dict[int, bytes]) -> Columns:
    """Columns of some rows; the failures in them are taken out of ``failed``."""
    flags, whys = bytearray(len(anchors) // 8), []
    for row in range(len(flags)) if failed else ():
        why = failed.pop(int.from_bytes(anchors[8 * row : 8 * row + 8], "big"), None)
        if why is not None:
            flags[row] = FAIL
            whys.append(why)
    return Columns(bytes(flags), anchors, deltas, "", tuple(whys))
