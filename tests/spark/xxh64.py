"""XXH64 as Spark computes ``xxhash64``, and its inverse, for the attacks of ``test_ids.py``."""

import random
import struct
from collections.abc import Iterator

_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotate(x: int, by: int) -> int:
    return (x << by | x >> 64 - by) & _MASK


def _round(state: int, lane: int) -> int:
    return _rotate((state + lane * _P2) & _MASK, 31) * _P1 & _MASK


def _mixed(x: int) -> int:
    x = (x ^ x >> 33) * _P2 & _MASK
    x = (x ^ x >> 29) * _P3 & _MASK
    return x ^ x >> 32


def _unmixed(x: int) -> int:
    x ^= x >> 32
    x = x * pow(_P3, -1, 2**64) & _MASK
    x ^= x >> 29 ^ x >> 58
    x = x * pow(_P2, -1, 2**64) & _MASK
    return x ^ x >> 33


def hash_number(number: int, seed: int = 42) -> int:
    """Return ``xxhash64`` of a BIGINT."""
    state = (seed + _P5 + 8) & _MASK
    return _mixed((_rotate(state ^ _round(0, number & _MASK), 27) * _P1 + _P4) & _MASK)


def _before_the_last_lane(data: bytes, seed: int) -> int:
    """Return the state before the last 8 bytes; the length is a multiple of 8, with 8 to spare."""
    length, at = len(data), 0
    if length >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at + 32 <= length:
            for k, lane in enumerate(struct.unpack_from("<4Q", data, at)):
                lanes[k] = _round(lanes[k] & _MASK, lane)
            at += 32
        state = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        state = (seed + _P5) & _MASK
    state = (state + length) & _MASK
    while at + 8 < length:
        (lane,) = struct.unpack_from("<Q", data, at)
        state = (_rotate(state ^ _round(0, lane), 27) * _P1 + _P4) & _MASK
        at += 8
    assert at + 8 == length
    return state


def hash_text(text: str, seed: int) -> int:
    """Return ``xxhash64`` of a STRING after other columns, which gave ``seed``."""
    data = text.encode()
    state = _before_the_last_lane(data, seed)
    (lane,) = struct.unpack("<Q", data[-8:])
    return _mixed((_rotate(state ^ _round(0, lane), 27) * _P1 + _P4) & _MASK)


def texts_with_hash(prefix: str, wanted: int, seed: int, chance: random.Random) -> Iterator[str]:
    """Yield texts of letters, digits and the like that have this hash, and begin with a prefix."""
    spare = 32 - len(prefix.encode()) % 32
    while True:
        middle = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=spare))
        data = (prefix + middle).encode()
        state = _before_the_last_lane(data + bytes(8), seed)
        mixed = _unmixed(wanted)
        rotated = (mixed - _P4) * pow(_P1, -1, 2**64) & _MASK
        folded = (rotated >> 27 | rotated << 37) & _MASK ^ state
        turned = folded * pow(_P1, -1, 2**64) & _MASK
        lane = (turned >> 31 | turned << 33) * pow(_P2, -1, 2**64) & _MASK
        last = struct.pack("<Q", lane)
        if all(32 <= byte < 127 and byte not in b"\\|" for byte in last):
            yield (data + last).decode()
