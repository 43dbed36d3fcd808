"""Vectors of blocks: trees that are tracked together, and end together."""

from acker_redis.protocol.blocks import pack_deltas
from acker_redis.protocol.ids import BLOCK_MAX, SLOTS, block_anchor
from tests.vectors.operations import ack, fail, touch, track, track_block
from tests.vectors.record import Topic, Vector

blocks = Topic(
    "blocks", "Blocks: trees that are tracked together, from their first row to the end."
)
packing = Topic(
    "blocks_packing",
    "Packing in the client: rows of slots become columns of blocks, blocks become calls, and loose "
    "rows are sent before them.",
)
TOPICS = [blocks, packing]
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1
D, E, F = 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179, 0x428A2F98D728AE22
BLOCK, OTHER = 0x1F2E3D4C5B6A7, 0x0A1B2C3D4E5F6
LOOSE = 0x1F2E3D4C5B6A7988
LABEL = "topic/3/1000"


def slot(number: int, block: int = BLOCK) -> int:
    """Return the anchor of a tree in a block."""
    return block_anchor(block, number)


def _tracked(v: Vector, *deltas: int, block: int = BLOCK) -> None:
    v.apply(track_block(block, LABEL, *deltas), task="t")


@blocks.vector(
    "a block of four",
    "Tracked, and done slot by slot in two batches. Completed trees wait for the rest: one verdict "
    "when all are zero.",
)
def _(v: Vector) -> None:
    _tracked(v, A, B, C, D)
    v.apply(ack(slot(1), B), ack(slot(3), D))
    v.apply(ack(slot(0), A), ack(slot(2), C))


@blocks.vector("a block of one", "The minimum. It ends like any other.")
def _(v: Vector) -> None:
    _tracked(v, A)
    v.apply(ack(slot(0), A))


@blocks.vector("a block that is still open", "Its checksums hold the open messages.")
def _(v: Vector) -> None:
    _tracked(v, A, B, C)
    v.apply(ack(slot(0), A), ack(slot(2), C, D, E))


@blocks.vector("chains in slots", "Each slot is a separate tree: a chain, and a fan-out.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(ack(slot(0), A, C))
    v.apply(ack(slot(1), B, D, E), ack(slot(0), C))
    v.apply(ack(slot(1), E))
    v.apply(ack(slot(1), D))


@blocks.vector(
    "diamond inside a slot",
    "The diamond of diamonds.json in slot 1: 1^2 tracked, then 1^3, 2^4, 3^5, 4^6, 5, 6. Slot 0 "
    "waits for A until the end. The ids are small because the literature's are.",
)
def _(v: Vector) -> None:
    _tracked(v, A, 1 ^ 2)
    for row in ((1, 3), (2, 4), (3, 5), (4, 6), (5,), (6,)):
        v.apply(ack(slot(1), *row))
    v.apply(ack(slot(0), A))


@blocks.vector(
    "a join of two slots",
    "A message of two trees of one block: it has an id and a row in each tree, and both rows are "
    "in one column.",
)
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(ack(slot(0), A, C), ack(slot(1), B, D))
    v.apply(ack(slot(0), C), ack(slot(1), D))


@blocks.vector(
    "a message in a loose tree and two slots",
    "Its rows are sent in two calls, in any order.",
)
def _(v: Vector) -> None:
    v.apply(track(LOOSE, "s1", A), track_block(BLOCK, LABEL, B, C), task="t")
    v.apply(ack(slot(1), C, D), ack(LOOSE, A, E), ack(slot(0), B, F))
    v.apply(ack(slot(1), D), ack(LOOSE, E), ack(slot(0), F))


@blocks.vector(
    "holes",
    "A slot without a tree is tracked with 0. It is zero from the start, and is acked with the "
    "others.",
)
def _(v: Vector) -> None:
    _tracked(v, A, 0, 0, B, 0)
    v.apply(ack(slot(3), B), ack(slot(0), A))


@blocks.vector("complete at once", "A block of holes only ends in the call that tracks it.")
def _(v: Vector) -> None:
    _tracked(v, 0, 0, 0)


@blocks.vector("a slot that is zero, then open again", "An extra row opens a slot again.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(ack(slot(0), A))
    v.apply(ack(slot(0), C))
    v.apply(ack(slot(1), B))
    v.apply(ack(slot(0), C))


@blocks.vector(
    "rows before the track",
    "Unlike those of a loose tree, they are dropped and counted as orphaned: two rows and a "
    "failure with its delta are four. So the block stays open.",
)
def _(v: Vector) -> None:
    v.apply(ack(slot(0), A), ack(slot(1), B, C))
    v.apply(fail(slot(0), "early", D), touch(slot(1)))
    _tracked(v, A, B)
    v.apply(ack(slot(1), B))


@blocks.vector("rows after the end", "The block was deleted: they are dropped as before its track.")
def _(v: Vector) -> None:
    _tracked(v, A)
    v.apply(ack(slot(0), A))
    v.apply(ack(slot(0), A), fail(slot(0), "late"))


@blocks.vector(
    "slots that the block does not have",
    "Slots 2 and 4094 of a block of two: dropped and counted, a failure too; slot 1 in the same "
    "column is applied.",
)
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(ack(slot(1), B), ack(slot(2), C), ack(slot(SLOTS - 1), D), fail(slot(3), "no such"))
    v.apply(ack(slot(0), A))


@blocks.vector("a number is reused", "After a block has ended, its number may be tracked again.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(fail(slot(0), "bad", A), ack(slot(1), B))
    _tracked(v, C)
    v.apply(ack(slot(0), C))


@blocks.vector("two blocks", "Tracked in one batch, by one call; each ends separately.")
def _(v: Vector) -> None:
    v.apply(track_block(BLOCK, "first", A, B), track_block(OTHER, "second", C), task="t")
    v.apply(ack(slot(0, OTHER), C), ack(slot(0), A))
    v.apply(ack(slot(1), B))


@blocks.vector(
    "verdicts of one call",
    "Four blocks of two tasks: one ends, one fails partially, one ends and fails, one is touched. "
    "One entry for each, in the order of the blocks.",
)
def _(v: Vector) -> None:
    v.apply(track_block(1, "t1", A, B), track_block(2, "t2", A, B), task="t")
    v.apply(track_block(3, "u3", A, B), track_block(4, "u4", A, B), task="u")
    v.apply(
        touch(slot(0, 4)),
        fail(slot(0, 3), "last", A), ack(slot(1, 3), B),
        fail(slot(1, 2), "bad"),
        ack(slot(0, 1), A), ack(slot(1, 1), B),
    )  # fmt: skip


@blocks.vector(
    "the lowest and the highest number",
    "Blocks 0 and 2^50 - 1; neighbouring slots, and blocks that share a half, are distinct.",
)
def _(v: Vector) -> None:
    for number in (0, 1, 2**32, 2**32 + 1, BLOCK_MAX):
        v.apply(track_block(number, f"block {number}", A, B), task="t")
    v.apply(ack(slot(1, 0), B), ack(slot(0, BLOCK_MAX), A))
    v.apply(ack(slot(0, 2**32), A), ack(slot(0, 0), A))
    v.apply(ack(slot(1, BLOCK_MAX), B))


@blocks.vector(
    "ids with the highest bits",
    "2^62, 2^63 - 1, and ids that a double cannot hold; one bit is left in each slot at the end.",
)
def _(v: Vector) -> None:
    ids = (2**62, 2**63 - 1, 2**53 + 1, 2**32, 2**31, 1)
    _tracked(v, *ids)
    v.apply(*(ack(slot(n), id_, 2**62 if n != 0 else 1) for n, id_ in enumerate(ids)))
    v.apply(*(ack(slot(n), 2**62 if n != 0 else 1) for n in range(5)))
    v.apply(ack(slot(5), 2**62))


@blocks.vector(
    "dense columns",
    "A block of twelve: a dense column names all slots, the next one the first three, and a sparse "
    "one the rest. A client may pack like this.",
)
def _(v: Vector) -> None:
    ids = [A ^ n for n in range(12)]
    _tracked(v, *ids)
    v.blocks(pack_deltas(BLOCK, {n: id_ ^ (C + n) for n, id_ in enumerate(ids)}, dense=True))
    v.blocks(pack_deltas(BLOCK, {n: C + n for n in range(3)}, dense=True))
    v.blocks(pack_deltas(BLOCK, {n: C + n for n in range(3, 12)}, dense=False))


@blocks.vector(
    "dense and sparse mean the same",
    "Two blocks: the same deltas for slots 0 and 2, once dense with a zero between, once sparse.",
)
def _(v: Vector) -> None:
    v.apply(track_block(1, "dense", A, B, C), track_block(2, "sparse", A, B, C), task="t")
    v.blocks(
        pack_deltas(1, {0: A, 2: D}, dense=True),
        pack_deltas(2, {0: A, 2: D}, dense=False),
    )


@blocks.vector("slots that are far apart", "Of forty slots: 0, 1, 4 and the last.")
def _(v: Vector) -> None:
    ids = [A ^ n for n in range(40)]
    _tracked(v, *ids)
    v.apply(*(ack(slot(n), ids[n], B) for n in (39, 4, 0, 1)))
    v.apply(*(ack(slot(n), B) for n in (39, 4)))


@blocks.vector(
    "a dense column that is too long",
    "Five slots for a block of two: each of the other three counts as orphaned, zero or not. For a "
    "block that does not exist, all five count.",
)
def _(v: Vector) -> None:
    _tracked(v, A, B)
    column = {0: A, 2: C, 4: D}
    v.blocks(pack_deltas(BLOCK, column, dense=True), pack_deltas(OTHER, column, dense=True))


@blocks.vector(
    "explicit zeros", "A sparse delta of 0 changes nothing; without a block it is orphaned."
)
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.blocks(pack_deltas(BLOCK, {0: 0, 1: 0}, dense=False))
    v.blocks(pack_deltas(OTHER, {0: 0}, dense=False))


@packing.vector(
    "rows of one slot become one",
    "As for a loose tree: deltas XORed, flags ORed, the first why that is not empty.",
)
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(
        ack(slot(0), A, C), fail(slot(1), ""), ack(slot(0), C, D),
        fail(slot(1), "second", B, E), fail(slot(1), "third"),
    )  # fmt: skip


@packing.vector("slots ascend", "In a column and in the failures, for any order of the rows.")
def _(v: Vector) -> None:
    _tracked(v, A, B, C, D, E)
    v.apply(
        ack(slot(4), E), fail(slot(2), "two", C), ack(slot(3), D), fail(slot(0), "zero"),
        ack(slot(1), B),
    )  # fmt: skip


@packing.vector(
    "rows that cancel",
    "A slot whose delta is zero is left out. The block is sent all the same, without a column. "
    "Here the first such call is a no-op.",
)
def _(v: Vector) -> None:
    v.apply(ack(slot(0), A, B), ack(slot(0), B, A))
    _tracked(v, A, B)
    v.apply(ack(slot(0), A, B), ack(slot(1), B, C), ack(slot(0), B, A))


@packing.vector(
    "rows of a block that is tracked in the same batch",
    "They are folded into the column of the TRACK, before or after it. The result is its content.",
)
def _(v: Vector) -> None:
    rows = [ack(slot(0), A, D), track_block(BLOCK, LABEL, A, B, C), ack(slot(2), C)]
    v.apply(*rows, fail(slot(1), "no", B, E), touch(slot(0)), task="t")
    v.apply(ack(slot(0), D), ack(slot(1), E))


@packing.vector(
    "a whole block in one batch", "Track and rows fold to zeros: complete in the call that tracks."
)
def _(v: Vector) -> None:
    v.apply(track_block(BLOCK, LABEL, A, B), ack(slot(1), B), ack(slot(0), A), task="t")


@packing.vector(
    "order of blocks",
    "In a call, tracked blocks come first, in the order of their tracks. The others follow in the "
    "order in which they first appear: 7, 5, 9, 8.",
)
def _(v: Vector) -> None:
    v.apply(track_block(8, "eight", A), track_block(9, "nine", A, B), task="t")
    v.apply(
        ack(slot(0, 9), A), track_block(7, "seven", C), ack(slot(0, 8), A),
        track_block(5, "five", D), ack(slot(1, 9), B),
        task="t",
    )  # fmt: skip


@packing.vector(
    "loose rows and blocks",
    "Two calls: apply, then apply_blocks. The fence of the second has the next number.",
)
def _(v: Vector) -> None:
    v.apply(
        track_block(BLOCK, LABEL, A, B), track(7, "s7", C),
        task="t", producer="p", seq=1, digest="aa",
    )  # fmt: skip
    v.apply(ack(slot(0), A), ack(7, C), ack(slot(1), B), producer="p", seq=3, digest="bb")


@packing.vector(
    "several shards",
    "The shard of a block is block % shards, for all its slots. First the loose rows, shard by "
    "shard as they first appear (3, 0), then the blocks (1, 3): numbers 11 to 14.",
    shards=4,
)
def _(v: Vector) -> None:
    v.apply(
        track_block(5, "five", A, B), track(11, "s11", A), track_block(3, "three", C),
        track(8, "s8", B), track_block(9, "nine", D),
        task="t", producer="p", seq=11, digest="aa",
    )  # fmt: skip
    v.apply(
        ack(slot(0, 3), C), ack(11, A), ack(slot(1, 9), D), ack(slot(1, 5), B),
        producer="p", seq=15,
    )  # fmt: skip
    v.apply(ack(slot(0, 5), A), ack(slot(0, 9), D), ack(8, B), producer="p", seq=18)


@packing.vector(
    "shards of the highest blocks",
    "Only the low bits of the block number count, none of the slot: 2^50 - 1 is in shard 3 of 4.",
    shards=4,
)
def _(v: Vector) -> None:
    for number in (BLOCK_MAX, 2**49, 2**32 + 2):
        v.apply(track_block(number, f"block {number}", A, B), task="t")
        v.apply(ack(slot(1, number), B))


@packing.vector("64 blocks", "The maximum of one call.")
def _(v: Vector) -> None:
    v.apply(*(track_block(n, f"b{n}", A) for n in range(64)), task="t")
    v.apply(*(ack(slot(0, n), A) for n in range(64)))


@packing.vector(
    "65 blocks",
    "Two calls, of 64 and of one, with consecutive numbers. None of the blocks exists here.",
)
def _(v: Vector) -> None:
    v.apply(*(ack(slot(0, n), A) for n in range(65)), producer="p", seq=1, digest="aa")


@packing.vector("only a touch", "A block may be sent with nothing but a flag.")
def _(v: Vector) -> None:
    _tracked(v, A, B)
    v.apply(touch(slot(0)), touch(slot(1)))
