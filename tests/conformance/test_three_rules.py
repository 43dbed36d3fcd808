"""The three rules: when kept, no order of rows causes a false ack; when broken, some order does.

A tree is a set of messages. A row states the message it processed and the messages it caused. A
tree may be acked when all messages that *really* exist were processed, regardless of the rows.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.conformance.conftest import MakeTarget
from tests.support import TRACK, Target, columns, send, verdicts

A, B, C, D, E, F = (random.Random(f"rule {i}").getrandbits(63) for i in range(6))


@dataclass(frozen=True)
class Step:
    """One row, and the messages that have really begun and ended after its call."""

    delta: int
    flags: int = 0
    begun: frozenset[str] = frozenset()
    done: frozenset[str] = frozenset()


def step(delta: int, begun: str = "", done: str = "", track: bool = False) -> Step:
    return Step(delta, TRACK if track else 0, frozenset(begun.split()), frozenset(done.split()))


def orders(steps: list[Step]) -> Iterator[list[Step]]:
    """Yield all orders in which the rows may arrive."""
    yield from (list(order) for order in itertools.permutations(steps))


def acked_too_early(target: Target, steps: list[Step]) -> list[list[Step]]:
    """Return the orders of arrival that ack the tree while one of its messages is outstanding.

    All messages exist from the start: they are in flight, while the rows are delayed.
    """
    every = frozenset().union(*(s.begun for s in steps))
    found = []
    for anchor, order in enumerate(orders(steps), 1):
        done: frozenset[str] = frozenset()
        for s in order:
            send(
                target,
                columns([(anchor, s.delta, s.flags)], "t" if s.flags else "", ["s"] * s.flags),
            )
            done |= s.done
            acked = any(v[0] == "ack" for v in verdicts(target))
            if acked and done != every:
                found.append(order)
    return found


# source -A-> bolt -B-> bolt
WHOLE = [step(A, "a", track=True), step(A ^ B, "b", "a"), step(B, done="b")]
SPLIT = [step(A, "a", track=True), step(B, "b"), step(A, done="a"), step(B, done="b")]

# spout -A-> bolt1, -B-> bolt2; both feed one joined message
EDGES = [
    step(A ^ B, "a b", track=True),
    step(A ^ C, "joined", "a"),
    step(B ^ D, "joined", "b"),
    step(C ^ D, done="joined"),
]
SHARED = [
    step(A ^ B, "a b", track=True),
    step(A ^ C, "joined", "a"),
    step(B ^ C, "joined", "b"),
    step(0, done="joined"),
]

# a source with two first messages
AT_ONCE = [step(A ^ B, "a b", track=True), step(A, done="a"), step(B, done="b")]
ONE_BY_ONE = [step(A, "a", track=True), step(B, "b"), step(A, done="a"), step(B, done="b")]
OWN_ID = [
    step(E, "own a b", track=True),
    step(E ^ A ^ B, done="own"),
    step(A, done="a"),
    step(B, done="b"),
]


@pytest.mark.parametrize(
    ("kept", "broken"),
    [(WHOLE, SPLIT), (EDGES, SHARED), (AT_ONCE, ONE_BY_ONE), (OWN_ID, ONE_BY_ONE)],
    ids=[
        "a row is whole",
        "an edge id per input",
        "one track for all",
        "an own id",
    ],
)
def test_acks_are_early_only_if_a_rule_is_broken(
    make_acker: MakeTarget, kept: list[Step], broken: list[Step]
) -> None:
    assert acked_too_early(make_acker(), kept) == []
    assert acked_too_early(make_acker(), broken) != []


def test_a_second_track_for_later_messages_nacks_and_never_acks(acker: Target) -> None:
    """The acker itself refuses this way to register first messages one by one."""
    send(acker, columns([(1, A, TRACK)], "t", ["s"]))
    send(acker, columns([(1, B, TRACK)], "t", ["s"]))
    for delta in (A, B):
        send(acker, columns([(1, delta, 0)]))
    assert [v[:2] for v in verdicts(acker)] == [("nack", "conflict")]


def test_rows_of_one_tree_folded_into_one_row_stay_whole(acker: Target) -> None:
    """Folding XORs whole rows, so no way of folding acks a tree too early."""
    rows = [A ^ B ^ C, B ^ D, C, D]
    for anchor, cut in enumerate(itertools.product([0, 1], repeat=4), 1):
        parts = [0, 0]
        for delta, part in zip(rows, cut, strict=True):
            parts[part] ^= delta
        send(acker, columns([(anchor, A, TRACK)], "t", ["s"]))
        complete = 0 not in cut or 1 not in cut
        acked = [send(acker, columns([(anchor, delta, 0)])).acked for delta in parts if delta]
        assert acked[-1] == 1
        assert sum(acked) == 1
        assert complete or acked[0] == 0
