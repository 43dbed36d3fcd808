"""Blocks on the wire: thousands of trees as one string of checksums.

A block's column of deltas is dense (a delta for each slot from 0 on) or sparse (slots, and a
delta for each); whoever packs decides.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from acker_redis.batch import check_text
from acker_redis.errors import InvalidBatchError
from acker_redis.ids import BLOCK_MAX, SLOTS
from acker_redis.keys import check_name

TRACK, TOUCH = 1, 4
MAX_BLOCKS = 64
"""Blocks of one call at most."""
MAX_CALL = 1024 * 1024
"""Bytes of one call at most."""
MAX_NAMED = 4096
"""Slots that one call may name: of sparse deltas, and of failures."""
DENSE_FROM = 0.25
"""Share of named slots from which a column goes dense if nobody decides; not measured yet."""


@dataclass(frozen=True, slots=True)
class BlockPart:
    """One block of a call, as it is sent."""

    block: int
    flags: int = 0
    header: bytes = b""
    slots: bytes = b""
    deltas: bytes = b""
    failed: bytes = b""

    def arguments(self) -> tuple[bytes, ...]:
        """The six arguments of ``apply_blocks.lua``."""
        number = self.block.to_bytes(8, "big")
        return (bytes([self.flags]), number, self.header, self.slots, self.deltas, self.failed)

    def __len__(self) -> int:
        return sum(map(len, self.arguments()))


def pack_track(block: int, task: str, label: str, deltas: Sequence[int] | bytes) -> BlockPart:
    """TRACK of a block: a delta for each slot, as numbers or as 8 bytes each, big-endian.

    Raises InvalidBatchError for a block, label or column that cannot be.
    """
    column = deltas if isinstance(deltas, bytes) else _column(deltas)
    count = len(column) // 8
    if not 1 <= count <= SLOTS or len(column) % 8:
        raise InvalidBatchError(f"a block has 1 to {SLOTS} trees, not {len(column) / 8:g}")
    name, text = check_name("task", task).encode(), check_text("label", label, 1)
    header = struct.pack(">HB", count, len(name)) + name + text
    return BlockPart(_number(block), TRACK, header, b"", column)


def pack_deltas(
    block: int,
    deltas: Mapping[int, int],
    failed: Mapping[int, str] | None = None,
    touch: bool = False,
    dense: bool | None = None,
) -> BlockPart:
    """Deltas and failures by slot, ``dense`` or not; if None, dense from DENSE_FROM on."""
    slots = sorted(deltas)
    if slots and not 0 <= slots[0] <= slots[-1] < SLOTS:
        raise InvalidBatchError(f"a slot is a number from 0 to {SLOTS - 1}")
    flags = TOUCH if touch else 0
    if dense is None:
        dense = bool(slots) and len(slots) >= DENSE_FROM * (slots[-1] + 1)
    if slots and dense:
        named, column = b"", _column([deltas.get(slot, 0) for slot in range(slots[-1] + 1)])
    else:
        named = struct.pack(f">{len(slots)}H", *slots)
        column = _column([deltas[slot] for slot in slots])
    return BlockPart(_number(block), flags, b"", named, column, _failures(failed or {}))


def _failures(failed: Mapping[int, str]) -> bytes:
    parts = []
    for slot, why in sorted(failed.items()):
        text = check_text("why", why, 0)
        parts.append(struct.pack(">HB", slot, len(text)) + text)
    return b"".join(parts)


def _column(deltas: Iterable[int]) -> bytes:
    values = list(deltas)
    try:
        return struct.pack(f">{len(values)}q", *values)
    except struct.error:
        raise InvalidBatchError("a delta is a number from 0 to 2^63-1") from None


def _number(block: int) -> int:
    if type(block) is not int or not 0 <= block <= BLOCK_MAX:
        raise InvalidBatchError(f"a block is a number from 0 to 2^50-1, not {block!r}")
    return block
