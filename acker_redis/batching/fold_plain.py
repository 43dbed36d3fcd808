"""Fold two columns (anchor, delta) in plain Python, if numpy is not installed."""

from collections.abc import Iterable, Iterator

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.blocks import pack_column, pack_deltas
from acker_redis.protocol.ids import ANCHOR_MAX, TUPLE_MAX, check_anchor, split_anchor


class PlainFold:
    """Deltas folded per anchor: loose anchors, and slots per block; all ascending."""

    def __init__(self, anchors: Iterable[int], deltas: Iterable[int]) -> None:
        ones, others = _ints(anchors), _ints(deltas)
        if len(ones) != len(others):
            raise InvalidBatchError(f"{len(ones)} anchors, but {len(others)} deltas")
        folded: dict[int, int] = {}
        for anchor, delta in zip(ones, others, strict=True):
            if not 0 <= delta <= TUPLE_MAX:
                raise InvalidBatchError(f"a delta is a number from 0 to 2^63-1, not {delta}")
            folded[anchor] = folded.get(anchor, 0) ^ delta
        self._loose: list[int] = []
        self._blocks: dict[int, list[int]] = {}
        for anchor in sorted(folded):
            place = split_anchor(check_anchor(anchor))
            if place is None:
                self._loose.append(anchor)
            else:
                self._blocks.setdefault(place[0], []).append(place[1])
        self._folded = folded

    def loose(self, shards: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield each shard with the wire columns of its loose anchors and of their deltas."""
        by_shard: dict[int, list[int]] = {}
        for anchor in self._loose:
            by_shard.setdefault(anchor % shards, []).append(anchor)
        for shard, anchors in sorted(by_shard.items()):
            yield shard, pack_column(anchors), pack_column([self._folded[a] for a in anchors])

    def blocks(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield each block with its wire column, dense or sparse."""
        for block, slots in self._blocks.items():
            base = ANCHOR_MAX + 1 | block << 12
            deltas = {slot: self._folded[base | slot] for slot in slots}
            part = pack_deltas(block, {slot: delta for slot, delta in deltas.items() if delta})
            yield block, part.slots, part.deltas


def _ints(column: Iterable[int]) -> list[int]:
    if isinstance(column, bytes | bytearray | memoryview | str):
        raise InvalidBatchError("anchors and deltas are whole numbers, not bytes")
    values = list(column.to_pylist() if hasattr(column, "to_pylist") else column)
    for value in values:
        if type(value) is not int:
            raise InvalidBatchError(f"anchors and deltas are whole numbers, not {value!r}")
    return values
