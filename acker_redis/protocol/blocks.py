"""Blocks on the wire: thousands of trees as one string of checksums.

A block's column of deltas is dense (a delta for each slot from 0 on) or sparse (slots, and a
delta for each). The client decides.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import index

from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import SLOTS, check_block
from acker_redis.protocol.keys import check_name
from acker_redis.protocol.rows import MAX_TEXTS, TOUCH, TRACK
from acker_redis.protocol.slots import count_slots, has_slot, pack_slots
from acker_redis.protocol.texts import check_text

# From lua/spec.json, by python -m proof.spec
MAX_BLOCKS = 64
"""Maximum blocks per call."""
MAX_CALL = 1024 * 1024
"""Maximum bytes per call."""
MAX_NAMED = 4096
"""Maximum slots that one call names: those of sparse deltas, of failures, and the absent ones."""

MAX_FAILED = 1024
"""Maximum failures in one part of a block; more failures need several parts."""
DENSE_LEAST = 8
"""A column with fewer named slots is always sparse."""
DENSE_FROM = 0.1
"""Share of named slots from which a dense column is cheaper, in server time and in bytes on a
network of some Gbit/s: see ``benchmarks/blocks.py``."""


@dataclass(frozen=True, slots=True)
class BlockPart:
    """One block of a call, in wire format."""

    block: int
    flags: int = 0
    header: bytes = b""
    present: bytes = b""
    slots: bytes = b""
    deltas: bytes = b""
    failed: bytes = b""

    def arguments(self) -> tuple[bytes, ...]:
        """The seven arguments of ``apply_blocks.lua``."""
        columns = (self.header, self.present, self.slots, self.deltas, self.failed)
        return (bytes([self.flags]), self.block.to_bytes(8, "big"), *columns)

    def __len__(self) -> int:
        return sum(map(len, self.arguments()))

    @property
    def anchors(self) -> range:
        """Anchors of the block; valid for a part that tracks the block."""
        base = 1 << 62 | self.block << 12
        return range(base, base + len(self.deltas) // 8)

    def has_tree(self, slot: int) -> bool:
        """Whether a slot holds a tree; valid for a part that tracks the block."""
        return slot < len(self.anchors) and (not self.present or has_slot(self.present, slot))

    def costs(self) -> tuple[int, int]:
        """Return the number of named slots, and the bytes of label and whys.

        Both are limited per call.
        """
        texts = len(self.header) - 3 - self.header[2] if self.header else 0
        named, at = len(self.slots) // 2, 0
        if self.present:
            named += len(self.deltas) // 8 - count_slots(self.present)
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
        """16 hex digits that identify the content of this call."""
        digest = hashlib.blake2b(digest_size=8)
        for part in self.parts:
            for argument in part.arguments():
                digest.update(b"%d " % len(argument))
                digest.update(argument)
        return digest.hexdigest()


def calls(parts: Iterable[BlockPart]) -> Iterator[Blocks]:
    """Yield the fewest calls that carry these parts in this order, each block once per call."""
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
    present: Iterable[int] | None = None,
) -> BlockPart:
    """Return the part that tracks a block, with a delta for each slot.

    ``deltas`` are numbers, or 8 bytes each, big-endian. ``present`` are the slots that hold a tree,
    None for all; the deltas of the others are 0. Raises InvalidBatchError for an invalid block,
    label or column.
    """
    column = pack_column(deltas)
    count = len(column) // 8
    if not 1 <= count <= SLOTS:
        raise InvalidBatchError(f"a block has 1 to {SLOTS} trees, not {count}")
    name, text = check_name("source", task).encode(), check_text("label", label, 1)
    header = struct.pack(">HB", count, len(name)) + name + text
    flags = TRACK | (TOUCH if touch else 0)
    held = b"" if present is None else _present(present, column)
    failures = _failures(failed or {})
    return BlockPart(check_block(block), flags, header, held, b"", column, failures)


def pack_deltas(
    block: int,
    deltas: Mapping[int, int],
    failed: Mapping[int, str] | None = None,
    touch: bool = False,
    dense: bool | None = None,
) -> BlockPart:
    """Return the part with deltas and failures by slot.

    ``dense`` chooses the form of the column; None means the cheaper form.
    """
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
    return BlockPart(check_block(block), flags, b"", b"", named, column, _failures(failed or {}))


def split_failures(failed: Mapping[int, str]) -> list[dict[int, str]]:
    """Return the failures by slot, split into lots within the limits of a part.

    If there are no failures, the result is one empty lot.
    """
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
    """Return the deltas by slot of a column, dense or sparse, without zeros."""
    values = struct.unpack(f">{len(deltas) // 8}Q", deltas)
    named = struct.unpack(f">{len(slots) // 2}H", slots) if slots else range(len(values))
    return {slot: value for slot, value in zip(named, values, strict=True) if value}


def goes_dense(count: int, last: int) -> bool:
    """Return whether a column with ``count`` named slots up to ``last`` is cheaper dense."""
    return count >= DENSE_LEAST and count >= DENSE_FROM * (last + 1)


def pack_column(deltas: Iterable[int] | bytes) -> bytes:
    """Return deltas as bytes, 8 per delta, big-endian.

    ``deltas`` are numbers, an array of numpy or Arrow, or already such bytes. Raises
    InvalidBatchError for a delta that is not in ``0 .. 2**63 - 1``.
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
            raise InvalidBatchError("deltas are a sequence: one per slot, in the order of slots")
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


def _present(slots: Iterable[int], column: bytes) -> bytes:
    """Return the bitmap of the present slots; b"" for all."""
    count = len(column) // 8
    try:
        given = list(slots)
        held = set() if any(isinstance(slot, bool) for slot in given) else set(map(index, given))
    except TypeError:
        held = set()
    if not held or not held <= set(range(count)):
        raise InvalidBatchError(
            f"present is a sequence of slots that hold a tree, one or more of 0 to {count - 1}"
        )
    for slot in set(range(count)) - held:
        if any(column[8 * slot : 8 * slot + 8]):
            raise InvalidBatchError(f"slot {slot} holds no tree, so its delta must be 0")
    return b"" if len(held) == count else pack_slots(held, count)


def _failures(failed: Mapping[int, str]) -> bytes:
    parts = []
    for slot, why in sorted(failed.items()):
        text = check_text("why", why, 0)
        parts.append(struct.pack(">HB", slot, len(text)) + text)
    return b"".join(parts)
