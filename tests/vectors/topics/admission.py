"""Vectors of admission (high-water mark, backlog) and of ``take``."""

from tests.vectors.operations import Json, ack, fail, touch, track, track_block
from tests.vectors.record import Topic, Vector

admission = Topic("admission", "Back-pressure: what the high-water mark and the backlog refuse.")
take = Topic("take", "A source takes the verdicts it has handled.")
TOPICS = [admission, take]
A, B = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B


def _trees(*anchors: int) -> list[Json]:
    return [track(anchor, f"s{anchor}", A) for anchor in anchors]


@admission.vector(
    "at the mark rows without a tree are dropped",
    "Four records and a mark of four: a row, a failure and a touch of unknown trees are dropped.",
    high_water=4,
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2, 3), task="t")
    v.apply(ack(100, A))
    v.apply(ack(101, A))
    v.apply(fail(102, "dropped too"))
    v.apply(touch(103))


@admission.vector(
    "at twice the mark trees are nacked",
    "The fifth tree of a mark of two is rejected: row 0 of its batch, reason overflow.",
    high_water=2,
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2, 3, 4), task="t")
    v.apply(track(5, "one too many", A), task="t")


@admission.vector(
    "one batch crosses the mark",
    "Rows are admitted one by one. The reply has the numbers of the rejected rows, from 0, two "
    "bytes each, big-endian: here 2 and 5. Row 3 ends a tree, so row 4 is admitted.",
    high_water=2,
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    v.apply(*_trees(3, 4, 5), ack(1, A), *_trees(6, 7), task="t")


@admission.vector(
    "row numbers have two bytes",
    "256 touches of unknown trees, then three trees: the last, row 258, is rejected.",
    high_water=1,
)
def _(v: Vector) -> None:
    v.apply(*(touch(anchor) for anchor in range(1001, 1257)), *_trees(1, 2, 3), task="t")


@admission.vector("a tree that ends makes room", "For later rows of the same batch.", high_water=1)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    v.apply(ack(1, A), *_trees(3, 4), task="t")


@admission.vector(
    "rows of known trees are always applied", "Otherwise no tree could end.", high_water=1
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    v.apply(ack(1, A, B))
    v.apply(ack(1, B), fail(2, "bad"))


@admission.vector(
    "over the mark, a track of a record that waits",
    "It creates no record: an earlier row of its tree did.",
    high_water=1,
)
def _(v: Vector) -> None:
    v.apply(ack(9, A, B))
    v.apply(*_trees(1), task="t")
    v.apply(*_trees(9), task="t")


@admission.vector(
    "over the mark, a tree that ends at once",
    "It needs no record, so it is not refused: complete, or failed.",
    high_water=1,
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    v.apply(track(8, "empty"), track(9, "failed", A), fail(9, "no"), task="t")


@admission.vector(
    "expiring trees do not count", "Trees in the drain are not pending.", high_water=1
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    for _n in range(3):
        v.rotate()
    v.apply(*_trees(3, 4), task="t")


@admission.vector(
    "BACKLOG",
    "The backlog is full: a batch that tracks for this task is refused whole. A batch without a "
    "TRACK, or of another task, is applied, and its verdicts are written.",
    outcomes_limit=2,
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2, 3), task="t")
    v.apply(ack(1, A), ack(2, A))
    v.apply(*_trees(4), task="t")
    v.apply(ack(3, A, B), track(4, "s4", A), task="t")
    v.apply(ack(3, A))
    v.apply(*_trees(5), task="u")
    v.take("t")
    v.apply(*_trees(4), task="t")


@admission.vector(
    "a touch is dropped when the backlog is full",
    "The record is put into the newest bucket all the same. A source has its own clock.",
    outcomes_limit=1,
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    v.tick()
    v.apply(touch(1))
    v.apply(touch(2))


@admission.vector(
    "the backlog is checked when the call begins",
    "One batch may write more verdicts than the limit allows: no verdict is lost.",
    outcomes_limit=1,
)
def _(v: Vector) -> None:
    v.apply(track(1, "s1"), track(2, "s2"), track(3, "s3"), task="t")


@admission.vector(
    "closed: the namespace is resharding",
    "To four shards. Until that ends, a batch that tracks is refused whole with BACKLOG, and a row "
    "that would create a record without a tree is dropped. Existing trees end as usual.",
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    v.apply(ack(9, A))
    v.reshard("1:4")
    v.apply(ack(1, A, B), track(3, "s3", A), task="t")
    v.apply(track(4, "at once"), task="t")
    v.apply(ack(1, A), ack(9, B), ack(10, A), fail(11, "dropped too"))
    v.apply(fail(2, "no", A))
    v.reshard("1:4:cancel")
    v.reshard("")
    v.apply(*_trees(3), task="t")


@admission.vector(
    "closed: a TRACK that was applied before is a repeat",
    "The fence is checked first: a client that lost the reply must not read BACKLOG as its result. "
    "A refused batch has not used up its number.",
)
def _(v: Vector) -> None:
    v.apply(*_trees(1), task="t", producer="p", seq=1, digest="aa")
    v.reshard("1:2")
    v.apply(*_trees(1), task="t", producer="p", seq=1, digest="aa")
    v.apply(*_trees(2), task="t", producer="p", seq=2, digest="bb")
    v.reshard("1:2:cancel")
    v.reshard("")
    v.apply(*_trees(2), task="t", producer="p", seq=2, digest="bb")


@admission.vector(
    "closed: blocks",
    "No new block is tracked; an existing one is tracked again, failed and completed as usual.",
)
def _(v: Vector) -> None:
    v.apply(track_block(7, "b7", A, B), task="t")
    v.reshard("1:2")
    v.apply(track_block(8, "b8", A), ack(1 << 62 | 7 << 12, A), task="t")
    v.apply(track_block(7, "b7", A, B), task="t")
    v.apply(ack(1 << 62 | 7 << 12, A), fail(1 << 62 | 7 << 12 | 1, "no", B))


@take.vector("take", "One call takes all. Reply: entries, their verdicts, verdicts left, ids seen.")
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2, 3, 4), task="t")
    v.apply(ack(1, A), ack(2, A))
    v.apply(ack(3, A), fail(4, "no"))
    v.take("t")


@take.vector("nothing to take", "No verdict waits: nothing is sent.")
def _(v: Vector) -> None:
    v.apply(*_trees(1), task="t")
    v.take("t")


@take.vector("each task takes its own", "Verdicts of another task keep waiting.")
def _(v: Vector) -> None:
    v.apply(track(1, "s1"), task="t")
    v.apply(track(2, "s2"), task="u")
    v.take("t")


@take.vector(
    "take, shard by shard", "Shard 1 has no verdict for the task, so no call goes to it.", shards=4
)
def _(v: Vector) -> None:
    v.apply(track(4, "s4"), track(5, "s5", A), track(6, "s6"), track(7, "s7"), task="t")
    v.take("t")


@take.vector("ids of missing entries", "They are skipped, and counted as processed.")
def _(v: Vector) -> None:
    v.apply(track(1, "s1"), task="t")
    v.raw("take", "t", "1-0", "2-0", reply=[0, 0, 1, 2])
    v.raw("take", "unknown", "1-0", reply=[0, 0, 0, 1])
