"""Vectors of rows: how a client folds them, and what the flags mean."""

from tests.vectors.operations import ack, fail, touch, track
from tests.vectors.record import Topic, Vector

folding = Topic(
    "folding",
    "Folding in the client: rows of one anchor become one row, in the order in which the anchors "
    "first appear.",
)
flags = Topic("flags", "Failures, touches and conflicts.")
TOPICS = [folding, flags]
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1
D = 0x1F83D9ABFB41BD6B


@folding.vector(
    "a whole tree in one batch", "Track, A, B and C fold into one row of delta zero: acked at once."
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), ack(7, A, B, C), ack(7, B), ack(7, C), task="t")


@folding.vector("part of a tree", "Three rows of one anchor: their deltas are XORed.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(ack(7, A, B, C), ack(7, B, D), ack(7, C))


@folding.vector(
    "order of first appearance",
    "Rows of three anchors in turn: one row each, in the order 9, 7, 8.",
)
def _(v: Vector) -> None:
    v.apply(ack(9, A), ack(7, A, B), ack(9, B), ack(8, C), ack(7, B, D), ack(9, C), ack(8, C, A))


@folding.vector(
    "the track comes last", "The rows of the bolts come before the source's in one batch."
)
def _(v: Vector) -> None:
    v.apply(ack(7, A, B), ack(8, A), track(8, "s8", A), track(7, "s7", A), task="t")


@folding.vector(
    "texts are in row order",
    "First the source ids of the TRACK rows, then the whys of the FAIL rows, each in row order, "
    "independent of the order of the calls.",
)
def _(v: Vector) -> None:
    v.apply(
        fail(3, "why of 3"),
        ack(1, A),
        fail(2, "why of 2"),
        track(2, "source of 2", A),
        fail(1, "why of 1"),
        track(1, "source of 1", A),
        track(3, "source of 3", A),
        task="t",
    )


@folding.vector(
    "the first why that is not empty",
    "A batch has several whys of one anchor: only the first non-empty one is sent.",
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(fail(7, ""), fail(7, "second"), fail(7, "third"))


@folding.vector(
    "all flags of one anchor", "Track, fail and touch of one anchor: flags 7. Failed has priority."
)
def _(v: Vector) -> None:
    v.apply(touch(7), fail(7, "no"), track(7, "s7", A), task="t")


@folding.vector(
    "rows that cancel",
    "Two rows of one anchor fold to a delta of zero without flags. The row is sent: a no-op.",
)
def _(v: Vector) -> None:
    v.apply(ack(7, A, B), ack(7, B, A))


@folding.vector("an empty batch", "No rows, no call.")
def _(v: Vector) -> None:
    v.apply()


@flags.vector("fail", "A bolt fails a tree: nacked at once, with its why.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(fail(7, "no such address"))


@flags.vector("fail without a why", "The why may be empty.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(fail(7, ""))


@flags.vector("fail of a processed message", "With the message's id and the ids that it caused.")
def _(v: Vector) -> None:
    v.apply(fail(7, "half done", A, B))
    v.apply(track(7, "s7", A), task="t")


@flags.vector(
    "failed has priority over zero", "The row that fails also makes the checksum zero: a nack."
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(fail(7, "processed, and bad", A))


@flags.vector(
    "fail before track", "The failure waits in a record without a task, its why in the text."
)
def _(v: Vector) -> None:
    v.apply(fail(7, "early"))
    v.apply(ack(7, A))
    v.apply(track(7, "s7", A), task="t")


@flags.vector("fail before track, still waiting", "The state of such a record.")
def _(v: Vector) -> None:
    v.apply(fail(7, "early", A))
    v.apply(fail(8, ""))


@flags.vector(
    "the first why that is not empty, over calls",
    "The first non-empty why replaces an empty one, and stays.",
)
def _(v: Vector) -> None:
    v.apply(fail(7, ""))
    v.apply(fail(7, "second"))
    v.apply(fail(7, "third"))
    v.apply(track(7, "s7", A), task="t")


@flags.vector("rows after the verdict", "The tree has ended: they wait in a record without one.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(fail(7, "no"))
    v.apply(ack(7, A))
    v.apply(fail(7, "again"))


@flags.vector("track and fail in one row", "A source may track a tree that has failed already.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), fail(7, "unreadable"), task="t")


@flags.vector("touch", "A touch of a pending tree is reported to its source, verdict 'touch'.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(touch(7))
    v.apply(touch(7), ack(7, A, B))


@flags.vector("touch of a tree that ends", "Only the ack is reported.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(touch(7), ack(7, A))


@flags.vector("touch of an unknown tree", "A no-op.")
def _(v: Vector) -> None:
    v.apply(touch(7))


@flags.vector("touch before track", "The record goes to the newest bucket, without a verdict.")
def _(v: Vector) -> None:
    v.apply(ack(7, A))
    v.tick()
    v.apply(touch(7))


@flags.vector("touch with a track", "The tree is tracked, and the touch is reported to its source.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), touch(7), task="t")


@flags.vector(
    "conflict, the same source",
    "The same source tracks an anchor again under the same source id: one nack.",
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(track(7, "s7", B), task="t")


@flags.vector("conflict, another source id", "Both are nacked: neither source may wait for ever.")
def _(v: Vector) -> None:
    v.apply(track(7, "first", A), task="t")
    v.apply(track(7, "second", A), task="t")


@flags.vector("conflict, another task", "Each source gets its nack in its own stream.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(track(7, "s7", A), task="u")


@flags.vector("conflict of a row that fails too", "Both are nacked with reason conflict.")
def _(v: Vector) -> None:
    v.apply(track(7, "first", A), task="t")
    v.apply(track(7, "second", A), fail(7, "no"), track(8, "third", B), task="t")
