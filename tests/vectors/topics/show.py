"""Vectors of ``show``: the state of one tree."""

from acker_redis.protocol.ids import BLOCK_MAX, block_anchor
from tests.vectors.operations import ack, fail, touch, track, track_block
from tests.vectors.record import Topic, Vector

show = Topic("show", "The state of one tree, loose or in a block. Read-only.")
TOPICS = [show]
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1
BLOCK = 0x1F2E3D4C5B6A7


def _slot(number: int, block: int = BLOCK) -> int:
    return block_anchor(block, number)


@show.vector("a loose tree", "Its record, and the age of its bucket.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.show(7)
    v.tick()
    v.apply(ack(7, A, B))
    v.show(7)
    v.apply(ack(7, B))
    v.show(7)


@show.vector("a record without a tree", "It has no task, and the why in place of the source id.")
def _(v: Vector) -> None:
    v.apply(ack(7, A), fail(8, "say \u201cno\u201d"))
    v.show(7)
    v.show(8)


@show.vector("a loose tree that expires", "The age is the number of buckets.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(2)
    v.rotate()
    v.show(7)


@show.vector(
    "a tree in a block",
    "The header, all checksums, the failed slots, and the why of this slot. A slot that the block "
    "does not have gets a reply too: the client finds no checksum for it.",
)
def _(v: Vector) -> None:
    v.apply(track_block(BLOCK, "topic/3/1000", A, 0, B, C), task="t")
    v.show(_slot(0))
    v.apply(ack(_slot(0), A), fail(_slot(2), 'say "no"', B))
    for number in (0, 1, 2, 3, 4, 4094):
        v.show(_slot(number))


@show.vector("several have failed", "The failed slots are a list in no order.")
def _(v: Vector) -> None:
    v.apply(track_block(BLOCK, "b", A, B, C), task="t")
    v.apply(fail(_slot(2), "two"), fail(_slot(0), ""))
    v.show(_slot(2))
    v.show(_slot(0))
    v.show(_slot(1))


@show.vector("a block that grows older", "It has the age of its bucket; a touch resets it.")
def _(v: Vector) -> None:
    v.apply(track_block(BLOCK, "b", A), task="t")
    v.tick(2)
    v.show(_slot(0))
    v.apply(touch(_slot(0)))
    v.show(_slot(0))


@show.vector("a block that expires", "The age is the number of buckets.", buckets=2)
def _(v: Vector) -> None:
    v.apply(track_block(BLOCK, "b", A, B), task="t")
    v.apply(fail(_slot(1), "no"))
    v.tick()
    v.rotate()
    v.show(_slot(1))


@show.vector("nothing is pending", "Never tracked, or acked already.")
def _(v: Vector) -> None:
    v.apply(track_block(BLOCK, "b", A), track(7, "s7", A), task="t")
    v.apply(ack(_slot(0), A), ack(7, A))
    for anchor in (_slot(0), 7, 1, 2**62 - 1, _slot(0, 0), _slot(4094, BLOCK_MAX)):
        v.show(anchor)


@show.vector("neighbours", "Blocks and anchors that differ in one bit are distinct.", shards=4)
def _(v: Vector) -> None:
    blocks = (0, 1, 2**18, 2**32, 2**32 + 1, 2**49, BLOCK_MAX)
    v.apply(*(track_block(n, f"block {n}", A) for n in blocks), task="t")
    v.apply(track(_slot(0, 1) - 2**62, "loose", A), task="t")
    for number in blocks:
        v.show(_slot(0, number))
    v.show(_slot(0, 1) - 2**62)
