"""Ticks: when trees expire, and what moves them to the newest bucket."""

from tests.vectors.operations import ack, fail, touch, track
from tests.vectors.record import Topic, Vector

expiry = Topic("expiry", "Ticks and drains. All ticks are forced: no vector waits for a clock.")
TOPICS = [expiry]
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1


@expiry.vector(
    "after N ticks", "Of three buckets: two ticks leave the tree alone, the third nacks."
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(3)


@expiry.vector("before N ticks", "Two ticks: the tree is in the oldest bucket, and is acked there.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), track(8, "s8", A), task="t")
    v.tick(2)
    v.apply(ack(7, A))


@expiry.vector("two buckets", "The fewest.", buckets=2)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick()
    v.apply(track(8, "s8", A), task="t")
    v.tick()


@expiry.vector("sixteen buckets", "The most: fifteen ticks do nothing.", buckets=16)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(15)
    v.status()
    v.tick()


@expiry.vector("a tree in each bucket", "Each tick takes the oldest only.")
def _(v: Vector) -> None:
    for anchor in (1, 2, 3, 4):
        v.apply(track(anchor, f"s{anchor}", A), task="t")
        v.tick()
    v.status()


@expiry.vector("rows do not restart the clock", "refresh=never: it runs from the first row.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick()
    v.apply(ack(7, A, B))
    v.tick()
    v.apply(ack(7, B, C))
    v.tick()


@expiry.vector("refresh=update", "Every row moves its tree to the newest bucket.", refresh="update")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(2)
    v.apply(ack(7, A, B))
    v.tick(2)
    v.apply(ack(7, B, C))
    v.tick(2)
    v.apply(ack(7, C))


@expiry.vector("touch", "A touch moves its tree to the newest bucket.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), track(8, "s8", A), task="t")
    v.tick(2)
    v.apply(touch(7))
    v.tick()


@expiry.vector("a fail before its track", "It is moved, so that its track finds it.")
def _(v: Vector) -> None:
    v.apply(ack(7, A))
    v.tick(2)
    v.apply(fail(7, "early"))
    v.tick(2)
    v.apply(track(7, "s7", A), task="t")


@expiry.vector("a track does not restart the clock", "The record waited for two ticks already.")
def _(v: Vector) -> None:
    v.apply(ack(7, A, B))
    v.tick(2)
    v.apply(track(7, "s7", A), task="t")
    v.tick()


@expiry.vector("records without a tree", "They are counted as orphans, and nobody is told.")
def _(v: Vector) -> None:
    v.apply(ack(7, A), fail(8, "no"), track(9, "s9", A), task="t")
    v.tick(3)


@expiry.vector("a late row", "It finds no tree, waits as a record of its own, and expires.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(3)
    v.apply(ack(7, A))
    v.tick(3)


@expiry.vector(
    "a row that comes while its tree expires",
    "Between rotate and expire: lookups skip what is being drained.",
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(2)
    v.rotate()
    v.apply(ack(7, A))
    v.expire()


@expiry.vector("being drained", "A tree between rotate and expire: in no bucket, and not told yet.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), fail(8, "waits"), task="t")
    v.tick(2)
    v.rotate()
    v.status()


@expiry.vector("nothing rotates before the drain is done", "Also when it is forced.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(2)
    v.rotate()
    v.rotate()
    v.expire()
    v.rotate()


@expiry.vector("not due", "Without force, and before its time, nothing ticks.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.rotate(force=False)


@expiry.vector("nothing to drain", "A call too many does nothing.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.expire()


@expiry.vector("trees of several tasks", "One drain tells each source its own.")
def _(v: Vector) -> None:
    v.apply(track(1, "s1", A), track(2, "s2", A), task="t")
    v.apply(track(3, "s3", A), task="u")
    v.tick(3)


@expiry.vector(
    "idle tasks are forgotten",
    "After 100 ticks without a TRACK, and none whose verdicts wait: the backlog names who is left.",
)
def _(v: Vector) -> None:
    v.apply(track(1, "s1"), task="t")
    v.apply(track(2, "s2"), task="u")
    v.take("t")
    v.rotate()
    v.apply(track(3, "s3"), task="w")
    v.take("w")
    for _ in range(100):
        v.rotate()
