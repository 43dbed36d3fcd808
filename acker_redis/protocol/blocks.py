"""Blocks on the wire: thousands of trees as one string of checksums.

A block's column of deltas is dense (a delta for each slot from 0 on) or sparse (slots, and a
delta for each); whoever packs decides.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import SLOTS, check_block
from acker_redis.protocol.keys import check_name
from acker_redis.protocol.rows import MAX_TEXTS
from acker_redis.protocol.texts import check_text

TRACK, TOUCH = 1, 4
MAX_BLOCKS = 64
"""Blocks of one call at most."""
MAX_CALL = 1024 * 1024
"""Bytes of one call at most."""
MAX_NAMED = 4096
"""Slots that one call may name: of sparse deltas, and of failures."""
MAX_FAILED = 1024
"""Failures that go with one part of a block; more of them take several parts."""
DENSE_LEAST = 8
"""A column that names fewer slots is sparse: so little may be packed in the simplest way."""
DENSE_FROM = 0.1
"""Share of named slots from which a column is cheaper dense, by the server's time and by bytes on a
line of some Gbit/s: see ``benchmarks/blocks.py``."""


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
        return 9 + len(self.header) + len(self.slots) + len(self.deltas) + len(self.failed)

    @property
    def anchors(self) -> range:
        """Anchors of a block that is tracked."""
        base = 1 << 62 | self.block << 12
        return range(base, base + len(self.deltas) // 8)

    def costs(self) -> tuple[int, int]:
        """Slots that are named, and bytes of label and whys: both are limited in a call."""
        texts = len(self.header) - 3 - self.header[2] if self.header else 0
        named, at = len(self.slots) // 2, 0
        while at < len(self.failed):
            length = self.failed[at + 2]
            named, texts, at = named + 1, texts + length, at + 3 + length
        return named, texts


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of one call."""

    parts: tuple[BlockPart, ...]

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def digest(self) -> str:
        """16 hex digits that tell this call from others."""
        digest = hashlib.blake2b(digest_size=8)
        for part in self.parts:
            for argument in part.arguments():
                digest.update(b"%d " % len(argument))
                digest.update(argument)
        return digest.hexdigest()


def calls(parts: Iterable[BlockPart]) -> Iterator[Blocks]:
    """The fewest calls that may carry these parts in this order; a block is once in a call."""
    call: list[BlockPart] = []
    numbers: set[int] = set()
    size = named = texts = 0
    for part in parts:
        more_named, more_texts = part.costs()
        size, named, texts = size + len(part), named + more_named, texts + more_texts
        over = size > MAX_CALL or named > MAX_NAMED or texts > MAX_TEXTS
        if call and (over or len(call) == MAX_BLOCKS or part.block in numbers):
            yield Blocks(tuple(call))
            call, numbers = [], set()
            size, named, texts = len(part), more_named, more_texts
        call.append(part)
        numbers.add(part.block)
    if call:
        yield Blocks(tuple(call))


def pack_track(
    block: int,
    task: str,
    label: str,
    deltas: Iterable[int] | bytes,
    failed: Mapping[int, str] | None = None,
    touch: bool = False,
) -> BlockPart:
    """TRACK of a block: a delta for each slot, as numbers or as 8 bytes each, big-endian.

    Raises InvalidBatchError for a block, label or column that cannot be.
    """
    column = pack_column(deltas)
    count = len(column) // 8
    if not 1 <= count <= SLOTS:
        raise InvalidBatchError(f"a block has 1 to {SLOTS} trees, not {count}")
    name, text = check_name("task", task).encode(), check_text("label", label, 1)
    header = struct.pack(">HB", count, len(name)) + name + text
    flags = TRACK | (TOUCH if touch else 0)
    return BlockPart(check_block(block), flags, header, b"", column, _failures(failed or {}))


def pack_deltas(
    block: int,
    deltas: Mapping[int, int],
    failed: Mapping[int, str] | None = None,
    touch: bool = False,
    dense: bool | None = None,
) -> BlockPart:
    """Deltas and failures by slot, ``dense`` or not; if None, whichever is cheaper."""
    slots = sorted(deltas)
    if slots and not 0 <= slots[0] <= slots[-1] < SLOTS:
        raise InvalidBatchError(f"a slot is a number from 0 to {SLOTS - 1}")
    if dense is None:
        dense = bool(slots) and goes_dense(len(slots), slots[-1])
    if slots and dense:
        named, column = b"", pack_column([deltas.get(slot, 0) for slot in range(slots[-1] + 1)])
    else:
        named = struct.pack(f">{len(slots)}H", *slots)
        column = pack_column([deltas[slot] for slot in slots])
    flags = TOUCH if touch else 0
    return BlockPart(check_block(block), flags, b"", named, column, _failures(failed or {}))


def split_failures(failed: Mapping[int, str]) -> list[dict[int, str]]:
    """Failures by slot, as few to a part as it may carry; one empty lot if there are none."""
    lots: list[dict[int, str]] = [{}]
    size = 0
    for slot, why in failed.items():
        size += len(check_text("why", why, 0))
        if len(lots[-1]) == MAX_FAILED or size > MAX_TEXTS:
            lots.append({})
            size = len(why.encode())
        lots[-1][slot] = why
    return lots


def unpack_column(slots: bytes, deltas: bytes) -> dict[int, int]:
    """Deltas by slot of a column, dense or sparse."""
    values = struct.unpack(f">{len(deltas) // 8}Q", deltas)
    named = struct.unpack(f">{len(slots) // 2}H", slots) if slots else range(len(values))
    return {slot: value for slot, value in zip(named, values, strict=True) if value}


def goes_dense(count: int, last: int) -> bool:
    """Whether a column of so many slots, up to the last one, is cheaper dense."""
    return count >= DENSE_LEAST and count >= DENSE_FROM * (last + 1)


def pack_column(deltas: Iterable[int] | bytes) -> bytes:
    """8 bytes each, big-endian, of numbers, an array of numpy or Arrow, or such bytes.

    Raises InvalidBatchError for a delta that is not ``0 .. 2**63 - 1``.
    """
    raw = isinstance(deltas, memoryview) and deltas.itemsize == 1
    if raw or isinstance(deltas, bytes | bytearray):
        column = bytes(deltas)
    elif hasattr(deltas, "to_pybytes"):  # a buffer of Arrow
        column = deltas.to_pybytes()
    elif hasattr(deltas, "__array__"):
        from acker_redis.protocol.arrays import ints, wire

        return wire(ints("deltas", deltas))
    else:
        if isinstance(deltas, set | frozenset | Mapping | str):
            raise InvalidBatchError("deltas are a sequence: one per slot, in this order")
        values = list(deltas)
        if any(isinstance(value, bool) for value in values):
            raise InvalidBatchError("a delta is a number from 0 to 2^63-1, not a bool")
        try:
            column = struct.pack(f">{len(values)}Q", *values)
        except struct.error:
            column = b"\xff" * 8
    if len(column) % 8 or max(column[::8], default=0) > 0x7F:
        raise InvalidBatchError("a delta is a number from 0 to 2^63-1, in 8 bytes")
    return column


def _failures(failed: Mapping[int, str]) -> bytes:
    parts = []
    for slot, why in sorted(failed.items()):
        text = check_text("why", why, 0)
        parts.append(struct.pack(">HB", slot, len(text)) + text)
    return b"".join(parts)
