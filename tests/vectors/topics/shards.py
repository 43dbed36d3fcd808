"""Vectors of a namespace with several shards."""

from tests.vectors.operations import ack, fail, track
from tests.vectors.record import Topic, Vector

shards = Topic("shards", "A namespace of four shards: one call for each shard in a batch.")
TOPICS = [shards]
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1
D = 0x1F83D9ABFB41BD6B


@shards.vector("a call for each shard", "Anchors 4, 5, 6 and 7 belong to shards 0 to 3.", shards=4)
def _(v: Vector) -> None:
    v.apply(*(track(anchor, f"s{anchor}", A) for anchor in (4, 5, 6, 7)), task="t")
    v.apply(*(ack(anchor, A) for anchor in (4, 5, 6, 7)))


@shards.vector(
    "shards in the order of their rows",
    "Calls are in the order in which the shards first appear (3, 0), rows in the order of the "
    "batch. A client may send the calls in another order.",
    shards=4,
)
def _(v: Vector) -> None:
    v.apply(track(11, "s11", A), track(8, "s8", B), ack(3, C), ack(11, A, D), ack(4, D), task="t")


@shards.vector(
    "the task goes with TRACK rows only",
    "Shard 1 gets no TRACK row, so its call has no task and no source id.",
    shards=4,
)
def _(v: Vector) -> None:
    v.apply(track(4, "s4", A), ack(5, B), fail(9, "no"), fail(8, "neither"), task="t")


@shards.vector(
    "a number for each call",
    "The calls of a batch have consecutive numbers, and each shard has its own fence: when 3 is "
    "sent again, followed by a call for shard 1, 3 is a repeat and 4 is not.",
    shards=4,
)
def _(v: Vector) -> None:
    v.apply(track(4, "s4", A), track(5, "s5", B), task="t", producer="p", seq=1, digest="aa")
    v.apply(ack(4, A), producer="p", seq=3, digest="bb")
    v.apply(ack(4, A), ack(5, B), producer="p", seq=3, digest="bb")


@shards.vector(
    "the high-water mark is shared",
    "A mark of five over four shards: a share of two each, rounded up. At four trees, shard 0 "
    "refuses new ones; shard 1 does not.",
    shards=4,
    high_water=5,
)
def _(v: Vector) -> None:
    for anchor in (4, 8, 12, 16, 20):
        v.apply(track(anchor, f"s{anchor}", A), task="t")
    v.apply(track(24, "s24", A), track(21, "s21", A), task="t")


@shards.vector("ticks and takes", "Each shard has its own ring and its own stream.", shards=2)
def _(v: Vector) -> None:
    v.apply(track(2, "s2", A), track(3, "s3", A), track(5, "s5", A), task="t")
    v.apply(ack(3, A))
    v.tick(3)
    v.status()
    v.take("t")
