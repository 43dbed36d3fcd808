"""Vectors of fences: a batch that is sent several times is applied once."""

from tests.vectors.operations import ack, track
from tests.vectors.record import Topic, Vector

fences = Topic("fences", "A batch that is sent several times is applied once.")
TOPICS = [fences]
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1


@fences.vector(
    "a repeat", "The same number and digest again: nothing is applied, the reply is {0, number}."
)
def _(v: Vector) -> None:
    for _n in range(3):
        v.apply(track(7, "s7", A), task="t", producer="p", seq=1, digest="00ff")


@fences.vector(
    "a repeated ack does not cancel itself",
    "A row that is applied twice would have no effect: x ^ x = 0.",
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(ack(7, A, B), producer="p", seq=1)
    v.apply(ack(7, A, B), producer="p", seq=1)
    v.apply(ack(7, B), producer="p", seq=2)


@fences.vector("a lower number", "Numbers may have gaps. A number below the highest is a repeat.")
def _(v: Vector) -> None:
    v.apply(ack(1, A), producer="p", seq=1)
    v.apply(ack(2, A), producer="p", seq=9, digest="aa")
    v.apply(ack(3, A), producer="p", seq=5, digest="bb")


@fences.vector("numbers compare as numbers", "10 is above 9; the maximum is fifteen digits.")
def _(v: Vector) -> None:
    for seq in (9, 10, 999_999_999_999_998, 999_999_999_999_999, 999_999_999_999_998):
        v.apply(ack(7, A), producer="p", seq=seq)


@fences.vector("two producers", "They do not fence each other.")
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="p", seq=5)
    v.apply(ack(7, B), producer="q", seq=5)
    v.apply(ack(7, C), producer="P", seq=1)


@fences.vector(
    "no producer", "No fence: the same batch is applied twice, and its deltas cancel out."
)
def _(v: Vector) -> None:
    v.apply(ack(7, A))
    v.apply(ack(7, A))


@fences.vector(
    "other content", "Equal numbers with different digests are CONFLICT, and nothing changes."
)
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="p", seq=1, digest="aa")
    v.apply(ack(7, B), producer="p", seq=1, digest="ab")
    v.apply(ack(7, A), producer="p", seq=1, digest="aa")


@fences.vector(
    "a digest on one side", "One batch with a digest and one without are CONFLICT, in either order."
)
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="p", seq=1)
    v.apply(ack(7, A), producer="p", seq=1, digest="aa")
    v.apply(ack(7, A), producer="q", seq=1, digest="aa")
    v.apply(ack(7, A), producer="q", seq=1)


@fences.vector("digests", "Up to 32 hex digits; compared as text.")
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="p", seq=1, digest="0123456789abcdef" * 2)
    v.apply(ack(7, A), producer="p", seq=1, digest="0123456789ABCDEF" * 2)
    v.apply(ack(7, A), producer="p", seq=2, digest="f")


@fences.vector(
    "a fence holds for N - 1 ticks",
    "Three buckets: after two ticks the batch is a repeat; after three its fence has expired, and "
    "the batch is applied again. So a client does not retry a batch after N - 1 ticks.",
)
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="p", seq=1, digest="aa")
    v.tick(2)
    v.apply(ack(7, A), producer="p", seq=1, digest="aa")
    v.tick()
    v.apply(ack(7, A), producer="p", seq=1, digest="aa")


@fences.vector(
    "a fence follows its lane", "It is in one bucket only: the newest at the lane's last batch."
)
def _(v: Vector) -> None:
    v.apply(ack(1, A), producer="p", seq=1)
    v.tick()
    v.apply(ack(2, A), producer="q", seq=1)
    v.apply(ack(3, A), producer="p", seq=2)
    v.tick()
    v.apply(ack(3, A), producer="p", seq=2)


@fences.vector(
    "a durable lane",
    "The fence of a producer whose name begins with @ is outside the buckets, and outlives them.",
)
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="@spark/q/0", seq=100_001, digest="aa")
    v.tick(4)
    v.apply(ack(7, A), producer="@spark/q/0", seq=100_001, digest="aa")
    v.apply(ack(7, B), producer="@spark/q/0", seq=100_001, digest="ab")
    v.apply(ack(7, B), producer="@spark/q/0", seq=100_000, digest="ab")
    v.apply(ack(7, C), producer="@spark/q/0", seq=100_002)
    v.status()


@fences.vector("a producer of 128 bytes", "The maximum.")
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="x" * 128, seq=1)
    v.apply(ack(7, A), producer="\u00e9" * 64, seq=1)


@fences.vector(
    "a refused batch does not use up its number",
    "BACKLOG first; after the source has taken its verdict, the same batch is applied.",
    outcomes_limit=1,
)
def _(v: Vector) -> None:
    v.apply(track(1, "s1"), task="t")
    v.apply(track(2, "s2", A), task="t", producer="p", seq=1, digest="aa")
    v.take("t")
    v.apply(track(2, "s2", A), task="t", producer="p", seq=1, digest="aa")


@fences.vector("a lane continues", "Track, ack and ack under one lane's numbers.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t", producer="p", seq=1, digest="1a")
    v.apply(ack(7, A, B), producer="p", seq=2, digest="2b")
    v.apply(ack(7, B), producer="p", seq=3, digest="3c")
    v.apply(ack(7, B), producer="p", seq=3, digest="3c")
