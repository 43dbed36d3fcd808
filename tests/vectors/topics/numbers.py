"""Vectors of ids that a double, a signed or a 32-bit number cannot hold."""

from tests.vectors.operations import ack, track
from tests.vectors.record import Topic, Vector

bits = Topic(
    "sixty_four_bits",
    "Both halves of 64 bits: ids and anchors that a double, a signed number or a 32-bit one "
    "cannot hold. These ids are chosen to show that; draw real ids at random.",
)
TOPICS = [bits]
ANCHOR = 0x1F2E3D4C5B6A7988


def _chain(v: Vector, a: int, b: int, c: int) -> None:
    """source -a-> bolt -> b, c"""
    v.apply(track(ANCHOR, "s1", a), task="t")
    v.apply(ack(ANCHOR, a, b, c))
    v.apply(ack(ANCHOR, b))
    v.apply(ack(ANCHOR, c))


@bits.vector("the high half is zero", "Ids of 32 bits, with and without the 32nd bit.")
def _(v: Vector) -> None:
    _chain(v, 0x80000000, 0x7FFFFFFF, 0xFFFFFFFF ^ 0x00F0)


@bits.vector("the low half is zero", "Ids whose low 32 bits are zero.")
def _(v: Vector) -> None:
    _chain(v, 0x0000000100000000, 0x4000000000000000, 0x7FFFFFFF00000000)


@bits.vector("the 32nd bit", "Deltas with the highest bit of the low half, which is not a sign.")
def _(v: Vector) -> None:
    _chain(v, 0x12345678_80000000, 0x0FEDCBA9_80000001, 0x00000001_FFFFFFFF)


@bits.vector("the 63rd bit", "The highest bit of an id: 2^62 and above.")
def _(v: Vector) -> None:
    _chain(v, 2**62, 2**62 + 1, 2**63 - 1)


@bits.vector("not a double", "2^53 + 1 is 2^53 as a double, and 2^63 - 1 is 2^63.")
def _(v: Vector) -> None:
    _chain(v, 2**53 + 1, 2**53, 2**63 - 1)


@bits.vector("the lowest and the highest id", "1 and 2^63 - 1, and one between.")
def _(v: Vector) -> None:
    _chain(v, 1, 2**63 - 1, 2**63 - 3)


@bits.vector(
    "a delta of zero",
    "The ids of a row may cancel out (here 2^40 ^ 2^41 ^ (2^40 + 2^41)). The row is sent all the "
    "same, and changes nothing.",
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", 2**40), task="t")
    v.apply(ack(ANCHOR, 2**40, 2**41, 2**40 + 2**41))


@bits.vector("one half is zero", "A checksum is zero only when both halves are zero.")
def _(v: Vector) -> None:
    v.apply(track(1, "low stays", 0x11111111_22222222), task="t")
    v.apply(ack(1, 0x11111111_00000000))
    v.apply(track(2, "high stays", 0x11111111_22222222), task="t")
    v.apply(ack(2, 0x22222222))


@bits.vector("one bit is left", "One bit remains in each checksum: 0, 31, 32, 52, 53 and 62.")
def _(v: Vector) -> None:
    places = (0, 31, 32, 52, 53, 62)
    delta = 0x2B7E151628AED2A6
    v.apply(*(track(n + 1, f"bit {bit}", delta) for n, bit in enumerate(places)), task="t")
    v.apply(*(ack(n + 1, delta ^ (1 << bit)) for n, bit in enumerate(places)))


ANCHORS = (1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**62 - 1)


@bits.vector(
    "anchors",
    "Anchors from 1 to 2^62 - 1; two of them are equal as doubles. Every second one is acked.",
)
def _(v: Vector) -> None:
    delta = 0x2B7E151628AED2A6
    v.apply(*(track(anchor, f"anchor {anchor}", delta) for anchor in ANCHORS), task="t")
    v.apply(*(ack(anchor, delta) for anchor in ANCHORS[::2]))


@bits.vector(
    "anchors that share a half", "Four anchors made of the same two halves are four trees."
)
def _(v: Vector) -> None:
    high, low = 0x0F0F0F0F, 0x33CC33CC
    anchors = (low, high << 32, high << 32 | low, low << 32 | high)
    v.apply(*(track(anchor, f"s{n}", 7) for n, anchor in enumerate(anchors)), task="t")
    v.apply(ack(anchors[2], 7))


@bits.vector(
    "anchors over shards",
    "The shard of an anchor is the remainder of all its 62 bits: here 1, 0, 3 and 2 of 4.",
    shards=4,
)
def _(v: Vector) -> None:
    for anchor in (2**53 + 1, 2**32, 2**62 - 1, 2**61 + 2):
        v.apply(track(anchor, f"anchor {anchor}", 2**53 + 1), task="t")
