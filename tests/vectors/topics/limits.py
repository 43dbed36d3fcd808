"""Vectors of the size of a batch."""

from tests.vectors.operations import touch
from tests.vectors.record import Topic, Vector

limits = Topic(
    "limits", "The maximum of rows in a batch. The rows touch unknown trees: they only count."
)
TOPICS = [limits]


@limits.vector("1024 rows", "The maximum of a batch.")
def _(v: Vector) -> None:
    v.apply(*(touch(anchor) for anchor in range(1, 1025)))


@limits.vector("1025 rows", "One too many: the client refuses the batch, and so does the script.")
def _(v: Vector) -> None:
    rows = range(1, 1026)
    v.refused(*(touch(anchor) for anchor in rows))
    anchors = b"".join(anchor.to_bytes(8, "big") for anchor in rows)
    v.raw("apply", "", "", b"\4" * 1025, anchors, bytes(8 * 1025), "", error="ARGS")


@limits.vector("1025 rows of one anchor", "They fold into one.")
def _(v: Vector) -> None:
    v.apply(*[touch(7)] * 1025)
