"""Vectors of ``show``: the state of one tree."""

from acker_redis.protocol.blocks import pack_track
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


LETTERS = (b"ABCDEFGH", b"IJKLMNOP", b"QRSTUVWX")
"""Checksums that a plain SET can restore."""
SUMS = tuple(int.from_bytes(letters, "big") for letters in LETTERS)


def _key(kind: str, block: int = BLOCK) -> str:
    return f"acker:{{vector:0}}:{kind}:{block:013x}"


def _partial(v: Vector) -> None:
    """Track ten slots with trees in slots 1, 2 and 9; slot 2 fails."""
    deltas = (0, *SUMS[:2], 0, 0, 0, 0, 0, 0, SUMS[2])
    v.blocks(pack_track(BLOCK, "t", "b", deltas, present=(1, 2, 9)))
    v.apply(fail(_slot(2), "no"))
    v.show(_slot(1))


@show.vector(
    "a block that has lost its failures",
    "The header says that trees have failed, so the bitmap of the failed slots must name one. A "
    "client that cannot know which trees have failed shows none of them, and no absent slot.",
)
def _(v: Vector) -> None:
    _partial(v)
    v.redis("DEL", _key("failed"))
    for number in (0, 1, 2, 9, 10, 4094):
        v.damaged(_slot(number), failed=b"")
    v.redis("SET", _key("failed"), " \0")
    v.show(_slot(2))
    v.apply(track_block(BLOCK + 1, "whole", A, B), fail(_slot(1, BLOCK + 1), "no"), task="t")
    v.redis("DEL", _key("failed", BLOCK + 1))
    for number in (0, 1, 2):
        v.damaged(_slot(number, BLOCK + 1), failed=b"")
    v.redis("SET", _key("failed", BLOCK + 1), "@")


@show.vector(
    "a block with damaged failures",
    "Too short, too long, a bit after the last slot, no slot at all, an absent slot.",
)
def _(v: Vector) -> None:
    _partial(v)
    for damaged in ("", " ", " \0\0", "  ", "\0\0", "0\0"):
        v.redis("SET", _key("failed"), damaged)
        v.damaged(_slot(1), failed=damaged.encode())
    v.redis("SET", _key("failed"), " \0")
    v.show(_slot(1))


@show.vector(
    "a block that has lost its present slots",
    "Missing, too short, too long, a bit after the last slot, no slot at all, or without a slot "
    "that has failed.",
)
def _(v: Vector) -> None:
    _partial(v)
    v.redis("DEL", _key("present"))
    for number in (0, 1, 2, 9, 10, 4094):
        v.damaged(_slot(number), present=b"")
    for damaged in ("", "`", "`@\0", "``", "\0\0", "@@"):
        v.redis("SET", _key("present"), damaged)
        v.damaged(_slot(1), present=damaged.encode())
    v.redis("SET", _key("present"), "`@")
    v.show(_slot(1))


@show.vector(
    "a block that has lost its checksums", "Missing, or not 8 bytes for each slot of the header."
)
def _(v: Vector) -> None:
    v.apply(track_block(BLOCK, "b", *SUMS), task="t")
    v.redis("DEL", _key("block"))
    for number in (0, 2, 3):
        v.damaged(_slot(number), checksums=None)
    whole = b"".join(LETTERS)
    for damaged in (b"", whole[:16], whole[:23], whole + b"A" * 8):
        v.redis("SET", _key("block"), damaged.decode())
        v.damaged(_slot(0), checksums=damaged)
    v.redis("SET", _key("block"), whole.decode())
    v.show(_slot(0))


@show.vector(
    "a record that no script writes",
    "It is cut, the length of its task is too large, or it has a task and no source id.",
)
def _(v: Vector) -> None:
    name, bucket = b"12345678", "acker:{vector:0}:pending:0"
    for record in (b"", b"12345678", b"A" * 19, b"A" * 19 + b"\x05t", b"A" * 19 + b"\x01t"):
        v.redis("HSET", bucket, name.decode(), record.decode())
        v.damaged(int.from_bytes(name, "big"), record=record)
    v.redis("HDEL", bucket, name.decode())
    v.show(int.from_bytes(name, "big"))


@show.vector(
    "a header that no script writes",
    "It is cut, the length of its task is too large, or it has no task, no label or no slots.",
)
def _(v: Vector) -> None:
    name, bucket = b"\0\1ABCDEF", "acker:{vector:0}:blocks:0"
    block = int.from_bytes(name, "big")
    v.redis("SET", _key("block", block), LETTERS[0].decode())
    head = b"A" * 10 + b"\0\0\1" + b"A" * 8
    for header in (b"", b"A" * 12, head, head + b"\x05t", head + b"\0label", head + b"\x01t"):
        v.redis("HSET", bucket, name.decode(), header.decode())
        v.damaged(_slot(0, block), record=header, checksums=LETTERS[0])
    without_slots = b"A" * 10 + b"\0\0\0" + b"A" * 8 + b"\x01tlabel"
    v.redis("HSET", bucket, name.decode(), without_slots.decode())
    v.redis("SET", _key("block", block), "")
    for number in (0, 1):
        v.damaged(_slot(number, block), record=without_slots, checksums=b"")
    v.redis("HDEL", bucket, name.decode())
    v.redis("DEL", _key("block", block))
    v.show(_slot(0, block))
