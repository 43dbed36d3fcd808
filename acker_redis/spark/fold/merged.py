"""Columns of anchors and deltas from many partitions, merged into one row per anchor."""

from collections.abc import Iterator

import numpy as np

from acker_redis.batching.fold_numpy import NumpyFold
from acker_redis.protocol.arrays import Ints, distinct, wire
from acker_redis.protocol.blocks import goes_dense
from acker_redis.protocol.ids import SLOTS


class Merged:
    """The XOR of packed columns, loose and in blocks, in the form that ``ColumnBatch`` sends.

    Deterministic: the same terms give the same bytes, regardless of their partitions.
    """

    def __init__(self) -> None:
        self._loose: list[tuple[bytes, bytes]] = []
        self._blocks: dict[int, list[tuple[bytes, bytes]]] = {}

    def add_loose(self, anchors: bytes, deltas: bytes) -> None:
        """Add columns of loose anchors."""
        self._loose.append((anchors, deltas))

    def add_block(self, block: int, slots: bytes, deltas: bytes) -> None:
        """Add a column of a block, dense or sparse."""
        self._blocks.setdefault(block, []).append((slots, deltas))

    def add(self, anchors: Ints, deltas: Ints) -> None:
        """Add columns of terms."""
        fold = NumpyFold(anchors, deltas)
        for _, ones, others in fold.loose(1):
            self.add_loose(ones, others)
        for block, slots, column in fold.blocks():
            self.add_block(block, slots, column)

    def without(self, anchors: Ints, deltas: Ints) -> tuple[Ints, Ints]:
        """Return the terms that are left when these are taken away: ascending anchors, and deltas.

        A term is taken away by another XOR. Anchors whose delta becomes 0 are left out.
        """
        left = Merged()
        left._loose = list(self._loose)
        left._blocks = {block: list(columns) for block, columns in self._blocks.items()}
        left.add(anchors, deltas)
        ones, others = left.loose_arrays()
        found = [(ones[others != 0], others[others != 0])]
        for block in sorted(left._blocks):
            row = left.slots(block)
            slots = np.flatnonzero(row)
            found.append((1 << 62 | block << 12 | slots, row[slots].byteswap()))
        return np.concatenate([one for one, _ in found]), np.concatenate([two for _, two in found])

    def loose_arrays(self) -> tuple[Ints, Ints]:
        """Return the loose anchors, ascending and distinct, and their deltas."""
        if len(self._loose) > 1:
            anchors = numbers(b"".join(column for column, _ in self._loose))
            deltas = numbers(b"".join(column for _, column in self._loose))
            self._loose = [
                (ones, others) for _, ones, others in NumpyFold(anchors, deltas).loose(1)
            ]
        if not self._loose:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        ones, others = self._loose[0]
        return numbers(ones), numbers(others)

    def loose(self, shards: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the columns of each shard, as ``NumpyFold.loose`` does."""
        anchors, deltas = self.loose_arrays()
        if shards == 1:
            if len(anchors):
                yield 0, *self._loose[0]
            return
        shard_of = anchors % shards
        for shard in distinct(shard_of).tolist():
            mine = shard_of == shard
            yield shard, wire(anchors[mine]), wire(deltas[mine])

    def blocks(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield each block with its column, ordered by number, as ``NumpyFold.blocks`` does."""
        for block in sorted(self._blocks):
            columns = self._blocks[block]
            yield block, *(columns[0] if len(columns) == 1 else _pack(self.slots(block)))

    def slots(self, block: int) -> Ints:
        """Return the deltas of a block, one for each of 4095 slots, in the byte order of the wire.

        A block that was not added has zeros.
        """
        row = np.zeros(SLOTS, dtype=np.int64)
        for slots, deltas in self._blocks.get(block, ()):
            values = np.frombuffer(deltas, np.int64)  # XOR does not depend on the byte order
            if slots:
                row[np.frombuffer(slots, ">u2")] ^= values
            else:
                row[: len(values)] ^= values
        return row


def _pack(row: Ints) -> tuple[bytes, bytes]:
    named = np.flatnonzero(row)
    if len(named) and goes_dense(len(named), int(named[-1])):
        return b"", row[: named[-1] + 1].tobytes()
    return named.astype(">u2").tobytes(), row[named].tobytes()


def numbers(column: bytes) -> Ints:
    """Return the numbers in a column of 8 bytes each, big-endian."""
    return np.frombuffer(column, ">i8").astype(np.int64)
