"""Source ids of trees in blocks: one rule for all writers and readers."""

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import block_anchor, block_number
from acker_redis.protocol.labels import CountedLabel, is_counted, source_id_of


@pytest.mark.parametrize("label", ["page@5", "orders/3@1000", "p@0~2", "page 1", "a@b"])
def test_user_label_is_never_taken_for_a_counted_label(label: str) -> None:
    """Otherwise the labels page@5 and page@6 would name the same record."""
    anchors = Batch("t").track_block(label, [1, 2, 3])
    assert [source_id_of("t", label, anchor) for anchor in anchors] == [
        f"{label}#{slot}" for slot in range(3)
    ]


def test_block_of_spark_names_consecutive_records() -> None:
    label = str(CountedLabel("orders/3", 1000, 2))
    number = block_number("t", "@spark/app/query", 7, label)
    assert source_id_of("t", label, block_anchor(number, 7)) == "orders/3/1007"


@pytest.mark.parametrize("label", ["page@5", "orders/3@1000~1", "@0"])
def test_counted_label_with_an_explicit_number_is_refused(label: str) -> None:
    with pytest.raises(InvalidBatchError, match="looks like one of Spark's"):
        Batch("t").track_block(label, [1], block=5)
    assert is_counted("t", label, 5)
    anchors = Batch("t").track_block(label, [1], block=block_number("t", label))
    assert source_id_of("t", label, anchors[0]) == f"{label}#0"


def test_a_loose_tree_has_no_label() -> None:
    with pytest.raises(InvalidBatchError, match="loose"):
        source_id_of("t", "page 1", 7)
