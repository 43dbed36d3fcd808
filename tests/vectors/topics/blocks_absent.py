"""Vectors of blocks with absent slots: some of their slots hold no tree."""

from collections.abc import Iterable
from dataclasses import replace

from acker_redis.protocol.blocks import pack_track
from acker_redis.protocol.ids import block_anchor
from tests.vectors.operations import ack, fail, touch, track_block
from tests.vectors.record import Topic, Vector

absent = Topic(
    "blocks_absent",
    "Blocks in which some slots hold no tree: no verdict names these slots. Their TRACK is a plain "
    "call, because a client need not send it.",
)
TOPICS = [absent]
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1
BLOCK, OTHER = 0x1F2E3D4C5B6A7, 0x0A1B2C3D4E5F6
LABEL = "topic/3/1000"


def slot(number: int, block: int = BLOCK) -> int:
    """Return the anchor of a tree in a block."""
    return block_anchor(block, number)


def _tracked(v: Vector, present: Iterable[int], *deltas: int, block: int = BLOCK) -> None:
    v.blocks(pack_track(block, "t", LABEL, deltas, present=present))


@absent.vector(
    "completed",
    "The ack of the block is that of slots 0, 2 and 9; the bitmap has two bytes. A slot with delta "
    "0 that is present is a tree without messages, which is acked, too.",
)
def _(v: Vector) -> None:
    _tracked(v, (0, 2, 9), A, 0, 0, 0, 0, 0, 0, 0, 0, B)
    v.apply(ack(slot(0), A))
    v.apply(ack(slot(9), B))


@absent.vector("expired", "Slot 0 is nacked, slot 3 is acked, slots 1 and 2 are absent.")
def _(v: Vector) -> None:
    _tracked(v, (0, 3), A, 0, 0, B)
    v.apply(ack(slot(3), B))
    v.tick(4)


@absent.vector(
    "failed",
    "A failure of an absent slot is dropped and counted as orphaned. The trees that have failed "
    "get no second verdict.",
)
def _(v: Vector) -> None:
    _tracked(v, (1, 2), 0, A, B, 0)
    v.apply(fail(slot(0), "absent"), fail(slot(2), "no", B), fail(slot(3), "absent"))
    v.show(slot(1))
    v.apply(ack(slot(1), A))


@absent.vector("all failed", "A block without an open verdict ends without an entry.")
def _(v: Vector) -> None:
    _tracked(v, (1,), 0, A, 0)
    v.apply(fail(slot(1), "no", A))


@absent.vector(
    "a message of an absent slot",
    "A bolt made a mistake. The block can no longer become zero: it ends by expiry, where the "
    "absent slot has no verdict.",
)
def _(v: Vector) -> None:
    _tracked(v, (0, 1), A, B, 0)
    v.apply(ack(slot(0), A), ack(slot(2), C), ack(slot(1), B))
    v.tick(4)


@absent.vector("touched", "The verdict touch leaves absent slots out.")
def _(v: Vector) -> None:
    _tracked(v, (2,), 0, 0, A)
    v.apply(touch(slot(2)))


@absent.vector(
    "tracked again",
    "The same slots: a repeat. Other slots, or all of them: CONFLICT, also if the deltas are "
    "equal. A bitmap of all slots is the same as none.",
)
def _(v: Vector) -> None:
    _tracked(v, (0, 2), A, 0, B)
    _tracked(v, (0, 2), A, 0, B)
    _tracked(v, (0, 1, 2), A, 0, B)
    v.apply(track_block(OTHER, LABEL, A, B), task="t")
    v.blocks(replace(pack_track(OTHER, "t", LABEL, (A, B)), present=b"\xc0"))


@absent.vector(
    "overflow", "Two trees are nacked, and counted. Admission counts three slots.", high_water=2
)
def _(v: Vector) -> None:
    v.apply(track_block(OTHER, "first", A, B), task="t")
    _tracked(v, (0, 2), A, 0, B)


@absent.vector("a block of one tree in the last slot", "Slots 0 to 4093 are absent.")
def _(v: Vector) -> None:
    _tracked(v, (4094,), *(0,) * 4094, A)
    v.show(slot(4094))
    v.show(slot(0))
    v.apply(ack(slot(4094), A))
