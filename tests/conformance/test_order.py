"""Rows that arrive in an unexpected order."""

import itertools

import pytest

from tests.support import (
    FAIL,
    TOUCH,
    TRACK,
    Target,
    columns,
    fail,
    row,
    send,
    tick,
    total,
    touch,
    track,
    verdicts,
)

A, B, C = 0x1111, 0x2222_0000_0000, 0x4444_0000_4444_0000


def test_ack_before_track(acker: Target) -> None:
    assert row(acker, 7, A).acked == 0
    assert verdicts(acker) == []
    assert track(acker, 7, A).acked == 1
    assert verdicts(acker) == [("ack", "completed", 7, "s", "")]


def test_fail_before_track(acker: Target) -> None:
    assert fail(acker, 7, "early").failed == 0
    assert verdicts(acker) == []
    assert track(acker, 7, A).failed == 1
    assert verdicts(acker) == [("nack", "failed", 7, "s", "early")]


def test_fail_before_track_has_priority_over_zero(acker: Target) -> None:
    row(acker, 7, A)
    fail(acker, 7, "no")
    assert track(acker, 7, A).acked == 0
    assert [v[:2] for v in verdicts(acker)] == [("nack", "failed")]


def test_first_why_wins(acker: Target) -> None:
    fail(acker, 7, "")
    fail(acker, 7, "first")
    fail(acker, 7, "second")
    track(acker, 7, A)
    assert verdicts(acker) == [("nack", "failed", 7, "s", "first")]


def test_fail_nacks_at_once_and_once(acker: Target) -> None:
    track(acker, 7, A)
    assert fail(acker, 7, "bad row").failed == 1
    assert fail(acker, 7, "again").failed == 0
    assert verdicts(acker) == [("nack", "failed", 7, "s", "bad row")]


def test_rows_after_the_verdict_never_ack(acker: Target) -> None:
    track(acker, 7, A)
    fail(acker, 7, "bad")
    row(acker, 7, A ^ B)
    row(acker, 7, B)
    tick(acker, 3)
    assert [v[:2] for v in verdicts(acker)] == [("nack", "failed")]
    assert total(acker)["orphaned"] == 1


def test_failed_row_that_reaches_zero_is_a_nack(acker: Target) -> None:
    track(acker, 7, A)
    assert fail(acker, 7, "done, but wrong", delta=A).failed == 1
    assert [v[:2] for v in verdicts(acker)] == [("nack", "failed")]


def test_every_order_of_a_tree_ends_in_one_ack(acker: Target) -> None:
    steps = [("track", A), ("row", A ^ B ^ C), ("row", B), ("row", C)]
    for anchor, order in enumerate(itertools.permutations(steps), 1):
        acks = [
            (track if kind == "track" else row)(acker, anchor, delta).acked for kind, delta in order
        ]
        assert sum(acks) == 1
        assert acks[-1] == 1, f"acked before all rows arrived: {order}"


def test_track_and_fail_in_one_row(acker: Target) -> None:
    reply = send(acker, columns([(7, A, TRACK | FAIL)], "t", ["s7", "stillborn"]))
    assert (reply.tracked, reply.failed, reply.pending) == (1, 1, 0)
    assert verdicts(acker) == [("nack", "failed", 7, "s7", "stillborn")]


def test_texts_go_to_their_rows(acker: Target) -> None:
    part = columns(
        [(1, A, TRACK), (2, 0, FAIL), (3, B, TRACK | FAIL), (4, C, TRACK), (5, 0, FAIL)],
        "t",
        ["s1", "s3", "s4", "why2", "why3", "why5"],
    )
    send(acker, part)
    track(acker, 2, A, "s2")
    track(acker, 5, A, "s5")
    row(acker, 1, A)
    row(acker, 4, C)
    assert {(v[0], v[2], v[3], v[4]) for v in verdicts(acker)} == {
        ("nack", 3, "s3", "why3"),
        ("nack", 2, "s2", "why2"),
        ("nack", 5, "s5", "why5"),
        ("ack", 1, "s1", ""),
        ("ack", 4, "s4", ""),
    }


def test_second_track_is_a_conflict_and_ends_the_tree(acker: Target) -> None:
    track(acker, 7, A, "s7")
    assert track(acker, 7, A, "s7").failed == 1
    assert verdicts(acker) == [("nack", "conflict", 7, "s7", "")]
    assert row(acker, 7, A).acked == 0
    tick(acker, 3)
    assert verdicts(acker) == []
    counters = total(acker)
    assert (counters["tracked"], counters["conflict"]) == (1, 1)


def test_conflict_of_two_sources_nacks_both(acker: Target) -> None:
    track(acker, 7, A, "mine", "t")
    track(acker, 7, B, "yours", "u")
    assert verdicts(acker, "t") == [("nack", "conflict", 7, "mine", "")]
    assert verdicts(acker, "u") == [("nack", "conflict", 7, "yours", "")]
    counters = total(acker)
    assert (counters["tracked"], counters["conflict"], counters["pending"]) == (2, 2, 0)


def test_touch_of_an_unknown_tree_is_a_no_op(acker: Target) -> None:
    touch(acker, 7)
    assert total(acker)["pending"] == 0


def test_touch_is_reported_to_the_source(acker: Target) -> None:
    track(acker, 7, A)
    touch(acker, 7)
    assert verdicts(acker) == [("touch", "reset", 7, "s", "")]
    assert row(acker, 7, A).acked == 1


def test_touch_that_completes_is_an_ack_only(acker: Target) -> None:
    track(acker, 7, A)
    send(acker, columns([(7, A, TOUCH)]))
    assert [v[0] for v in verdicts(acker)] == ["ack"]


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 511, 513, 1024])
def test_batches_of_many_trees(acker: Target, rows: int) -> None:
    ids = [(i * 0x9E3779B97F4A7C15) % 2**62 or 1 for i in range(1, rows + 1)]
    tracks = columns([(i, i ^ 5, TRACK) for i in ids], "t", [f"s{i}" for i in ids])
    assert send(acker, tracks).tracked == rows
    assert send(acker, columns([(i, i ^ 5 ^ 9, 0) for i in reversed(ids)])).acked == 0
    assert send(acker, columns([(i, 9, 0) for i in ids])).acked == rows
    assert {(v[2], v[3]) for v in verdicts(acker)} == {(i, f"s{i}") for i in ids}
