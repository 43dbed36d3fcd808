"""Vectors of rows that a client refuses before it sends."""

from tests.vectors.operations import ack, fail, touch, track, track_block
from tests.vectors.record import Topic, Vector

client = Topic(
    "refused_by_clients",
    "Invalid rows: a client refuses them before it sends anything.",
)
TOPICS = [client]
A, B = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B


@client.vector(
    "anchors out of range", "An anchor is 1 to 2^62 - 1, or one of a block's 4095 slots."
)
def _(v: Vector) -> None:
    for anchor in (0, -1, 2**62 | 4095, 2**63 - 1, 2**63, 2**64 - 1, 2**64 + 1):
        v.refused(ack(anchor, A))
        v.refused(track(anchor, "s", A), task="t")
        v.refused(touch(anchor))
        v.refused(fail(anchor, "no"))
    v.refused(track(2**62, "s", A), task="t")  # a block is tracked as a whole


@client.vector("tuple ids out of range", "A tuple id is 1 to 2^63 - 1.")
def _(v: Vector) -> None:
    for tuple_id in (0, -1, 2**63, 2**64 - 1, 2**64 + 1):
        v.refused(ack(7, tuple_id))
        v.refused(ack(7, A, tuple_id))
        v.refused(track(7, "s", A, tuple_id), task="t")
        v.refused(fail(7, "no", tuple_id))


@client.vector("an id twice", "Two messages with one id cancel (rule 2).")
def _(v: Vector) -> None:
    v.refused(track(7, "s", A, B, A), task="t")
    v.refused(ack(7, A, B, B))
    v.refused(fail(7, "no", A, B, B))


@client.vector("a message that causes itself", "Its id would cancel out of its own row.")
def _(v: Vector) -> None:
    v.refused(ack(7, A, A))
    v.refused(ack(7, A, B, A))
    v.refused(fail(7, "no", A, A))


@client.vector("an anchor tracked twice", "One anchor, one attempt: two tracks in one batch.")
def _(v: Vector) -> None:
    v.refused(track(7, "s", A), track(7, "s", B), task="t")
    v.refused(track(7, "s", A), ack(7, A), track(7, "s", A), task="t")


@client.vector("a track without a task", "No source would receive the verdict.")
def _(v: Vector) -> None:
    v.refused(track(7, "s", A))


@client.vector("names of tasks", "1 to 64 of A-Z a-z 0-9 _ . -")
def _(v: Vector) -> None:
    for task in ("a b", "a:b", "\u00fc", "a\n", "{t}", "x" * 65):
        v.refused(track(7, "s", A), task=task)


@client.vector("source ids", "1 to 255 bytes of UTF-8 (bytes, not letters), no control bytes.")
def _(v: Vector) -> None:
    for text in ("", "x" * 256, "\u00e9" * 128, "a\nb", "\t", "a\0b", "\x1f", "\x7f"):
        v.refused(track(7, text, A), task="t")


@client.vector("whys", "0 to 255 bytes of UTF-8, no control bytes.")
def _(v: Vector) -> None:
    for text in ("x" * 256, "\U0001f600" * 64, "a\nb", "\r", "\0", "\x7f"):
        v.refused(fail(7, text))


@client.vector("numbers of blocks", "0 to 2^50 - 1.")
def _(v: Vector) -> None:
    for number in (-1, 2**50, 2**62 | 7, 2**63, 2**64):
        v.refused(track_block(number, "b", A), task="t")


@client.vector("deltas of blocks", "1 to 4095 deltas of 0 to 2^63 - 1.")
def _(v: Vector) -> None:
    for deltas in ((), (-1,), (A, 2**63), (2**64 - 1,), (2**64 + 1, A), (0,) * 4096):
        v.refused(track_block(7, "b", *deltas), task="t")


@client.vector(
    "a block tracked twice", "In one batch, with the same content or with other content."
)
def _(v: Vector) -> None:
    v.refused(track_block(7, "b", A), track_block(7, "b", A), task="t")
    v.refused(track_block(7, "b", A), track_block(8, "c", A), track_block(7, "c", B), task="t")


@client.vector("a block without a task", "No source would receive the verdict.")
def _(v: Vector) -> None:
    v.refused(track_block(7, "b", A))


@client.vector("labels", "As source ids: 1 to 255 bytes of UTF-8, no control bytes.")
def _(v: Vector) -> None:
    for label in ("", "x" * 256, "\u00e9" * 128, "a\nb", "\t", "a\0b", "\x1f", "\x7f"):
        v.refused(track_block(7, label, A), task="t")


@client.vector("labels of Spark", "A label that ends in @ and a number names consecutive records.")
def _(v: Vector) -> None:
    for label in ("orders/3@1000", "@0", "p@7~2", "\u00fc@9223372036854775807~9999999999"):
        v.refused(track_block(7, label, A), task="t")
    for number, label in enumerate(("p@", "p@01", "p@7~0", "p@7~", "p@7 ", "p7", "p@-1")):
        v.apply(track_block(number, label, A), task="t")


@client.vector(
    "rows of a slot that the block does not have",
    "The same batch tracks the block, so the client knows its size: slot 2 of a block of two.",
)
def _(v: Vector) -> None:
    v.refused(track_block(7, "b", A, B), ack(2**62 | 7 << 12 | 2, A), task="t")
    v.refused(ack(2**62 | 7 << 12 | 4094, A), track_block(7, "b", A, B), task="t")


@client.vector("65 blocks tracked", "A batch tracks 64 at most.")
def _(v: Vector) -> None:
    v.refused(*(track_block(n, "b", A) for n in range(65)), task="t")


@client.vector("rows of slots", "The rules for ids are those of loose trees.")
def _(v: Vector) -> None:
    anchor = 2**62 | 7 << 12
    v.refused(ack(anchor, 0))
    v.refused(ack(anchor, 2**63))
    v.refused(ack(anchor, A, A))
    v.refused(ack(anchor, A, B, B))
    v.refused(fail(anchor, "a\nb"))
    v.refused(track(anchor, "s", A), task="t")


@client.vector(
    "an invalid last row", "The batch is refused for its last row, and applied without it."
)
def _(v: Vector) -> None:
    v.refused(track(7, "s7", A), ack(7, A, B), ack(7, 0), task="t")
    v.apply(track(7, "s7", A), ack(7, A, B), task="t")
