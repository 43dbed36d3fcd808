"""Fences: a batch counts once, however often it is sent."""

from tests.vectors.operations import ack, track
from tests.vectors.record import Topic, Vector

fences = Topic("fences", "A batch counts once, however often it is sent.")
TOPICS = [fences]
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1


@fences.vector(
    "a repeat", "The same number and digest again: nothing is applied, the reply is 0 and it."
)
def _(v: Vector) -> None:
    for _n in range(3):
        v.apply(track(7, "s7", A), task="t", producer="p", seq=1, digest="00ff")


@fences.vector(
    "a repeated ack does not cancel itself",
    "A row that ran twice would be as if it had never run: x ^ x = 0.",
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.apply(ack(7, A, B), producer="p", seq=1)
    v.apply(ack(7, A, B), producer="p", seq=1)
    v.apply(ack(7, B), producer="p", seq=2)


@fences.vector(
    "a lower number", "Numbers may leave gaps. What is below the highest is a repeat of it."
)
def _(v: Vector) -> None:
    v.apply(ack(1, A), producer="p", seq=1)
    v.apply(ack(2, A), producer="p", seq=9, digest="aa")
    v.apply(ack(3, A), producer="p", seq=5, digest="bb")


@fences.vector("numbers compare as numbers", "10 is above 9; fifteen digits are the most.")
def _(v: Vector) -> None:
    for seq in (9, 10, 999_999_999_999_998, 999_999_999_999_999, 999_999_999_999_998):
        v.apply(ack(7, A), producer="p", seq=seq)


@fences.vector("two producers", "They do not fence each other.")
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="p", seq=5)
    v.apply(ack(7, B), producer="q", seq=5)
    v.apply(ack(7, C), producer="P", seq=1)


@fences.vector("no producer", "No fence: the same batch is applied twice, and cancels itself.")
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


@fences.vector("a digest on one side", "One with, one without is CONFLICT, either way round.")
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="p", seq=1)
    v.apply(ack(7, A), producer="p", seq=1, digest="aa")
    v.apply(ack(7, A), producer="q", seq=1, digest="aa")
    v.apply(ack(7, A), producer="q", seq=1)


@fences.vector("digests", "Up to 32 hex digits; they are compared as they are written.")
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="p", seq=1, digest="0123456789abcdef" * 2)
    v.apply(ack(7, A), producer="p", seq=1, digest="0123456789ABCDEF" * 2)
    v.apply(ack(7, A), producer="p", seq=2, digest="f")


@fences.vector(
    "a fence holds for N - 1 ticks",
    "Of three buckets: after two ticks it is a repeat, after three it is forgotten, and the batch "
    "is applied again. So a client sends nothing again after N - 1 ticks.",
)
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="p", seq=1, digest="aa")
    v.tick(2)
    v.apply(ack(7, A), producer="p", seq=1, digest="aa")
    v.tick()
    v.apply(ack(7, A), producer="p", seq=1, digest="aa")


@fences.vector(
    "a fence moves with its lane", "It stands in one bucket only: the newest at the time."
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
    "A producer whose name begins with @ has its fence outside the buckets: it outlives them.",
)
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="@spark/q/0", seq=100_001, digest="aa")
    v.tick(4)
    v.apply(ack(7, A), producer="@spark/q/0", seq=100_001, digest="aa")
    v.apply(ack(7, B), producer="@spark/q/0", seq=100_001, digest="ab")
    v.apply(ack(7, B), producer="@spark/q/0", seq=100_000, digest="ab")
    v.apply(ack(7, C), producer="@spark/q/0", seq=100_002)
    v.status()


@fences.vector("a producer of 128 bytes", "The longest name.")
def _(v: Vector) -> None:
    v.apply(ack(7, A), producer="x" * 128, seq=1)
    v.apply(ack(7, A), producer="\u00e9" * 64, seq=1)


@fences.vector(
    "a refused batch does not use its number up",
    "BACKLOG first; after the source has taken its verdict, the same batch is applied.",
    outcomes_limit=1,
)
def _(v: Vector) -> None:
    v.apply(track(1, "s1"), task="t")
    v.apply(track(2, "s2", A), task="t", producer="p", seq=1, digest="aa")
    v.take("t")
    v.apply(track(2, "s2", A), task="t", producer="p", seq=1, digest="aa")


@fences.vector("a lane goes on", "Track, ack and ack under one lane's numbers.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t", producer="p", seq=1, digest="1a")
    v.apply(ack(7, A, B), producer="p", seq=2, digest="2b")
    v.apply(ack(7, B), producer="p", seq=3, digest="3c")
    v.apply(ack(7, B), producer="p", seq=3, digest="3c")
