"""The high-water mark, the backlog, and taking."""

from tests.vectors.operations import Json, ack, fail, touch, track, track_block
from tests.vectors.record import Topic, Vector

admission = Topic("admission", "The high-water mark and the backlog: what is refused, what never.")
take = Topic("take", "A source takes the verdicts it has handled.")
TOPICS = [admission, take]
A, B = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B


def _trees(*anchors: int) -> list[Json]:
    return [track(anchor, f"s{anchor}", A) for anchor in anchors]


@admission.vector(
    "at the mark rows without a tree are dropped",
    "Four records and a mark of four: a row, a failure and a touch of unknown trees leave nothing.",
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
    "bytes each, big-endian: here 2 and 5. Row 3 ends a tree, so that row 4 finds room.",
    high_water=2,
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    v.apply(*_trees(3, 4, 5), ack(1, A), *_trees(6, 7), task="t")


@admission.vector(
    "row numbers have two bytes",
    "256 touches of nothing, then three trees: the last, row 258, is rejected.",
    high_water=1,
)
def _(v: Vector) -> None:
    v.apply(*(touch(anchor) for anchor in range(1001, 1257)), *_trees(1, 2, 3), task="t")


@admission.vector(
    "a tree that ends makes room", "In the same batch, for the rows behind it.", high_water=1
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    v.apply(ack(1, A), *_trees(3, 4), task="t")


@admission.vector("known trees are always served", "Or nothing would ever end.", high_water=1)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    v.apply(ack(1, A, B))
    v.apply(ack(1, B), fail(2, "bad"))


@admission.vector(
    "over the mark, a track of a record that waits",
    "It creates nothing: a row of its tree came first.",
    high_water=1,
)
def _(v: Vector) -> None:
    v.apply(ack(9, A, B))
    v.apply(*_trees(1), task="t")
    v.apply(*_trees(9), task="t")


@admission.vector(
    "over the mark, a tree that ends at once",
    "It leaves no record, so it is not refused: complete, or failed.",
    high_water=1,
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    v.apply(track(8, "empty"), track(9, "failed", A), fail(9, "no"), task="t")


@admission.vector(
    "what expires does not count", "Trees in the drain are not pending.", high_water=1
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    for _n in range(3):
        v.rotate()
    v.apply(*_trees(3, 4), task="t")


@admission.vector(
    "BACKLOG",
    "As many verdicts wait as may: a batch that tracks for this task is refused whole. One that "
    "does not, and one of another task, is applied, and its verdicts are told all the same.",
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
    "A source has a clock of its own; the record is moved all the same.",
    outcomes_limit=1,
)
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2), task="t")
    v.tick()
    v.apply(touch(1))
    v.apply(touch(2))


@admission.vector(
    "the backlog is judged when the call begins",
    "One batch may bring more verdicts than there is room for: none of them is lost.",
    outcomes_limit=1,
)
def _(v: Vector) -> None:
    v.apply(track(1, "s1"), track(2, "s2"), track(3, "s3"), task="t")


@admission.vector(
    "closed: the namespace moves",
    "To four shards. Until then a batch that tracks is refused whole with BACKLOG, and a row that "
    "would create a record without a tree is dropped. Trees that are there end as ever.",
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
    "The fence comes first: whoever is in doubt must not take the closing for an answer. What was "
    "refused has not used its number up.",
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
    "No block begins; one that is there is tracked again, failed and completed as ever.",
)
def _(v: Vector) -> None:
    v.apply(track_block(7, "b7", A, B), task="t")
    v.reshard("1:2")
    v.apply(track_block(8, "b8", A), ack(1 << 62 | 7 << 12, A), task="t")
    v.apply(track_block(7, "b7", A, B), task="t")
    v.apply(ack(1 << 62 | 7 << 12, A), fail(1 << 62 | 7 << 12 | 1, "no", B))


@take.vector("take", "One call for what waits: entries, verdicts in them, verdicts left, ids seen.")
def _(v: Vector) -> None:
    v.apply(*_trees(1, 2, 3, 4), task="t")
    v.apply(ack(1, A), ack(2, A))
    v.apply(ack(3, A), fail(4, "no"))
    v.take("t")


@take.vector("nothing to take", "No verdict waits: nothing is sent.")
def _(v: Vector) -> None:
    v.apply(*_trees(1), task="t")
    v.take("t")


@take.vector("each task takes its own", "What waits for another task goes on waiting.")
def _(v: Vector) -> None:
    v.apply(track(1, "s1"), task="t")
    v.apply(track(2, "s2"), task="u")
    v.take("t")


@take.vector(
    "take, shard by shard", "Shard 1 has nothing for the task, and is not asked.", shards=4
)
def _(v: Vector) -> None:
    v.apply(track(4, "s4"), track(5, "s5", A), track(6, "s6"), track(7, "s7"), task="t")
    v.take("t")


@take.vector("ids that are gone", "They are passed over, and looked at.")
def _(v: Vector) -> None:
    v.apply(track(1, "s1"), task="t")
    v.raw("take", "t", "1-0", "2-0", reply=[0, 0, 1, 2])
    v.raw("take", "nobody", "1-0", reply=[0, 0, 0, 1])
