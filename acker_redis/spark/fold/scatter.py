"""Deltas of whole blocks, XORed into one table: some 30 ns per row, without sorting."""

from collections.abc import Iterator

import numpy as np

from acker_redis.batching.fold_numpy import pack_block
from acker_redis.protocol.arrays import Ints, distinct
from acker_redis.protocol.ids import SLOTS

_BITS = 20
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
"""Odd numbers; one of them is likely to hash some thousand blocks without a collision."""
_WIDTH = SLOTS + 1
_MOST = 8192
"""Maximum blocks in a table: 256 MiB."""


class Scatter:
    """A table with the slots of each block; used while there are enough rows per block.

    >>> scatter = Scatter()
    >>> scatter.add(np.array([1 << 62, 1 << 62]), np.array([40, 41]))
    True
    >>> [(block, deltas.hex()) for block, slots, deltas in scatter.blocks()]
    [(0, '0000000000000001')]
    """

    def __init__(self) -> None:
        self._multiplier = 0
        self._ranks = np.full(1 << _BITS, -1, dtype=np.int32)
        self._highs = np.empty(0, dtype=np.int64)
        self._table = np.zeros((0, _WIDTH), dtype=np.int64)
        self._rows = 0

    def add(self, anchors: Ints, deltas: Ints) -> bool:
        """XOR rows of blocks into the table; return whether they were added.

        Return False, and add nothing, if there are too many blocks for the number of rows.
        """
        highs = anchors >> 12
        ranks = self._ranks[self._hash(highs)]
        strange = ranks < 0
        known = ~strange
        if len(self._highs):
            strange |= self._highs[ranks] != highs
        elif known.any():
            return False
        if strange.any():
            if not self._know(distinct(highs[strange]), len(anchors)):
                return False
            ranks = self._ranks[self._hash(highs)]
        places = ranks.astype(np.int64) << 12 | anchors & 0xFFF
        np.bitwise_xor.at(self._table.reshape(-1), places, deltas)
        self._rows += len(anchors)
        return True

    def blocks(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield each block with its column on the wire, dense or sparse, ordered by number."""
        for rank in np.argsort(self._highs).tolist():
            row = self._table[rank]
            yield pack_block(self._highs[rank], np.flatnonzero(row), row)

    def _know(self, new: Ints, rows: int) -> bool:
        """Give new blocks a rank; return False if the table would be too large for the rows."""
        highs = np.concatenate([self._highs, new])
        if len(highs) > _MOST or len(highs) * _WIDTH > 4 * (self._rows + rows):
            return False
        for turn in range(len(_MULTIPLIERS)):
            # With a hash without collisions, found by trial, the rank of a block is one lookup.
            multiplier = (self._multiplier + turn) % len(_MULTIPLIERS)
            hashed = self._hash(highs, multiplier)
            if len(distinct(hashed)) == len(highs):
                break
        else:
            return False
        self._multiplier = multiplier
        self._ranks = np.full(1 << _BITS, -1, dtype=np.int32)
        self._ranks[hashed] = np.arange(len(highs), dtype=np.int32)
        if len(highs) > len(self._table):
            table = np.zeros((max(len(highs), 2 * len(self._table)), _WIDTH), dtype=np.int64)
            table[: len(self._table)] = self._table
            self._table = table
        self._highs = highs
        return True

    def _hash(self, highs: Ints, multiplier: int | None = None) -> Ints:
        by = _MULTIPLIERS[self._multiplier if multiplier is None else multiplier]
        hashed = (highs.view(np.uint64) * np.uint64(by)) >> np.uint64(64 - _BITS)
        return hashed.astype(np.int64)
