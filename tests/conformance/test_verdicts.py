"""Verdicts: each tree gets one, with its texts, for its task, which waits until it is taken."""

import pytest

from tests.support import (
    FAIL,
    TRACK,
    Target,
    backlog,
    columns,
    fail,
    row,
    send,
    tick,
    touch,
    track,
    verdicts,
)

A = 0xABCDEF

TEXTS = [
    "plain",
    'quotes "and" \\backslashes\\ / slashes',
    "ümläut €uro 日本語 😀 \u0080 \u07ff \u0800 \ud7ff \ue000 \uffff \U00010000 \U0010ffff",
    "rtl \u202e marks, <b>html</b> &amp; %s %d %1 ${x}",
    "x" * 255,
    "é" * 127 + "x",
    '"',
    "\\",
    'quote"',
    "back\\slash",
    "[1,2]",
    "null",
]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_come_back_unchanged(acker: Target, text: str) -> None:
    send(acker, columns([(1, 0, TRACK), (2, 0, TRACK | FAIL)], "t", [text, "s2", text]))
    assert sorted(verdicts(acker)) == [
        ("ack", "completed", 1, text, ""),
        ("nack", "failed", 2, "s2", text),
    ]
    track(acker, 3, A, text)
    tick(acker, 3)
    assert verdicts(acker) == [("nack", "expired", 3, text, "")]
    fail(acker, 4, text)
    row(acker, 4, 1)
    track(acker, 4, A, text)
    assert verdicts(acker) == [("nack", "failed", 4, text, text)]


def test_each_task_gets_its_own_verdicts(acker: Target) -> None:
    for anchor, task in enumerate("tutu", 1):
        track(acker, anchor, A, f"s{anchor}", task)
    send(acker, columns([(anchor, A, 0) for anchor in (1, 2)]))
    tick(acker, 3)
    assert {v[:4] for v in verdicts(acker, "t")} == {
        ("ack", "completed", 1, "s1"),
        ("nack", "expired", 3, "s3"),
    }
    assert {v[3] for v in verdicts(acker, "u")} == {"s2", "s4"}


def test_backlog_counts_waiting_verdicts(acker: Target) -> None:
    for anchor in range(1, 6):
        track(acker, anchor, A)
    send(acker, columns([(anchor, A, 0) for anchor in (1, 2)]))
    fail(acker, 3)
    touch(acker, 4)
    assert backlog(acker) == 4
    assert len(verdicts(acker)) == 4
    assert backlog(acker) == 0
    tick(acker, 3)
    assert backlog(acker) == 2


def test_verdicts_come_in_the_order_of_the_calls(acker: Target) -> None:
    for anchor in range(1, 21):
        track(acker, anchor, A)
    order = [7, 3, 20, 1, 15]
    for anchor in order:
        row(acker, anchor, A)
    assert [v[2] for v in verdicts(acker)] == order
