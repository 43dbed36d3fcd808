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
    """Folded rows in wire format: each anchor once, ascending."""

    def loose(self, shards: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield each shard with the columns of its loose anchors and of their deltas."""

    def blocks(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield each block with its column: slots ('' if dense) and deltas."""


class ColumnBatch:
    """A batch of any number of rows of bolts, from two columns; each row is a whole row.

    Rows of one anchor are folded. The column of a block is packed dense or sparse, in the cheaper
    form. With numpy (the extra ``numpy``) 10 million rows over some hundred blocks take about a
    second; plain Python is a dozen times slower.

    Apply it with :meth:`Acker.apply`: each part is applied atomically, and a retry is idempotent.

    Args:
        anchors: The anchors of the rows, in any order: an array of numpy or Arrow, or a sequence.
        deltas: The deltas of the rows, a column of the same length. A delta is a message's id XOR
            the ids of all messages it caused in the anchor's tree.
        failed: The anchors of failed trees, with the reason. The rows of their messages are in the
            columns like all others.

    Raises:
        InvalidBatchError: A column or a failure is invalid.

    Examples:
        >>> acker = Acker.from_url(url, "orders")
        >>> anchors = acker.track_block("shop", "page 1", [40, 41, 42])
        >>> acker.apply(ColumnBatch(list(anchors), [40, 41, 42])).acked
        3

    """

    def __init__(self, anchors: Any, deltas: Any, failed: Mapping[int, str] | None = None) -> None:
        self.sent: Sent | None = None
        """State of the sent batch; set by the client."""
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
        """Return a batch of columns that are already folded."""
        batch = cls([], [], failed)
        batch._folded = folded
        return batch

    def parts(self, shards: int = 1) -> list[Part]:
        """Return the parts to send: the loose rows of each shard, then the blocks."""
        found = list(self._loose_parts(shards))
        by_shard: dict[int, list[BlockPart]] = {}
        for part in self._block_parts():
            by_shard.setdefault(part.block % shards, []).append(part)
        for shard, blocks in sorted(by_shard.items()):
            found += [Part(shard, call) for call in calls(blocks)]
        return found

    def _loose_parts(self, shards: int) -> Iterator[Part]:
        failed = dict(self._loose_failed)
        # With failures, limit the rows of a part so that every why may have the maximum length.
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
            # A failure and its delta must be in one call. Between two calls the block may end and
            # be tracked again: the new block would receive only the delta, a false ack.
            rest = unpack_column(slots, deltas)
            for lot in lots:
                own = {slot: rest.pop(slot) for slot in lot if slot in rest}
                yield pack_deltas(block, own, lot, dense=False)
            yield pack_deltas(block, rest, last)
        for block, whys in failed.items():
            yield from (pack_deltas(block, {}, lot) for lot in split_failures(whys))


def fold(anchors: Any, deltas: Any) -> Folded:
    """Return the folded columns, by numpy if it is installed, else in plain Python."""
    try:
        from acker_redis.batching.fold_numpy import NumpyFold
    except ModuleNotFoundError:
        return PlainFold(anchors, deltas)
    return NumpyFold(anchors, deltas)


def _columns(anchors: bytes, deltas: bytes, failed: dict[int, bytes]) -> Columns:
    """Return the columns of some rows, and remove their failures from ``failed``."""
    flags, whys = bytearray(len(anchors) // 8), []
    for row in range(len(flags)) if failed else ():
        why = failed.pop(int.from_bytes(anchors[8 * row : 8 * row + 8], "big"), None)
        if why is not None:
            flags[row] = FAIL
            whys.append(why)
    return Columns(bytes(flags), anchors, deltas, "", tuple(whys))
