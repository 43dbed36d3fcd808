"""Bitmaps of the slots of a block: ceil(n / 8) bytes, bit 7 of byte 0 is slot 0.

The bits after the last slot are 0. In verdicts a bitmap is hex.
"""

import re
from collections.abc import Iterable

_HEX = re.compile(r"(?:[0-9a-f]{2})*", re.ASCII)


def pack_slots(slots: Iterable[int], count: int) -> bytes:
    """Return a bitmap of slots: bit 7 of byte 0 is slot 0.

    >>> pack_slots([0, 9], 10).hex()
    '8040'
    """
    bits = bytearray(-(-count // 8))
    for slot in slots:
        bits[slot >> 3] |= 0x80 >> (slot & 7)
    return bytes(bits)


def has_slot(bitmap: bytes, slot: int) -> bool:
    """Return whether a slot is in a bitmap.

    >>> has_slot(bytes.fromhex("8040"), 9), has_slot(bytes.fromhex("8040"), 8)
    (True, False)
    """
    return bool(bitmap[slot >> 3] & 0x80 >> (slot & 7))


def unpack_slots(bitmap: bytes) -> tuple[int, ...]:
    """Return the slots of a bitmap, in order.

    >>> unpack_slots(bytes.fromhex("8040"))
    (0, 9)
    """
    bits = f"{int.from_bytes(bitmap, 'big'):0{8 * len(bitmap)}b}" if bitmap else ""
    return tuple(slot for slot, bit in enumerate(bits) if bit == "1")


def count_slots(bitmap: bytes) -> int:
    """Return the number of slots of a bitmap.

    >>> count_slots(bytes.fromhex("8040"))
    2
    """
    return int.from_bytes(bitmap, "big").bit_count()


def check_slots(bitmap: bytes, count: int) -> bytes:
    """Return a bitmap of the slots of a block with ``count`` slots, or b"" for none.

    Raise ValueError for a bitmap of another length, or with a slot that the block does not have: a
    slot that a damaged bitmap lacks must not pass for an ack.

    >>> check_slots(bytes.fromhex("8040"), 10).hex()
    '8040'
    """
    spare = 8 * len(bitmap) - count
    if bitmap and not 0 <= spare < 8:
        raise ValueError(f"a bitmap of {count} slots has {len(bitmap)} bytes")
    if bitmap and bitmap[-1] & (1 << spare) - 1:
        raise ValueError(f"a bitmap of {count} slots has a bit after the last slot")
    return bitmap


def slots_of_hex(text: str, count: int) -> bytes:
    """Return a bitmap that a verdict has in hex; '' is b"". Raise ValueError if it is malformed.

    >>> slots_of_hex("8040", 10) == bytes.fromhex("8040")
    True
    """
    if not _HEX.fullmatch(text):
        raise ValueError(f"a bitmap is hex, not {text!r:.40}")
    return check_slots(bytes.fromhex(text), count)
