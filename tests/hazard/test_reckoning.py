"""Tests of the final check: it reports each kind of error by name."""

from collections import Counter
from typing import Literal

import pytest

from acker_redis.protocol.outcome import Outcome
from tests.hazard.forest import Forest, Tree
from tests.hazard.line import _end_of_command


@pytest.fixture
def forest() -> Forest:
    forest = Forest(200, seed=1)
    while forest.draw(50):
        pass
    return forest


def outcome(tree: Tree, verdict: Literal["ack", "nack"], reason: str) -> Outcome:
    return Outcome(verdict, reason, tree.anchor, str(tree.anchor), 0, "")


def right(forest: Forest, but: Tree | None = None) -> None:
    for tree in forest.trees.values():
        if tree is not but and tree.complete:
            forest.note([outcome(tree, "ack", "completed")])
        elif tree is not but:
            forest.note([outcome(tree, "nack", "expired")])


def one(forest: Forest, complete: bool) -> Tree:
    return next(tree for tree in forest.trees.values() if tree.complete == complete)


def test_correct_verdicts_are_accepted(forest: Forest) -> None:
    right(forest)
    assert forest.wrong() == Counter()
    assert forest.kinds().total() == 200


def test_ack_of_an_incomplete_tree_is_detected(forest: Forest) -> None:
    tree = one(forest, complete=False)
    right(forest, but=tree)
    forest.note([outcome(tree, "ack", "completed")])
    assert forest.wrong()["acked falsely"] == 1


def test_expiry_of_a_complete_tree_is_detected(forest: Forest) -> None:
    tree = one(forest, complete=True)
    right(forest, but=tree)
    forest.note([outcome(tree, "nack", "expired")])
    assert forest.wrong() == {"complete, and not acked": 1}
    tree.in_doubt = True
    assert forest.wrong() == Counter()


def test_missing_verdict_is_detected(forest: Forest) -> None:
    tree = one(forest, complete=False)
    right(forest, but=tree)
    assert forest.wrong() == {"never reported": 1}
    tree.in_doubt = tree.track_in_doubt = True
    assert forest.wrong() == Counter()


def test_repeated_verdict_is_detected(forest: Forest) -> None:
    right(forest)
    forest.note([outcome(one(forest, complete=False), "nack", "expired")])
    assert forest.wrong() == {"reported twice": 1}


def test_end_of_a_command_is_found() -> None:
    command = b"*2\r\n$4\r\nPI\r\n\r\n$1\r\nx\r\n"
    assert _end_of_command(command + b"*1\r\n") == len(command)
    assert all(_end_of_command(command[:cut]) is None for cut in range(len(command)))
