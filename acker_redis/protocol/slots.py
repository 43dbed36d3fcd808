"""Bitmaps of the slots of a block: ceil(n / 8) bytes, bit 7 of byte 0 is slot 0."""

from collections.abc import Iterable


def pack_slots(slots: Iterable[int], count: int) -> bytes:
    """Return a bitmap of slots: bit 7 of byte 0 is slot 0.

    >>> pack_slots([0, 9], 10).hex()
    '8040'
    """
    bits = bytearray(-(-count // 8))
    for slot in slots:
        bits[slot >> 3] |= 0x80 >> (slot & 7)
    return bytes(bits)


def unpack_slots(bitmap: bytes) -> tuple[int, ...]:
    """Return the slots of a bitmap, in order.

    >>> unpack_slots(bytes.fromhex("8040"))
    (0, 9)
    """
    bits = f"{int.from_bytes(bitmap, 'big'):0{8 * len(bitmap)}b}" if bitmap else ""
    return tuple(slot for slot, bit in enumerate(bits) if bit == "1")
