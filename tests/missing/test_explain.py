"""``explain`` takes outcomes or residuals and a table of messages, and is never wrong."""

import random
from functools import reduce
from operator import xor
from typing import Any

import pytest

from acker_redis import Explanation, explain
from acker_redis.missing import explain as module
from acker_redis.missing.gf2 import MAX_PAIRS
from acker_redis.protocol.outcome import Outcome
from tests.tiers import budget


def expired(anchor: int, residual: int) -> Outcome:
    return Outcome("nack", "expired", anchor, "s", 9, "", "idle", residual)


def test_outcomes_of_expired_trees_are_explained() -> None:
    outcomes = [
        expired(7, 40),
        expired(8, 40 ^ 41),
        Outcome("nack", "failed", 9, "s", 9, "torn"),
        Outcome("ack", "completed", 10, "s", 9, ""),
    ]
    messages = [(anchor, tuple_id) for anchor in range(7, 12) for tuple_id in (40, 41, 99)]
    assert explain(outcomes, messages) == {
        7: Explanation("found", (40,), 3),
        8: Explanation("found", (40, 41), 3),
    }


def test_anchor_that_had_several_trees_is_not_explained() -> None:
    """A message of the first tree, which failed, may have been acked late, in the second."""
    told = Outcome("nack", "failed", 7, "s", 9, "torn")
    messages = [(7, 40), (7, 41), (8, 40)]
    for outcomes in ([told, expired(7, 40)], [expired(7, 40), expired(7, 41)]):
        assert explain(outcomes, messages) == {7: Explanation("several", (), 2)}
    no_end = [Outcome("touch", "reset", 7, "s", 9, ""), Outcome("nack", "overflow", 7, "s", 0, "")]
    again = [expired(7, 40), expired(7, 40), *no_end, Outcome("ack", "completed", 8, "s", 9, "")]
    assert explain(again, messages) == {7: Explanation("found", (40,), 2)}


def test_messages_of_other_trees_do_not_count() -> None:
    assert explain({7: 40 ^ 41}, [(7, 40), (8, 41), (8, 40)])[7] == Explanation("none", (), 1)


def test_repeated_messages_count_once() -> None:
    said = explain({7: 40 ^ 41}, [(7, 41), (7, 40), (7, 40), (7, 41), (7, 41)])[7]
    assert said == Explanation("found", (41, 40), 2), "in the order in which they were given"


def test_tree_without_messages_has_no_answer() -> None:
    assert explain({7: 40}, []) == {7: Explanation("none", (), 0)}
    assert explain({}, [(7, 40)]) == explain([], []) == {}


def test_residual_of_zero_is_unknown() -> None:
    # The block has lost its checksums.
    assert explain([expired(7, 0)], [(7, 40)]) == {7: Explanation("unknown", (), 1)}


def test_iterators_are_read_once() -> None:
    said = explain(iter([expired(7, 40)]), ((7, tuple_id) for tuple_id in (40, 41)))
    assert said[7].ids == (40,)


def test_more_bits_of_a_namespace_without_edges_find_larger_sets() -> None:
    chance = random.Random(1)
    ids = [chance.randrange(1, 2**55) for _ in range(40)]
    residual = {7: reduce(xor, ids[:20])}
    assert explain(residual, [(7, each) for each in ids])[7].found == "several"
    assert explain(residual, [(7, each) for each in ids], edges=False)[7].ids == tuple(ids[:20])


@pytest.mark.parametrize("kind", ["uint64", "int64"])
def test_integers_of_numpy_are_accepted(kind: str) -> None:
    numpy = pytest.importorskip("numpy")
    big = 1 << 62 | 1
    anchors, ids = numpy.array([7, 7, 7, 8], kind), numpy.array([big, 41, 99, 40], kind)
    residuals = dict(zip(anchors[2:], ids[:2] ^ ids[1:3], strict=True))
    said = explain(residuals, zip(anchors, ids, strict=True))
    assert said == {7: Explanation("found", (big, 41), 3), 8: Explanation("none", (), 1)}
    assert all(type(tuple_id) is int for tuple_id in said[7].ids)
    assert all(type(anchor) is int for anchor in said)


def test_tree_of_too_many_messages_is_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MESSAGES", 2)
    assert explain({7: 40}, [(7, 40), (7, 41)])[7].found == "found"
    assert explain({7: 40}, [(7, 40), (7, 41), (7, 42)])[7] == Explanation("several", (), 3)


def table(chance: random.Random, count: int, edges: bool) -> list[int]:
    """Return distinct ids as a client makes them."""
    if not edges:
        return chance.sample(range(1, 2**63), count)
    return [
        low | chance.choice((0, 1 << 55, 1 << 62)) for low in chance.sample(range(1, 2**55), count)
    ]


@pytest.mark.parametrize("edges", [True, False])
def test_answer_from_many_candidates_is_right_or_none(edges: bool) -> None:
    counts: dict[str, int] = {}
    for seed in range(min(budget().trees // 25, 1000)):
        chance = random.Random(seed)
        count = round(41 * (2000 / 41) ** chance.random())
        ids = table(chance, count, edges)
        lost = chance.sample(ids, chance.randrange(1, 6))
        given = [(7, each) for each in ids]
        complete = chance.random() < 0.7
        if not complete:
            given.remove((7, lost[0]))
        chance.shuffle(given)
        said: Any = explain({7: reduce(xor, lost)}, given, edges=edges)[7]
        what = "complete" if complete else "incomplete"
        counts[f"{what}, {said.found}"] = counts.get(f"{what}, {said.found}", 0) + 1
        if said.found == "found":
            assert complete
            assert sorted(said.ids) == sorted(lost)
        elif complete:
            assert said.found == "several"
            most = 3 if count <= MAX_PAIRS else 2
            assert len(lost) > most, "of many, sets of two are found; of not so many, of three"
    assert {"complete, found", "complete, several", "incomplete, several"} <= counts.keys()


def test_zero_is_no_message() -> None:
    """It would be in any set, so that no set would be the only one."""
    assert explain({7: 40}, [(7, 40), (7, 41), (7, 0)])[7].ids == (40,)
