"""Vectors of blocks: failures, touches, fences, admission, expiry, texts."""

from acker_redis.protocol.ids import block_anchor
from tests.vectors.operations import Json, ack, fail, touch, track, track_block
from tests.vectors.record import Topic, Vector
from tests.vectors.topics.texts import TEXTS

failures = Topic("blocks_failures", "Failures and touches of trees in blocks.")
fences = Topic("blocks_fences", "Blocks that are tracked again, and batches that are sent again.")
admission = Topic("blocks_admission", "Blocks at the high-water mark, and the backlog.")
expiry = Topic("blocks_expiry", "Ticks and drains of blocks. All ticks are forced.")
texts = Topic("blocks_texts", "Labels and whys of blocks come back unchanged.")
TOPICS = [failures, fences, admission, expiry, texts]
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1
D = 0x1F83D9ABFB41BD6B
BLOCK, OTHER = 0x1F2E3D4C5B6A7, 0x0A1B2C3D4E5F6
LABEL = "topic/3/1000"


def slot(number: int, block: int = BLOCK) -> int:
    """Return the anchor of a tree in a block."""
    return block_anchor(block, number)


def _tracked(v: Vector, *deltas: int, block: int = BLOCK, label: str = LABEL) -> None:
    v.apply(track_block(block, label, *deltas), task="t")


def _block(block: int, *deltas: int) -> Json:
    return track_block(block, f"b{block}", *deltas)


@failures.vector(
    "fail with the message",
    "The tree is nacked at once. Its delta counts, so the block ends when the others are done; the "
    "tree gets no second verdict.",
)
def _(v: Vector) -> None:
    _tracked(v, A, B, C)
    v.apply(fail(slot(1), "no such address", B))
    v.apply(ack(slot(0), A), ack(slot(2), C))


@failures.vector(
    "fail without the message",
    "The tree is nacked at once. Its checksum keeps the block open until the row arrives.",
)
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(1), "no"))
    v.apply(ack(slot(0), A))
    v.apply(ack(slot(1), B))


@failures.vector("fail and what it caused", "The messages of a failed tree still count.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(0), "half done", A, C, D))
    v.apply(ack(slot(1), B), ack(slot(0), C))
    v.apply(ack(slot(0), D))


@failures.vector(
    "fail twice", "The first is reported, and its why stays; the second's delta counts."
)
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(0), ""))
    v.apply(fail(slot(0), "second", A))
    v.apply(fail(slot(0), "third"), fail(slot(1), "other"))


@failures.vector("several fail at once", "One entry, one row each; the block stays open.")
def _(v: Vector) -> None:
    _tracked(v, A, B, C, D)
    v.apply(fail(slot(3), "three", D), fail(slot(0), ""), ack(slot(2), C), fail(slot(1), "one"))


@failures.vector("fail, and end in one call", "First the nack, then the ack of the others.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(1), "no", B), ack(slot(0), A))


@failures.vector("all have failed", "All verdicts are written: the block ends without another one.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(0), "no", A))
    v.apply(fail(slot(1), "nor this", B))


@failures.vector(
    "a failure after its delta",
    "The tree was acked in between, and the failure finds no block. So send FAIL with its delta, "
    "or before it.",
)
def _(v: Vector) -> None:
    _tracked(v, A)
    v.apply(ack(slot(0), A))
    v.apply(fail(slot(0), "too late"))


@failures.vector(
    "a slot fails that is zero",
    "Its block is open, so it has no verdict yet: it is nacked, not acked.",
)
def _(v: Vector) -> None:
    _tracked(v, A, 0, B)
    v.apply(ack(slot(0), A))
    v.apply(fail(slot(0), "found out later"), fail(slot(1), "a hole"))
    v.apply(ack(slot(2), B))


@failures.vector("track and fail in one batch", "The block is tracked with failed trees.")
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), fail(slot(0, 7), "unreadable", A), fail(slot(1, 7), "bad"), task="t")
    v.apply(ack(slot(1, 7), B))


@failures.vector(
    "stale failures",
    "A client restored the failures of an earlier block of the same number: when the number is "
    "tracked again, none of its trees has failed.",
)
def _(v: Vector) -> None:
    v.redis("SET", f"acker:{{vector:0}}:failed:{BLOCK:013x}", "@")
    v.redis("SET", f"acker:{{vector:0}}:present:{BLOCK:013x}", "@")
    _tracked(v, A, B)
    v.apply(fail(slot(0), "now", A))
    v.apply(ack(slot(1), B))
    v.redis("SET", f"acker:{{vector:0}}:failed:{BLOCK:013x}", "@")
    v.apply(track_block(BLOCK, LABEL, A, B), fail(slot(0), "at once"), task="t")


@failures.vector("touch", "The clock of the whole block restarts; reported to its source once.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.tick()
    v.apply(touch(slot(1)), touch(slot(0)))
    v.apply(touch(slot(0)), ack(slot(0), A))


@failures.vector("touch of a block that ends", "Only the ack is reported.")
def _(v: Vector) -> None:
    _tracked(v, A)
    v.apply(touch(slot(0)), ack(slot(0), A))


@failures.vector("touch of an unknown block", "A no-op: no verdict, and no counter changes.")
def _(v: Vector) -> None:
    v.apply(touch(slot(0)))


@failures.vector("touch of a slot that does not exist", "The block is touched all the same.")
def _(v: Vector) -> None:
    _tracked(v, A)
    v.apply(touch(slot(9)))


@failures.vector("touch with a track", "The block is tracked, and its source gets the touch.")
def _(v: Vector) -> None:
    v.apply(_block(7, A), touch(slot(0, 7)), task="t")


@fences.vector("a repeat", "The same number and digest again: nothing is applied.")
def _(v: Vector) -> None:
    for _n in range(2):
        v.apply(_block(7, A, B), task="t", producer="p", seq=1, digest="00ff")
    for _n in range(3):
        v.apply(ack(slot(0, 7), A), producer="p", seq=2, digest="01")
    v.apply(ack(slot(1, 7), B), producer="p", seq=3)


@fences.vector(
    "a repeat after the end",
    "The batch that tracked is sent again: because of its fence, the block is not tracked again.",
)
def _(v: Vector) -> None:
    v.apply(_block(7, A), task="t", producer="p", seq=1)
    v.apply(ack(slot(0, 7), A), producer="q", seq=1)
    v.apply(_block(7, A), task="t", producer="p", seq=1)


@fences.vector(
    "no fence", "A delta that is sent twice cancels out; a track that is sent twice is ignored."
)
def _(v: Vector) -> None:
    for _n in range(2):
        v.apply(_block(7, A, B), task="t")
    for _n in range(2):
        v.apply(ack(slot(0, 7), A))


@fences.vector(
    "the same track again",
    "With another number, from a second run of the source: rows applied in between stay, and the "
    "deltas are not added again. Its failures and its touch count, each failure once.",
)
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), task="t", producer="p", seq=1, digest="aa")
    v.apply(ack(slot(0, 7), A))
    v.tick()
    v.apply(_block(7, A, B), task="t", producer="q", seq=1, digest="aa")
    for _n in range(2):
        v.apply(_block(7, A, B), touch(slot(0, 7)), fail(slot(1, 7), "no"), task="t")
    v.apply(ack(slot(1, 7), B))


@fences.vector(
    "CONFLICT: other content",
    "Other deltas, another size, label or task: the call is refused whole, with its other blocks.",
)
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), _block(8, A), task="t")
    v.apply(_block(7, A, C), task="t")
    v.apply(_block(7, A), task="t")
    v.apply(_block(7, A, B, 0), task="t")
    v.apply(track_block(7, "another", A, B), task="t")
    v.apply(_block(7, A, B), task="u")
    v.apply(ack(slot(0, 8), A), _block(7, B, A), _block(9, A), task="t")


@fences.vector("CONFLICT: the content is the folded column", "Rows that are folded in change it.")
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), ack(slot(0, 7), A, C), task="t")
    v.apply(_block(7, A, B), ack(slot(0, 7), A, C), task="t")
    v.apply(_block(7, A, B), task="t")


@fences.vector("CONFLICT: a number with other content", "Equal numbers, different digests.")
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), task="t", producer="p", seq=1, digest="aa")
    v.apply(ack(slot(0, 7), A), producer="p", seq=1, digest="ab")
    v.apply(ack(slot(0, 7), A), producer="p", seq=1)


@fences.vector(
    "one lane for both scripts",
    "A number that one of the scripts has used is a repeat for the other, too.",
)
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), task="t")
    v.apply(track(7, "s7", A), task="t", producer="p", seq=4, digest="aa")
    v.apply(ack(slot(0, 7), A), producer="p", seq=4, digest="aa")
    v.apply(ack(slot(0, 7), A), producer="p", seq=5, digest="bb")
    v.apply(ack(7, A), producer="p", seq=5, digest="bb")
    v.apply(ack(7, A), producer="p", seq=6, digest="cc")


@fences.vector(
    "both parts of a batch again",
    "The lane is at the number of the second call, above that of the first. So the client stops "
    "after the first call. (It sends a batch again only if it lost the replies.)",
)
def _(v: Vector) -> None:
    for _n in range(2):
        v.apply(track(7, "s7", A), _block(7, B), task="t", producer="p", seq=1, digest="aa")


@fences.vector(
    "the second part was refused",
    "BACKLOG of the blocks. The loose rows were applied: when the batch is sent again they are a "
    "repeat, and the blocks are applied.",
    outcomes_limit=1,
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    for _n in range(2):
        v.apply(ack(7, A), _block(7, B), task="t", producer="p", seq=1, digest="aa")
        v.take("t")


@fences.vector("a fence follows its lane", "It is in one bucket only, the newest at the time.")
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), task="t", producer="p", seq=1)
    v.tick()
    v.apply(ack(slot(0, 7), A), producer="p", seq=2)
    v.tick()
    v.apply(ack(slot(0, 7), A), producer="p", seq=2)


@fences.vector(
    "a fence holds for N - 1 ticks",
    "Three buckets: after two ticks the batch is a repeat. After three its fence has expired, and "
    "so has the block, which is tracked again.",
)
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), task="t", producer="p", seq=1)
    v.tick(2)
    v.apply(_block(7, A, B), task="t", producer="p", seq=1)
    v.tick()
    v.apply(_block(7, A, B), task="t", producer="p", seq=1)


@fences.vector("a durable lane", "It outlives the buckets for blocks as well.")
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), task="t", producer="@source", seq=1, digest="aa")
    v.tick(4)
    v.apply(_block(7, A, B), task="t", producer="@source", seq=1, digest="aa")
    v.apply(_block(7, A, B), task="t", producer="@source", seq=2, digest="aa")


@admission.vector(
    "overflow",
    "Twice the mark is six: a block of four fits, then one of two, and no third. The rejected "
    "block is number 1 of its call; it counts in trees, and nothing of it is stored.",
    high_water=3,
)
def _(v: Vector) -> None:
    _tracked(v, A, B, C, D, block=1)
    v.apply(_block(2, A, B), _block(3, C), task="t")
    v.apply(ack(slot(0, 3), C))


@admission.vector(
    "a block above twice the mark", "It never fits, even if nothing is pending.", high_water=1
)
def _(v: Vector) -> None:
    v.apply(_block(1, A, B, C), task="t")


@admission.vector(
    "the high-water mark is shared",
    "A mark of five over four shards: a share of two each, rounded up. Shard 1 has room for one "
    "block of four and no more; shard 2 has room for another block.",
    shards=4,
    high_water=5,
)
def _(v: Vector) -> None:
    v.apply(_block(1, A, B, C, D), task="t")
    v.apply(_block(5, A), _block(2, A), _block(9, A), task="t")


@admission.vector(
    "a block that ends makes room for the next call",
    "Not for the same call, unlike loose rows: block 1 ends and 2 is rejected; the next call fits.",
    high_water=1,
)
def _(v: Vector) -> None:
    _tracked(v, A, B, block=1)
    v.apply(_block(2, C), ack(slot(0, 1), A), ack(slot(1, 1), B), task="t")
    v.apply(_block(2, C), task="t")


@admission.vector(
    "slots count until their block ends",
    "Zero or failed, they are pending: a loose tree is rejected, and a row without one is dropped.",
    high_water=2,
)
def _(v: Vector) -> None:
    _tracked(v, A, B, C, D)
    v.apply(ack(slot(0), A), ack(slot(1), B), fail(slot(2), "no", C))
    v.apply(track(7, "s7", A), ack(8, A), task="t")
    v.apply(ack(slot(3), D))
    v.apply(track(7, "s7", A), ack(8, A), task="t")


@admission.vector("loose records count for blocks", "Two records, and a mark of one.", high_water=1)
def _(v: Vector) -> None:
    v.apply(track(1, "s1", A), ack(2, B), task="t")
    v.apply(_block(1, C), task="t")
    v.apply(ack(1, A), track(3, "s3", A), task="t")


@admission.vector(
    "a batch of both at the mark", "Loose rows are applied first, and use the room.", high_water=1
)
def _(v: Vector) -> None:
    v.apply(_block(1, A), _block(2, B), track(7, "s7", A), ack(7, A, C), task="t")


@admission.vector(
    "expiring blocks do not count", "Blocks in the drain are not pending.", high_water=1
)
def _(v: Vector) -> None:
    _tracked(v, A, B, block=1)
    for _n in range(3):
        v.rotate()
    v.apply(_block(2, A, B), task="t")


@admission.vector(
    "overflow of a block that would end at once", "It is rejected all the same.", high_water=1
)
def _(v: Vector) -> None:
    _tracked(v, A, B, block=1)
    v.apply(_block(2, 0), task="t")


@admission.vector(
    "BACKLOG",
    "A block's verdict counts for all its trees: two, and the limit is two. A call that tracks "
    "a new block for the task is refused whole; one that repeats a TRACK is not.",
    outcomes_limit=2,
)
def _(v: Vector) -> None:
    v.apply(_block(1, A, B), _block(2, A), task="t")
    v.apply(ack(slot(0, 1), A), ack(slot(1, 1), B))
    v.apply(_block(3, A), ack(slot(0, 2), A), task="t")
    v.apply(track(7, "s7", A), task="t")
    v.apply(_block(2, A), task="t")
    v.apply(_block(3, A), task="u")
    v.apply(ack(slot(0, 2), A))
    v.take("t")
    v.apply(_block(3, A), task="u")
    v.apply(_block(4, A), task="t")


@admission.vector(
    "a touch is dropped when the backlog is full",
    "The block goes to the newest bucket all the same. The first touch is below the limit, and is "
    "written for all trees.",
    outcomes_limit=2,
)
def _(v: Vector) -> None:
    v.apply(_block(1, A, B, C), task="t")
    v.tick()
    v.apply(touch(slot(0, 1)))
    v.tick()
    v.apply(touch(slot(0, 1)))


@admission.vector(
    "take", "Entries of blocks and of loose trees: the reply counts entries and single verdicts."
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), _block(1, A, B, C), task="t")
    v.apply(ack(7, A), fail(slot(1, 1), "no", B), ack(slot(0, 1), A), ack(slot(2, 1), C))
    v.take("t")


@expiry.vector(
    "mixed",
    "Slots 0 and 4 are done, 2 is a hole, 3 has failed; 1 and 5 are open, and 6 is open again. One "
    "entry lists which is which.",
)
def _(v: Vector) -> None:
    _tracked(v, A, B, 0, C, D, A, B)
    v.apply(
        ack(slot(0), A), ack(slot(4), D), fail(slot(3), "no"), ack(slot(6), B), ack(slot(1), B, D)
    )
    v.apply(ack(slot(6), C))
    v.tick(3)


@expiry.vector("all expired", "No row arrived after the track.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.tick(3)


@expiry.vector("all have failed", "All are nacked already: the open block ends without an entry.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(0), "no"), fail(slot(1), "nor this"))
    v.tick(3)


@expiry.vector("before N ticks", "Two ticks: the block is in the oldest bucket, and ends there.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.tick(2)
    v.apply(ack(slot(0), A))
    v.apply(ack(slot(1), B))


@expiry.vector("rows do not restart the clock", "refresh=never: the clock starts at the track.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.tick(2)
    v.apply(ack(slot(0), A))
    v.tick()


@expiry.vector("refresh=update", "Every row refreshes its whole block.", refresh="update")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.tick(2)
    v.apply(ack(slot(0), A))
    v.tick(2)
    v.apply(fail(slot(1), "no"))
    v.tick(2)
    v.apply(ack(slot(1), C))
    v.tick(3)


@expiry.vector(
    "refresh=update, a track again",
    "Like every row, it refreshes the block, and has no other effect.",
    refresh="update",
)
def _(v: Vector) -> None:
    _tracked(v, A)
    v.tick(2)
    _tracked(v, A)
    v.tick()


@expiry.vector("touch", "The whole block goes to the newest bucket; the other block expires.")
def _(v: Vector) -> None:
    v.apply(_block(1, A, B), _block(2, A, B), task="t")
    v.tick(2)
    v.apply(touch(slot(1, 1)))
    v.tick()


@expiry.vector(
    "loose trees and blocks", "One tick, two drains. The next tick waits until both are complete."
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), _block(1, A, B), ack(8, C), task="t")
    v.tick(2)
    v.rotate()
    v.status()
    v.rotate()
    v.expire()
    v.rotate()
    v.expire_blocks()
    v.rotate()


@expiry.vector("blocks before loose trees", "The drains may run in any order.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), _block(1, A, B), task="t")
    v.tick(2)
    v.rotate()
    v.expire_blocks()
    v.expire()


@expiry.vector(
    "being drained", "A block between rotate and expire_blocks: in no bucket, no verdict."
)
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(1), "no", B))
    v.tick(2)
    v.rotate()


@expiry.vector("rows while the block expires", "They are dropped: lookups skip the drained bucket.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.tick(2)
    v.rotate()
    v.apply(ack(slot(0), A), fail(slot(1), "no"))
    v.expire_blocks()


@expiry.vector(
    "tracked while a block of the same number expires",
    "Nacked, reason conflict: the old checksums are still needed. Another block of the call is "
    "tracked. After the drain the number can be tracked again.",
)
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), task="t")
    v.tick(2)
    v.rotate()
    v.apply(_block(6, A), _block(7, C), ack(slot(0, 7), C), task="t")
    v.apply(_block(7, A, B), fail(slot(0, 7), "no"), touch(slot(0, 7)), task="u")
    v.expire_blocks()
    v.apply(_block(7, A, B), task="t")


@expiry.vector("a block in each bucket", "Each tick expires the oldest only.")
def _(v: Vector) -> None:
    for number in (1, 2, 3, 4):
        v.apply(track_block(number, f"b{number}", *[A] * number), task="t")
        v.tick()
    v.status()


@expiry.vector(
    "several blocks and tasks", "One drain writes each verdict to the stream of its task."
)
def _(v: Vector) -> None:
    v.apply(_block(1, A, B), _block(2, A), task="t")
    v.apply(_block(3, A, 0), task="u")
    v.apply(ack(slot(0, 1), A))
    v.tick(3)
    v.take("u")


@expiry.vector("shards", "Each shard has its own ring of blocks.", shards=2)
def _(v: Vector) -> None:
    v.apply(_block(1, A, B), _block(2, A), track(7, "s7", A), task="t")
    v.tick()
    v.apply(touch(slot(0, 2)))
    v.tick(2)
    v.take("t")


@expiry.vector("64 blocks", "One call drains them.")
def _(v: Vector) -> None:
    v.apply(*(_block(n, A) for n in range(64)), task="t")
    v.tick(3)


@expiry.vector("nothing to drain", "An extra call is a no-op.")
def _(v: Vector) -> None:
    _tracked(v, A)
    v.expire_blocks()


for _name, _text in TEXTS.items():

    def _declare(name: str, text: str) -> None:
        @texts.vector(
            name, "As label and as why, in verdicts of apply_blocks and of expire_blocks."
        )
        def _(v: Vector) -> None:
            _tracked(v, A, B, C, label=text)
            v.apply(fail(slot(0), text, A), fail(slot(1), text))
            v.apply(ack(slot(1), B))
            v.tick(3)
            v.apply(track_block(OTHER, text, 0), task="t")

    _declare(_name, _text)
