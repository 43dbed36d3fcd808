"""Source ids of trees in blocks: one rule for all writers and readers."""

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import block_anchor
from acker_redis.protocol.labels import CountedLabel, namer, source_id_of


@pytest.mark.parametrize(
    "label", ["page 1", "a@b", "@", "page@05", "page@-1", "page@5~0", "page@5 ", "page@5~x", "5~2"]
)
def test_user_label_is_never_taken_for_a_counted_label(label: str) -> None:
    anchors = Batch("t").track_block(label, [1, 2, 3], block=5)
    assert [source_id_of(label, anchor) for anchor in anchors] == [
        f"{label}#{slot}" for slot in range(3)
    ]


def test_block_of_spark_names_consecutive_records() -> None:
    label = str(CountedLabel("orders/3", 1000, 2))
    assert source_id_of(label, block_anchor(5, 7)) == "orders/3/1007"
    assert namer(label)(7) == "orders/3/1007"


@pytest.mark.parametrize("label", ["page@5", "orders/3@1000~1", "p@0~2", "@0", "a\u0301@1@2"])
@pytest.mark.parametrize("block", [None, 5])
def test_label_of_spark_is_refused(label: str, block: int | None) -> None:
    """Otherwise the labels page@5 and page@6 would name the same record."""
    batch = Batch("t")
    with pytest.raises(InvalidBatchError, match="looks like one of Spark's"):
        batch.track_block(label, [1], block=block)
    assert batch.parts() == []


def test_a_loose_tree_has_no_label() -> None:
    with pytest.raises(InvalidBatchError, match="loose"):
        source_id_of("page 1", 7)
