"""Verdicts on blocks: each tree gets one, with its texts, which waits until it is taken."""

import random

import pytest

from acker_redis.errors import ChangedBatchError
from acker_redis.sync.client import Acker
from proof.reference.blocks import BlockRow
from tests.conformance.test_verdicts import TEXTS
from tests.support import (
    TRACK,
    Target,
    backlog,
    block_row,
    block_verdicts,
    columns,
    fail_slot,
    row,
    send,
    send_blocks,
    tick,
    total,
    touch_block,
    track,
    track_block,
    tracked_block,
    verdicts,
)

A, B = (random.Random(f"verdict {i}").getrandbits(63) for i in range(2))


@pytest.mark.parametrize("text", TEXTS)
def test_texts_come_back_unchanged(acker: Target, text: str) -> None:
    send_blocks(acker, tracked_block(7, [A, B, A], text, failed={1: text}))
    touch_block(acker, 7)
    fail_slot(acker, 7, 2, text)
    track_block(acker, 8, [0], text)
    tick(acker, 3)
    found = block_verdicts(acker)
    assert {o.label for o in found} == {text}
    assert [o.verdict for o in found] == ["nack", "touch", "nack", "ack", "mixed"]
    assert found[0].rows == ((1, text),)
    assert found[2].rows == ((2, text),)


def test_a_label_is_compared_byte_by_byte(acker: Target) -> None:
    """Two texts that look the same, composed and decomposed, are different labels."""
    track_block(acker, 7, [A], "\u00e9")
    with pytest.raises(ChangedBatchError, match="other content"):
        track_block(acker, 7, [A], "e\u0301")


def test_whys_of_one_call_go_to_their_slots(acker: Target) -> None:
    track_block(acker, 1, [A] * len(TEXTS))
    track_block(acker, 2, [A] * len(TEXTS))
    forth, back = dict(enumerate(TEXTS)), dict(enumerate(reversed(TEXTS)))
    send_blocks(acker, BlockRow(1, {}, forth), BlockRow(2, {}, back))
    first, second = block_verdicts(acker)
    assert (dict(first.rows), dict(second.rows)) == (forth, back)
    assert [o.why for o in first.expand()] == TEXTS


def test_an_empty_why(acker: Target) -> None:
    track_block(acker, 7, [A, A])
    fail_slot(acker, 7, 0)
    fail_slot(acker, 7, 0, "too late to say")
    assert [o.rows for o in block_verdicts(acker)] == [((0, ""),)]


def test_each_task_gets_its_own_verdicts(acker: Target) -> None:
    for block, task in enumerate("tutu"):
        track_block(acker, block, [A, B], f"b{block}", task)
    fail_slot(acker, 1, 0, "no", A)
    send_blocks(acker, BlockRow(0, {0: A, 1: B}), BlockRow(1, {1: B}))
    tick(acker, 3)
    assert {v[:2] + v[3:4] for v in verdicts(acker, "t")} == {
        ("ack", "completed", "b0"),
        ("nack", "expired", "b2"),
    }
    assert {v[:2] + v[3:4] for v in verdicts(acker, "u")} == {
        ("nack", "failed", "b1"),
        ("ack", "completed", "b1"),
        ("nack", "expired", "b3"),
    }


def test_backlog_counts_single_verdicts(acker: Target) -> None:
    track_block(acker, 1, [A] * 10)
    track_block(acker, 2, [A] * 5)
    track(acker, 9, A)
    send_blocks(acker, BlockRow(1, {0: A, 1: A}, {0: "x", 1: "y"}))
    assert backlog(acker) == 2
    block_row(acker, 1, dict.fromkeys(range(2, 10), A))
    assert backlog(acker) == 2 + 8
    touch_block(acker, 2)
    assert backlog(acker) == 2 + 8 + 5
    fail_slot(acker, 2, 3, "z")
    row(acker, 9, A)
    assert backlog(acker) == 2 + 8 + 5 + 1 + 1
    tick(acker, 4)
    assert backlog(acker) == 2 + 8 + 5 + 1 + 1 + 4
    assert len(verdicts(acker)) == 21
    assert backlog(acker) == 0


def test_take_of_block_entries_leaves_loose_ones(acker: Target) -> None:
    """Entries of blocks may be taken while those of loose trees keep waiting."""
    track(acker, 9, 0, "loose")
    track_block(acker, 7, [0] * 5)
    assert backlog(acker) == 6
    assert [o.count for o in block_verdicts(acker)] == [5]
    assert backlog(acker) == 1
    assert [v[3] for v in verdicts(acker)] == ["loose"]


def test_verdicts_come_in_the_order_of_the_calls(acker: Target) -> None:
    for block in range(20):
        track_block(acker, block, [A])
    order = [7, 3, 19, 0, 15]
    for block in order:
        block_row(acker, block, {0: A})
    assert [o.block for o in block_verdicts(acker)] == order


def test_verdicts_of_a_call_come_in_the_order_of_its_blocks(acker: Target) -> None:
    """For each block, its failures come first."""
    order = [7, 3, 19, 0, 15]
    send_blocks(acker, *(tracked_block(block, [A, A]) for block in order))
    rows = [BlockRow(block, {0: A, 1: A}, {1: "no"}) for block in reversed(order)]
    send_blocks(acker, *rows)
    expected = [(block, verdict) for block in reversed(order) for verdict in ("nack", "ack")]
    assert [(o.block, o.verdict) for o in block_verdicts(acker)] == expected


def test_verdicts_of_loose_trees_and_blocks_are_in_the_order_of_the_calls(acker: Target) -> None:
    """In one stream. The reference model has two lists, each in order."""
    for number in range(1, 7):
        track(acker, number, A, f"loose {number}")
        track_block(acker, number, [A, B], f"block {number}")
    expected = []
    for number in (5, 2, 6, 1):
        row(acker, number, A)
        block_row(acker, number, {0: A, 1: B})
        expected += [f"loose {number}", *[f"block {number}"] * 2]
    send(acker, columns([(3, A, 0), (4, A, 0)]))
    expected += ["loose 3", "loose 4"]
    found = [v[3] for v in verdicts(acker)]
    if not isinstance(acker, Acker):
        expected.sort(key=lambda label: label.startswith("block"))
    assert found == expected


def test_completed_block_writes_one_entry(acker: Target) -> None:
    track_block(acker, 7, [0] * 4095, "b7")
    (outcome,) = block_verdicts(acker)
    assert (outcome.count, outcome.label) == (4095, "b7")


def test_taken_verdicts_are_not_delivered_again(acker: Target) -> None:
    track_block(acker, 7, [A, B])
    fail_slot(acker, 7, 0, "no", A)
    assert len(verdicts(acker)) == 1
    block_row(acker, 7, {1: B})
    assert len(verdicts(acker)) == 1
    tick(acker, 6)
    assert verdicts(acker) == []
    assert total(acker)["pending"] == 0


def test_one_call_tracks_blocks_of_several_tasks(acker: Target) -> None:
    """A call of blocks may track for several tasks."""
    send_blocks(acker, tracked_block(1, [0], "b1", "t"), tracked_block(2, [0], "b2", "u"))
    send(acker, columns([(1, 0, TRACK)], "u", ["s1"]))
    assert [v[3] for v in verdicts(acker, "t")] == ["b1"]
    assert {v[3] for v in verdicts(acker, "u")} == {"b2", "s1"}
