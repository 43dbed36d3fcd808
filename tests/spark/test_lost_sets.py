"""The missing messages of many trees at once: the answers are those of ``acker_redis.explain``."""

import random
from collections.abc import Sequence
from functools import reduce
from operator import xor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis import explain
from acker_redis.missing import explain as explained
from acker_redis.missing.explain import MAX_MESSAGES
from acker_redis.missing.gf2 import is_certain
from acker_redis.protocol.arrays import Ints
from acker_redis.protocol.ids import EDGE_BIT
from acker_redis.spark import lost_sets
from acker_redis.spark.lost_sets import Lost, Messages

Pairs = list[tuple[int, int]]


def column(numbers: Sequence[int]) -> Ints:
    return np.array(numbers, dtype=np.int64)


def lost(verdicts: Pairs, pairs: Pairs, bits: int = 63) -> Lost:
    messages = Messages(column([a for a, _ in pairs]), column([i for _, i in pairs]))
    return messages.lost(column([a for a, _ in verdicts]), column([r for _, r in verdicts]), bits)


def check(verdicts: Pairs, pairs: Pairs, edges: bool = True) -> dict[str, int]:
    """Compare with the answers one by one; return how often each reason occurs."""
    found = lost(verdicts, pairs, EDGE_BIT if edges else 63)
    answers = explain(dict(verdicts), pairs, edges=edges)
    ids = {anchor: set(answer.ids) for anchor, answer in answers.items()}
    expected = [n for n, (anchor, id_) in enumerate(pairs) if id_ in ids.get(anchor, ())]
    assert found.rows.tolist() == expected
    assert found.ids.tolist() == [pairs[n][1] for n in expected]
    reasons = {anchor: answer.found for anchor, answer in answers.items()}
    others = {int(a): why for why, each in found.others.items() for a in each}
    assert others == {anchor: why for anchor, why in reasons.items() if why != "found"}
    return {why: list(reasons.values()).count(why) for why in set(reasons.values())}


@given(seed=st.integers(0, 2**32), codes=st.booleans(), most=st.sampled_from([3, 12, 70]))
def test_answers_are_those_of_explain(seed: int, codes: bool, most: int) -> None:
    """Trees of any size miss some messages, of which some are not in the list; rows repeat."""
    chance = random.Random(seed)
    bits = EDGE_BIT if codes else 63
    verdicts: Pairs = []
    pairs: Pairs = []
    for anchor in chance.sample(range(1, 1 << 20), chance.randrange(12)):
        ids = [chance.getrandbits(bits - 1) + 1 for _ in range(chance.randrange(most))]
        if codes:
            ids = [id_ | 1 << EDGE_BIT + chance.randrange(8) for id_ in ids]
        gone = chance.sample(ids, min(len(ids), chance.choice([0, 1, 1, 1, 2, 2, 3, 5])))
        residual = reduce(xor, gone, 0)
        if gone and chance.randrange(6) == 0:
            ids.remove(gone[0])
        pairs += [(anchor, id_) for id_ in ids for _ in range(chance.choice([1, 1, 1, 2]))]
        if chance.randrange(8):
            verdicts.append((anchor, residual))
    chance.shuffle(pairs)
    chance.shuffle(verdicts)
    check(verdicts, pairs, edges=codes)


def test_equal_ids_of_two_trees_are_apart() -> None:
    pairs = [(7, 40), (7, 41), (8, 40), (8, 42), (9, 40 ^ 41)]
    assert check([(7, 40), (8, 40 ^ 42), (9, 40 ^ 41)], pairs) == {"found": 3}
    assert check([(7, 42), (8, 41)], pairs) == {"none": 2}
    assert check([(7, 0), (10, 5)], pairs) == {"unknown": 1, "none": 1}
    assert check([], pairs) == {}
    assert check([(7, 40)], []) == {"none": 1}


def test_second_set_of_one_or_two_is_seen() -> None:
    """Ids of a user's own making: one message or two others, or two pairs."""
    assert check([(7, 3)], [(7, 1), (7, 2), (7, 3)]) == {"several": 1}
    assert check([(7, 7)], [(7, 3), (7, 4), (7, 2), (7, 5)]) == {"several": 1}


def test_larger_set_of_ids_that_are_not_random_is_seen() -> None:
    """Ids of a user's own making: one message, or three others. Random ids would not depend."""
    ids = [1, 2, 4, 7]
    assert check([(7, 4)], [(7, each) for each in ids]) == {"several": 1}
    assert check([(7, 4 << 32)], [(7, each << 32) for each in ids[:3]]) == {"found": 1}


def test_tree_of_too_many_messages_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of one or two are certain up to the bound of ``explain``, which answers above it."""
    assert is_certain(MAX_MESSAGES, 2, EDGE_BIT)
    for module in (lost_sets, explained):
        monkeypatch.setattr(module, "MAX_MESSAGES", 20)
    ids = [random.Random(n).getrandbits(55) for n in range(21)]
    assert lost([(7, ids[0])], [(7, id_) for id_ in ids[:20]], EDGE_BIT).rows.tolist() == [0]
    found = lost([(7, ids[0])], [(7, id_) for id_ in ids], EDGE_BIT)
    assert not found.rows.size
    assert found.others.keys() == {"several"}


def test_columns_answer_without_a_call_for_each_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_sets, "explain_tree", None)
    chance = np.random.default_rng(2)
    anchors = np.repeat(np.arange(1, 2001), 10)
    ids = chance.integers(1, 2**55, len(anchors))
    one = ids[::10]
    two = ids[::10] ^ ids[5::10]
    trees = np.arange(1, 2001)
    messages = Messages(anchors, ids)
    assert messages.lost(trees, one, 55).rows.tolist() == list(range(0, 20_000, 10))
    assert messages.lost(trees, two, 55).rows.tolist() == list(range(0, 20_000, 5))


def test_tree_with_two_verdicts_is_explained_twice() -> None:
    """A block was tracked again after its end, and each run lost another message."""
    pairs = [(7, 40), (7, 41), (8, 1)]
    found = lost([(7, 41), (8, 1), (7, 40), (7, 99)], pairs)
    assert found.rows.tolist() == [0, 1, 2]
    assert {why: each.tolist() for why, each in found.others.items()} == {"none": [7]}


def test_rows_of_one_message_count_as_their_xor() -> None:
    """A message of several inputs has several ids in one tree."""
    anchors, ids = column([7, 7, 8, 7, 7]), column([40, 41, 50, 44, 43])
    messages = Messages(anchors, ids, column([1, 2, 1, 2, 1]))
    found = messages.lost(column([7, 8]), column([41 ^ 44, 50]), 63)
    assert (found.rows.tolist(), found.ids.tolist()) == ([1, 2], [41 ^ 44, 50])
    found = messages.lost(column([7]), column([41]), 63)
    assert found.others["none"].tolist() == [7]


def test_residual_above_the_range_of_ids_has_no_set() -> None:
    assert lost([(7, 5 - 2**63)], [(7, 5)]).others["none"].tolist() == [7]
