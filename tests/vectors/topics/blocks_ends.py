"""Blocks: failures, touches, fences, admission, expiry, texts."""

from acker_redis.protocol.ids import block_anchor
from tests.vectors.operations import Json, ack, fail, touch, track, track_block
from tests.vectors.record import Topic, Vector
from tests.vectors.topics.texts import TEXTS

failures = Topic("blocks_failures", "Failures and touches of trees in blocks.")
fences = Topic("blocks_fences", "Blocks that are tracked again, and batches that come again.")
admission = Topic("blocks_admission", "Blocks at the high-water mark, and the backlog.")
expiry = Topic("blocks_expiry", "Ticks and drains of blocks. All ticks are forced.")
texts = Topic("blocks_texts", "Labels and whys of blocks come back as they went.")
TOPICS = [failures, fences, admission, expiry, texts]
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1
D = 0x1F83D9ABFB41BD6B
BLOCK, OTHER = 0x1F2E3D4C5B6A7, 0x0A1B2C3D4E5F6
LABEL = "topic/3/1000"


def slot(number: int, block: int = BLOCK) -> int:
    """Anchor of a tree in a block."""
    return block_anchor(block, number)


def _tracked(v: Vector, *deltas: int, block: int = BLOCK, label: str = LABEL) -> None:
    v.apply(track_block(block, label, *deltas), task="t")


def _block(block: int, *deltas: int) -> Json:
    return track_block(block, f"b{block}", *deltas)


@failures.vector(
    "fail with the message",
    "Nacked at once. Its delta counts, so the block ends when the others are done; it is not "
    "acked again.",
)
def _(v: Vector) -> None:
    _tracked(v, A, B, C)
    v.apply(fail(slot(1), "no such address", B))
    v.apply(ack(slot(0), A), ack(slot(2), C))


@failures.vector(
    "fail without the message",
    "Nacked at once, and its checksum holds the block until the row comes.",
)
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(1), "no"))
    v.apply(ack(slot(0), A))
    v.apply(ack(slot(1), B))


@failures.vector("fail and what it caused", "The messages of a failed tree go on being counted.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(0), "half done", A, C, D))
    v.apply(ack(slot(1), B), ack(slot(0), C))
    v.apply(ack(slot(0), D))


@failures.vector("fail twice", "The first is told, and its why stays; the second's delta counts.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(0), ""))
    v.apply(fail(slot(0), "second", A))
    v.apply(fail(slot(0), "third"), fail(slot(1), "other"))


@failures.vector("several fail at once", "One entry, a row each; the block goes on.")
def _(v: Vector) -> None:
    _tracked(v, A, B, C, D)
    v.apply(fail(slot(3), "three", D), fail(slot(0), ""), ack(slot(2), C), fail(slot(1), "one"))


@failures.vector("fail, and end in one call", "First the nack, then the ack of the others.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(1), "no", B), ack(slot(0), A))


@failures.vector(
    "all have failed", "Nothing is left to tell: the block ends without another verdict."
)
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(0), "no", A))
    v.apply(fail(slot(1), "nor this", B))


@failures.vector(
    "a failure behind its delta",
    "The tree was acked in between, and the failure finds no block. So FAIL comes with its "
    "delta, or before it.",
)
def _(v: Vector) -> None:
    _tracked(v, A)
    v.apply(ack(slot(0), A))
    v.apply(fail(slot(0), "too late"))


@failures.vector(
    "a slot fails that is zero",
    "Its block is open, so it was not told yet: it is nacked, not acked.",
)
def _(v: Vector) -> None:
    _tracked(v, A, 0, B)
    v.apply(ack(slot(0), A))
    v.apply(fail(slot(0), "found out later"), fail(slot(1), "a hole"))
    v.apply(ack(slot(2), B))


@failures.vector("track and fail in one batch", "The block begins with a tree that has failed.")
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), fail(slot(0, 7), "unreadable", A), fail(slot(1, 7), "bad"), task="t")
    v.apply(ack(slot(1, 7), B))


@failures.vector(
    "failures of nobody",
    "Somebody has put back what had failed in an earlier life of the block: when it begins anew, "
    "none of its trees has failed.",
)
def _(v: Vector) -> None:
    v.redis("HSET", f"acker:{{vector:0}}:failed:{BLOCK:013x}", "0", "long ago")
    _tracked(v, A, B)
    v.apply(fail(slot(0), "now", A))
    v.apply(ack(slot(1), B))
    v.redis("HSET", f"acker:{{vector:0}}:failed:{BLOCK:013x}", "0", "long ago")
    v.apply(track_block(BLOCK, LABEL, A, B), fail(slot(0), "at once"), task="t")


@failures.vector("touch", "The clock of the whole block is set back; its source is told, once.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.tick()
    v.apply(touch(slot(1)), touch(slot(0)))
    v.apply(touch(slot(0)), ack(slot(0), A))


@failures.vector("touch of a block that ends", "Nobody needs more time: only the ack is told.")
def _(v: Vector) -> None:
    _tracked(v, A)
    v.apply(touch(slot(0)), ack(slot(0), A))


@failures.vector("touch of nothing", "No block, no verdict, and nothing is counted.")
def _(v: Vector) -> None:
    v.apply(touch(slot(0)))


@failures.vector("touch of a slot that is not there", "The block is touched all the same.")
def _(v: Vector) -> None:
    _tracked(v, A)
    v.apply(touch(slot(9)))


@failures.vector("touch with a track", "The block begins, and its source is told of the touch.")
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
    "The batch that tracked, again: by its fence it is not a new life of the block.",
)
def _(v: Vector) -> None:
    v.apply(_block(7, A), task="t", producer="p", seq=1)
    v.apply(ack(slot(0, 7), A), producer="q", seq=1)
    v.apply(_block(7, A), task="t", producer="p", seq=1)


@fences.vector(
    "no fence", "A delta that comes twice cancels itself; a track that comes twice is ignored."
)
def _(v: Vector) -> None:
    for _n in range(2):
        v.apply(_block(7, A, B), task="t")
    for _n in range(2):
        v.apply(ack(slot(0, 7), A))


@fences.vector(
    "the same track again",
    "Under another number, as a source does that runs again: what was done in between stands, its "
    "deltas are not new. A failure and a touch that come with it count, each failure once.",
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
    "Other deltas, another size, label or task: the call is refused whole, and so is what it "
    "says of other blocks.",
)
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), _block(8, A), task="t")
    v.apply(_block(7, A, C), task="t")
    v.apply(_block(7, A), task="t")
    v.apply(_block(7, A, B, 0), task="t")
    v.apply(track_block(7, "another", A, B), task="t")
    v.apply(_block(7, A, B), task="u")
    v.apply(ack(slot(0, 8), A), _block(7, B, A), _block(9, A), task="t")


@fences.vector("CONFLICT: the content is what is sent", "Rows that are folded in make another.")
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
    "A number that apply has used is used for apply_blocks too, and the other way round.",
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
    "The lane is at the number of the second call, above that of the first: a client stops "
    "there, and does not send the second. (It would not have sent the first, had it been told.)",
)
def _(v: Vector) -> None:
    for _n in range(2):
        v.apply(track(7, "s7", A), _block(7, B), task="t", producer="p", seq=1, digest="aa")


@fences.vector(
    "the second part was refused",
    "BACKLOG of the blocks. The loose rows were applied: when the batch comes again they are a "
    "repeat, and the blocks are applied.",
    outcomes_limit=1,
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), task="t")
    for _n in range(2):
        v.apply(ack(7, A), _block(7, B), task="t", producer="p", seq=1, digest="aa")
        v.take("t")


@fences.vector("a fence moves with its lane", "It stands in the newest bucket only.")
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), task="t", producer="p", seq=1)
    v.tick()
    v.apply(ack(slot(0, 7), A), producer="p", seq=2)
    v.tick()
    v.apply(ack(slot(0, 7), A), producer="p", seq=2)


@fences.vector(
    "a fence holds for N - 1 ticks",
    "Of three buckets: after two ticks it is a repeat, after three it is forgotten: the block has "
    "expired, and begins anew.",
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
    "Twice the mark is six: a block of four fits, then one of two, and no third. A rejected "
    "block is row 1 of its call, counted in trees, and leaves nothing.",
    high_water=3,
)
def _(v: Vector) -> None:
    _tracked(v, A, B, C, D, block=1)
    v.apply(_block(2, A, B), _block(3, C), task="t")
    v.apply(ack(slot(0, 3), C))


@admission.vector(
    "a block above twice the mark", "It never fits, however little is pending.", high_water=1
)
def _(v: Vector) -> None:
    v.apply(_block(1, A, B, C), task="t")


@admission.vector(
    "the high-water mark is shared",
    "Five trees over four shards: a share of two each, rounded up. In shard 1 a block of four "
    "fits, and then none; in shard 2 one does.",
    shards=4,
    high_water=5,
)
def _(v: Vector) -> None:
    v.apply(_block(1, A, B, C, D), task="t")
    v.apply(_block(5, A), _block(2, A), _block(9, A), task="t")


@admission.vector(
    "what ends makes room for the next call",
    "Not for this one, unlike loose rows: 1 is done, and 2 is rejected; then it fits.",
    high_water=1,
)
def _(v: Vector) -> None:
    _tracked(v, A, B, block=1)
    v.apply(_block(2, C), ack(slot(0, 1), A), ack(slot(1, 1), B), task="t")
    v.apply(_block(2, C), task="t")


@admission.vector(
    "slots count until their block ends",
    "Zero or failed, they are pending: a loose tree finds no room, and then a row without one.",
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
    "a batch of both at the mark", "Loose rows go first, and take the room.", high_water=1
)
def _(v: Vector) -> None:
    v.apply(_block(1, A), _block(2, B), track(7, "s7", A), ack(7, A, C), task="t")


@admission.vector(
    "what expires does not count", "Blocks in the drain are not pending.", high_water=1
)
def _(v: Vector) -> None:
    _tracked(v, A, B, block=1)
    for _n in range(3):
        v.rotate()
    v.apply(_block(2, A, B), task="t")


@admission.vector(
    "an overflow of a block that would end", "It is rejected nevertheless.", high_water=1
)
def _(v: Vector) -> None:
    _tracked(v, A, B, block=1)
    v.apply(_block(2, 0), task="t")


@admission.vector(
    "BACKLOG",
    "A block's verdict counts for all its trees: two, and the limit is two. A call that tracks "
    "a new block for the task is refused whole; one that tracks the same again is not.",
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
    "The block is moved all the same. One that has room tells all its trees.",
    outcomes_limit=2,
)
def _(v: Vector) -> None:
    v.apply(_block(1, A, B, C), task="t")
    v.tick()
    v.apply(touch(slot(0, 1)))
    v.tick()
    v.apply(touch(slot(0, 1)))


@admission.vector(
    "take", "Entries of blocks and of loose trees: entries and single verdicts count."
)
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), _block(1, A, B, C), task="t")
    v.apply(ack(7, A), fail(slot(1, 1), "no", B), ack(slot(0, 1), A), ack(slot(2, 1), C))
    v.take("t")


@expiry.vector(
    "mixed",
    "Slots 0 and 4 are done, 2 is a hole, 3 has failed; 1 and 5 are not, nor 6, which is "
    "open again. One entry tells them apart.",
)
def _(v: Vector) -> None:
    _tracked(v, A, B, 0, C, D, A, B)
    v.apply(
        ack(slot(0), A), ack(slot(4), D), fail(slot(3), "no"), ack(slot(6), B), ack(slot(1), B, D)
    )
    v.apply(ack(slot(6), C))
    v.tick(3)


@expiry.vector("all expired", "Nobody was heard of.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.tick(3)


@expiry.vector("all have failed", "The failed are told already: an open block ends in silence.")
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


@expiry.vector("rows do not restart the clock", "refresh=never: it runs from the track.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.tick(2)
    v.apply(ack(slot(0), A))
    v.tick()


@expiry.vector("refresh=update", "Every row moves its whole block.", refresh="update")
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
    "Like every row, it moves the block; and nothing else.",
    refresh="update",
)
def _(v: Vector) -> None:
    _tracked(v, A)
    v.tick(2)
    _tracked(v, A)
    v.tick()


@expiry.vector("touch", "The whole block moves to the newest bucket; the other expires.")
def _(v: Vector) -> None:
    v.apply(_block(1, A, B), _block(2, A, B), task="t")
    v.tick(2)
    v.apply(touch(slot(1, 1)))
    v.tick()


@expiry.vector(
    "loose trees and blocks", "One tick, two drains. Nothing ticks before both are done."
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


@expiry.vector("blocks before loose trees", "The drains may come in any order.")
def _(v: Vector) -> None:
    v.apply(track(7, "s7", A), _block(1, A, B), task="t")
    v.tick(2)
    v.rotate()
    v.expire_blocks()
    v.expire()


@expiry.vector("being drained", "A block between rotate and expire_blocks: in no bucket, not told.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(1), "no", B))
    v.tick(2)
    v.rotate()


@expiry.vector("rows while the block expires", "They are dropped: lookups skip what is drained.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.tick(2)
    v.rotate()
    v.apply(ack(slot(0), A), fail(slot(1), "no"))
    v.expire_blocks()


@expiry.vector(
    "tracked while its last life expires",
    "Nacked, reason conflict: its checksums are still needed. Another block in the call is not. "
    "After the drain it begins anew.",
)
def _(v: Vector) -> None:
    v.apply(_block(7, A, B), task="t")
    v.tick(2)
    v.rotate()
    v.apply(_block(6, A), _block(7, C), ack(slot(0, 7), C), task="t")
    v.apply(_block(7, A, B), fail(slot(0, 7), "no"), touch(slot(0, 7)), task="u")
    v.expire_blocks()
    v.apply(_block(7, A, B), task="t")


@expiry.vector("a block in each bucket", "Each tick takes the oldest only.")
def _(v: Vector) -> None:
    for number in (1, 2, 3, 4):
        v.apply(track_block(number, f"b{number}", *[A] * number), task="t")
        v.tick()
    v.status()


@expiry.vector("several blocks and tasks", "One drain tells each source its own.")
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


@expiry.vector("nothing to drain", "A call too many does nothing.")
def _(v: Vector) -> None:
    _tracked(v, A)
    v.expire_blocks()


for _name, _text in TEXTS.items():

    def _declare(name: str, text: str) -> None:
        @texts.vector(name, "As label and as why, told by apply_blocks and by expire_blocks.")
        def _(v: Vector) -> None:
            _tracked(v, A, B, C, label=text)
            v.apply(fail(slot(0), text, A), fail(slot(1), text))
            v.apply(ack(slot(1), B))
            v.tick(3)
            v.apply(track_block(OTHER, text, 0), task="t")

    _declare(_name, _text)
