"""Batches: folding per anchor, and invalid rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis.batching.batch import FAIL, MAX_ROWS, MAX_TEXTS, TOUCH, TRACK, Batch
from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.ids import (
    ANCHOR_MAX,
    TUPLE_MAX,
    format_tuple,
    new_anchor,
    new_tuple_id,
    parse_tuple,
)

ANCHORS = st.integers(1, ANCHOR_MAX)
TUPLES = st.integers(1, TUPLE_MAX)


def test_rows_of_one_anchor_fold() -> None:
    batch = Batch("t")
    batch.ack(7, 1, [2, 4])
    batch.ack(7, 8)
    batch.track(7, "s7", [16])
    batch.fail(7, "")
    batch.fail(7, "first")
    batch.fail(7, "second")
    batch.touch(7)
    (part,) = batch.columns().values()
    assert part.flags == bytes([TRACK | FAIL | TOUCH])
    assert int.from_bytes(part.anchors, "big") == 7
    assert int.from_bytes(part.deltas, "big") == 1 ^ 2 ^ 4 ^ 8 ^ 16
    assert part.texts == (b"s7", b"first")
    assert part.task == "t"


def test_a_batch_without_tracks_names_no_source() -> None:
    batch = Batch("t")
    batch.touch(1)
    assert batch.columns()[0].task == ""


@given(st.dictionaries(ANCHORS, TUPLES, min_size=1, max_size=50), st.sampled_from([1, 2, 8, 1024]))
def test_columns_hold_every_row_once_in_its_shard(rows: dict[int, int], shards: int) -> None:
    batch = Batch()
    for anchor, tuple_id in rows.items():
        batch.ack(anchor, tuple_id)
    found: dict[int, int] = {}
    for shard, part in batch.columns(shards).items():
        assert len(part.anchors) == len(part.deltas) == 8 * len(part)
        for i in range(len(part)):
            assert part.anchor(i) % shards == shard
            found[part.anchor(i)] = int.from_bytes(part.deltas[8 * i : 8 * i + 8], "big")
    assert found == rows


def test_a_full_batch_folds_but_takes_no_new_anchor() -> None:
    batch = Batch()
    for anchor in range(1, MAX_ROWS + 1):
        batch.touch(anchor)
    assert batch.full
    batch.ack(5, 9)
    with pytest.raises(InvalidBatchError, match="at most 1024 rows"):
        batch.touch(MAX_ROWS + 1)
    assert len(batch) == MAX_ROWS


def test_a_batch_is_full_when_another_text_may_not_fit() -> None:
    batch = Batch("t")
    for anchor in range(1, 257):
        assert not batch.full
        batch.track(anchor, f"{anchor:0255d}", [1])
    assert not batch.full
    batch.fail(1, "y" * 255)
    assert batch.full
    with pytest.raises(InvalidBatchError, match="65536 bytes"):
        batch.track(257, "xx", [1])
    batch.fail(1, "not the first why, so it needs no room")
    batch.track(257, "x", [1])
    (part,) = batch.columns().values()
    assert sum(map(len, part.texts)) == MAX_TEXTS


@pytest.mark.parametrize(
    "anchor", [0, -1, 2**62 | 4095, 2**63 - 1, 2**63, 2**64, 1.0, "1", None, True, [1]]
)
def test_bad_anchors(anchor: object) -> None:
    batch = Batch("t")
    for call in (
        lambda: batch.ack(anchor, 1),  # type: ignore[arg-type]
        lambda: batch.track(anchor, "s", [1]),  # type: ignore[arg-type]
        lambda: batch.fail(anchor),  # type: ignore[arg-type]
        lambda: batch.touch(anchor),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidBatchError, match=r"1 to 2\^62-1|has slots 0 to 4094"):
            call()
    assert len(batch) == 0


@pytest.mark.parametrize("tuple_id", [0, -1, 2**63, 0.5, None])
def test_bad_tuple_ids(tuple_id: object) -> None:
    batch = Batch("t")
    for call in (
        lambda: batch.ack(1, tuple_id),  # type: ignore[arg-type]
        lambda: batch.ack(1, 5, [tuple_id]),  # type: ignore[list-item]
        lambda: batch.track(1, "s", [tuple_id]),  # type: ignore[list-item]
    ):
        with pytest.raises(InvalidBatchError, match=r"1 to 2\^63-1"):
            call()
    assert len(batch) == 0


@pytest.mark.parametrize(
    "source_id", ["", "x" * 256, "é" * 128, "a\nb", "a\x00b", "a\x7fb", "\ud800", None, 5]
)
def test_bad_source_ids(source_id: object) -> None:
    batch = Batch("t")
    with pytest.raises(InvalidBatchError, match="source id"):
        batch.track(1, source_id, [1])  # type: ignore[arg-type]
    assert len(batch) == 0


@pytest.mark.parametrize("why", ["x" * 256, "two\nlines"])
def test_bad_whys(why: str) -> None:
    batch = Batch()
    with pytest.raises(InvalidBatchError, match="a why"):
        batch.fail(1, why)
    assert len(batch) == 0


def test_two_tracks_of_one_anchor_are_refused() -> None:
    batch = Batch("t")
    batch.track(1, "s", [5])
    with pytest.raises(InvalidBatchError, match="tracked twice"):
        batch.track(1, "s", [6])
    assert int.from_bytes(batch.columns()[0].deltas, "big") == 5


def test_track_without_a_source_is_refused() -> None:
    with pytest.raises(InvalidBatchError, match="needs a source"):
        Batch().track(1, "s", [5])


def test_cancelling_ids_are_refused() -> None:
    batch = Batch("t")
    with pytest.raises(InvalidBatchError, match="same tuple id"):
        batch.track(1, "s", [5, 5])
    with pytest.raises(InvalidBatchError, match="same tuple id"):
        batch.ack(1, 4, [5, 5])
    with pytest.raises(InvalidBatchError, match="have the same id"):
        batch.ack(1, 4, [4])
    assert len(batch) == 0


def test_drawn_ids_are_in_range_and_distinct() -> None:
    anchors = {new_anchor() for _ in range(1000)}
    tuples = {new_tuple_id() for _ in range(1000)}
    assert len(anchors) == len(tuples) == 1000
    assert all(1 <= a <= ANCHOR_MAX for a in anchors)
    assert all(1 <= t <= TUPLE_MAX for t in tuples)
    assert max(tuples) > ANCHOR_MAX, "bit 62 is random as well"


@given(ANCHORS, TUPLES)
def test_text_form(anchor: int, tuple_id: int) -> None:
    assert parse_tuple(format_tuple(anchor, tuple_id)) == (anchor, tuple_id)


@pytest.mark.parametrize(
    "text", ["", ":", "1", "1:", ":1", "0:1", "1:0", "1:2:3", "-1:2", "1 :2", "x:1", "٣:1",
             f"{2**62 | 4095}:1", f"1:{2**63}", "9" * 5000 + ":1"]
)  # fmt: skip
def test_bad_text_forms(text: str) -> None:
    with pytest.raises(InvalidBatchError):
        parse_tuple(text)
