"""Vectors of ticks: when trees expire, and which rows put them into the newest bucket."""

from tests.vectors.operations import ack, fail, touch, track
from tests.vectors.record import Topic, Vector

expiry = Topic("expiry", "Ticks and drains. All ticks are forced, so no vector waits for a clock.")
TOPICS = [expiry]
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1


@expiry.vector(
    "after N ticks", "Three buckets: the tree survives two ticks, and the third nacks it."
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(3)


@expiry.vector("before N ticks", "Two ticks: the tree is in the oldest bucket, and is acked there.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), track(8, "s8", A), task="t")
    v.tick(2)
    v.apply(ack(7, A))


@expiry.vector("two buckets", "The minimum.", buckets=2)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick()
    v.apply(track(8, "s8", A), task="t")
    v.tick()


@expiry.vector("sixteen buckets", "The maximum: fifteen ticks expire nothing.", buckets=16)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(15)
    v.status()
    v.tick()


@expiry.vector("a tree in each bucket", "Each tick expires the oldest only.")
def _(v: Vector) -> None:
    for anchor in (1, 2, 3, 4):
        v.apply(track(anchor, f"s{anchor}", A), task="t")
        v.tick()
    v.status()


@expiry.vector("rows do not restart the clock", "refresh=never: the clock starts at the first row.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick()
    v.apply(ack(7, A, B))
    v.tick()
    v.apply(ack(7, B, C))
    v.tick()


@expiry.vector(
    "refresh=update", "Every row puts its tree into the newest bucket.", refresh="update"
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(2)
    v.apply(ack(7, A, B))
    v.tick(2)
    v.apply(ack(7, B, C))
    v.tick(2)
    v.apply(ack(7, C))


@expiry.vector("touch", "A touch puts its tree into the newest bucket.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), track(8, "s8", A), task="t")
    v.tick(2)
    v.apply(touch(7))
    v.tick()


@expiry.vector(
    "a fail before its track", "Its record goes to the newest bucket, so that the track finds it."
)
def _(v: Vector) -> None:
    v.apply(ack(7, A))
    v.tick(2)
    v.apply(fail(7, "early"))
    v.tick(2)
    v.apply(track(7, "s7", A), task="t")


@expiry.vector("a track does not restart the clock", "The record has waited for two ticks.")
def _(v: Vector) -> None:
    v.apply(ack(7, A, B))
    v.tick(2)
    v.apply(track(7, "s7", A), task="t")
    v.tick()


@expiry.vector("records without a tree", "They are counted as orphaned, without a verdict.")
def _(v: Vector) -> None:
    v.apply(ack(7, A), fail(8, "no"), track(9, "s9", A), task="t")
    v.tick(3)


@expiry.vector("a late row", "It finds no tree, waits as a record without one, and expires.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(3)
    v.apply(ack(7, A))
    v.tick(3)


@expiry.vector(
    "a row that arrives while its tree expires",
    "Between rotate and expire: lookups skip the bucket that is being drained.",
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(2)
    v.rotate()
    v.apply(ack(7, A))
    v.expire()


@expiry.vector(
    "being drained", "A tree between rotate and expire: in no bucket, and without a verdict."
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), fail(8, "waits"), task="t")
    v.tick(2)
    v.rotate()
    v.status()


@expiry.vector("nothing rotates before the drain is complete", "Also when the tick is forced.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.tick(2)
    v.rotate()
    v.rotate()
    v.expire()
    v.rotate()


@expiry.vector("not due", "Without force, and before the tick is due, nothing rotates.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.rotate(force=False)


@expiry.vector("nothing to drain", "An extra call is a no-op.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    v.expire()


@expiry.vector("trees of several tasks", "One drain writes each verdict to the stream of its task.")
def _(v: Vector) -> None:
    v.apply(track(1, "s1", A), track(2, "s2", A), task="t")
    v.apply(track(3, "s3", A), task="u")
    v.tick(3)


@expiry.vector(
    "idle tasks are forgotten",
    "After 100 ticks without a TRACK, if no verdict waits: the backlog lists the remaining tasks.",
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


@expiry.vector(
    "an objective",
    "The state counts per task the trees that ended, and those that completed within slo_ms.",
)
def _(v: Vector) -> None:
    v.configure(slo_target=99.95, slo_ms=3_600_000)
    v.apply(track(1, "s1", A), track(2, "s2", A), track(3, "s3", A), task="t")
    v.apply(track(4, "s4", A), task="u")
    v.apply(ack(1, A), fail(2, "no"), ack(4, A))
    v.tick(3)
    v.configure(slo_ms=0)
