"""Blocks with slots that hold no tree, before they are sent."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis.batching.batch import Batch
from acker_redis.errors import InvalidBatchError
from acker_redis.protocol.blocks import MAX_NAMED, BlockPart, Blocks, calls, pack_deltas, pack_track
from acker_redis.protocol.ids import SLOTS
from acker_redis.protocol.slots import has_slot, pack_slots, unpack_slots


def packed(batch: Batch) -> BlockPart:
    """Return the only block of a batch."""
    (part,) = batch.parts()
    assert isinstance(part.rows, Blocks)
    (block,) = part.rows.parts
    return block


@given(st.sets(st.integers(0, SLOTS - 1)), st.integers(0, 20))
def test_bitmap_holds_each_slot_once(slots: set[int], spare: int) -> None:
    """Bit 7 of byte 0 is slot 0, and the bits after the last slot are 0."""
    count = max(slots, default=0) + 1 + spare
    bitmap = pack_slots(slots, count)
    assert len(bitmap) == (count + 7) // 8
    assert unpack_slots(bitmap) == tuple(sorted(slots))
    assert {slot for slot in range(count) if has_slot(bitmap, slot)} == slots
    bits = "".join(f"{byte:08b}" for byte in bitmap)
    assert [at for at, bit in enumerate(bits) if bit == "1"] == sorted(slots)


@pytest.mark.parametrize(
    "present",
    [
        (0, 2),
        [2, 0, 2],
        iter([2, 0]),
        {0, 2},
        {0: "a", 2: "b"},
        np.array([0, 2]),
        np.uint16([0, 2]),
    ],
)
def test_present_is_any_collection_of_slots(present: object) -> None:
    batch = Batch("t")
    anchors = batch.track_block("page", [5, 0, 0], 7, present)  # type: ignore[arg-type]
    assert len(anchors) == 3
    assert packed(batch).present == pack_slots([0, 2], 3) == b"\xa0"


@pytest.mark.parametrize("present", [None, range(3), [2, 1, 0]])
def test_block_with_a_tree_in_each_slot_has_no_bitmap(present: object) -> None:
    """Otherwise the content of one block would have two digests."""
    batch = Batch("t")
    batch.track_block("page", [5, 0, 0], 7, present)  # type: ignore[arg-type]
    assert packed(batch).present == b""


@pytest.mark.parametrize(
    ("present", "words"),
    [
        ([], "one or more of 0 to 2"),
        ((), "one or more of 0 to 2"),
        ([0, 3], "one or more of 0 to 2"),
        ([-1, 0], "one or more of 0 to 2"),
        ([0, 2**70], "one or more of 0 to 2"),
        ([True, False, True], "sequence of slots"),
        (np.array([True, False, True]), "sequence of slots"),
        ([0, True], "sequence of slots"),
        ([0.0, 2.0], "sequence of slots"),
        ("02", "sequence of slots"),
        ([None], "sequence of slots"),
        (5, "sequence of slots"),
        ([0, 2], "slot 1 holds no tree, so its delta must be 0"),
        ([1, 2], "slot 0 holds no tree, so its delta must be 0"),
    ],
)
def test_invalid_present_is_refused(present: object, words: str) -> None:
    batch = Batch("t")
    with pytest.raises(InvalidBatchError, match=words):
        batch.track_block("page", [5, 6, 0], 7, present)  # type: ignore[arg-type]
    assert batch.parts() == []
    assert len(batch.track_block("page", [5, 6, 0], 7, [0, 1])) == 3


@pytest.mark.parametrize("change", ["ack", "fail", "touch"])
def test_rows_of_the_batch_leave_absent_slots_absent(change: str) -> None:
    """Otherwise slot 1 would be a tree without messages, and acked."""
    batch = Batch("t")
    anchors = batch.track_block("page", [5, 0, 6], 7, [0, 2])
    if change == "ack":
        batch.ack(anchors[0], 5)
    elif change == "fail":
        batch.fail(anchors[0], "no")
    else:
        batch.touch(anchors[2])
    assert packed(batch).present == pack_slots([0, 2], 3)


def test_row_of_an_absent_slot_is_refused() -> None:
    """The rows are refused at once, in any order; otherwise the batch could never be sent."""
    batch = Batch("t")
    absent = batch.track_block("page", [5, 0, 6], 7, [0, 2])[1]
    for row in (
        lambda: batch.ack(absent, 5),
        lambda: batch.fail(absent),
        lambda: batch.touch(absent),
    ):
        with pytest.raises(InvalidBatchError, match="block 7 was tracked without a tree in slot 1"):
            row()
    late = Batch("t")
    late.fail(absent, "no")
    with pytest.raises(InvalidBatchError, match="'page' was tracked without a tree in slot 1"):
        late.track_block("page", [5, 0, 6], 7, [0, 2])
    assert len(late.track_block("page", [5, 0, 6], 7)) == 3


def partial(block: int, absent: int) -> BlockPart:
    """Return a block whose last slot is its only tree."""
    slots = absent + 1
    return pack_track(block, "t", "l", [0] * absent + [5], present=[slots - 1])


def test_absent_slots_count_as_named_slots() -> None:
    half = MAX_NAMED // 2
    assert partial(1, half).costs() == (half, 1)
    fits = [partial(1, half), partial(2, half)]
    assert list(calls(fits)) == [Blocks(tuple(fits))]
    over = [partial(1, half), partial(2, half), partial(3, 1)]
    assert [len(call) for call in calls(over)] == [2, 1]


def test_absent_slots_failures_and_sparse_deltas_share_the_limit() -> None:
    third = MAX_NAMED // 3
    parts = [
        partial(1, third),
        pack_deltas(2, dict.fromkeys(range(third), 1), dense=False),
        pack_deltas(3, {}, dict.fromkeys(range(MAX_NAMED - 2 * third), "")),
    ]
    assert [len(call) for call in calls(parts)] == [3]
    assert [len(call) for call in calls([*parts, partial(4, 1)])] == [3, 1]


def test_emptiest_block_fits_into_a_call() -> None:
    """Also with a failure of its only tree."""
    (call,) = calls([pack_track(1, "t", "l", [0] * SLOTS, {7: "no"}, present=[7])])
    assert call.parts[0].costs()[0] == SLOTS - 1 + 1 <= MAX_NAMED


def test_blocks_that_differ_in_present_only_have_different_digests() -> None:
    """An equal batch number with another ``present`` is another batch, not a retry."""
    chance = random.Random(1)
    column = [0] * 20
    found = {Blocks((pack_track(7, "t", "l", column),)).digest}
    for _ in range(200):
        present = chance.sample(range(20), chance.randint(1, 19))
        found.add(Blocks((pack_track(7, "t", "l", column, present=present),)).digest)
    assert len(found) > 150
