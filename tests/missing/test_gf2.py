"""Sets of numbers whose XOR is a residual: each answer is compared with all subsets, or known."""

import random
from functools import reduce
from itertools import combinations
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis.missing.gf2 import CERTAIN, MAX_FREE, MAX_PAIRS, Sets, is_certain, solve

NONE, SEVERAL = Sets(None), Sets(None, several=True)


def drawn(seed: int, count: int, bits: int = 63) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(1, 1 << bits) for _ in range(count)]


def sum_of(ids: list[int], positions: tuple[int, ...]) -> int:
    return reduce(xor, (ids[k] for k in positions))


@given(
    st.lists(st.integers(1, 63), unique=True, max_size=8),
    st.integers(1, 63),
)
def test_answer_is_the_only_subset_that_fits(ids: list[int], residual: int) -> None:
    every = [
        set_ for size in range(1, len(ids) + 1) for set_ in combinations(range(len(ids)), size)
    ]
    fitting = [set_ for set_ in every if sum_of(ids, set_) == residual]
    expected = {0: NONE, 1: Sets(fitting[0] if fitting else None)}.get(len(fitting), SEVERAL)
    assert solve(residual, ids, bits=63) == expected


@pytest.mark.parametrize("bits", [55, 63])
@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("count", [8, 40, 60])
def test_few_missing_of_some_candidates_are_found(count: int, size: int, bits: int) -> None:
    ids = drawn(count * size, count, bits)
    lost = tuple(sorted(random.Random(size).sample(range(count), size)))
    assert solve(sum_of(ids, lost), ids, bits) == Sets(lost)


def test_residual_of_other_messages_is_no_set() -> None:
    (other, *ids) = drawn(1, 41)
    assert solve(other, ids, 63) == NONE
    assert solve(other ^ ids[3], ids, 63) == NONE


@pytest.mark.parametrize("residual", [1, 1 << 62, (1 << 63) - 1])
def test_no_candidates_are_no_set(residual: int) -> None:
    assert solve(residual, [], 63) == NONE


def test_two_sets_that_fit_are_several() -> None:
    one, two, other = drawn(2, 3)
    ids = [one, two, one ^ two, other]
    assert solve(one, ids, 63) == SEVERAL
    assert solve(other, ids, 63) == SEVERAL, "also the other three, which cancel, may be missing"
    assert solve(drawn(3, 1)[0], ids, 63) == NONE


def test_small_set_is_found_beside_one_that_is_too_large_to_be_certain() -> None:
    ids = drawn(4, 39, 55)
    ids.append(reduce(xor, ids[:30]))
    assert solve(ids[0] ^ ids[35], ids, 55) == Sets((0, 35))
    assert solve(ids[2], ids, 55) == Sets((2,))


def test_set_that_may_be_a_coincidence_is_not_told() -> None:
    ids = drawn(5, 40, 55)
    lost = tuple(range(14))
    assert not is_certain(40, 14, 55)
    assert is_certain(40, 14, 63)
    assert solve(sum_of(ids, lost), ids, 55) == SEVERAL
    assert solve(sum_of(ids, lost), ids, 63) == Sets(lost)


@pytest.mark.parametrize(
    ("candidates", "size", "bits", "certain"),
    [(1, 1, CERTAIN, True), (2, 1, CERTAIN, False), (35, 35, 55, True), (36, 36, 55, False)],
)
def test_coincidence_is_less_likely_than_one_in_a_million(
    candidates: int, size: int, bits: int, certain: bool
) -> None:
    assert is_certain(candidates, size, bits) == certain


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("count", [100, 500, MAX_PAIRS])
def test_up_to_three_missing_of_many_candidates_are_found(count: int, size: int) -> None:
    ids = drawn(count + size, count, 55)
    lost = tuple(sorted(random.Random(size).sample(range(count), size)))
    assert solve(sum_of(ids, lost), ids, 55) == Sets(lost)


@pytest.mark.parametrize(("count", "size"), [(100, 4), (100, 50), (MAX_PAIRS + 1, 3)])
def test_more_missing_of_many_candidates_are_not_told(count: int, size: int) -> None:
    ids = drawn(count, count, 55)
    assert solve(sum_of(ids, tuple(range(size))), ids, 55) == SEVERAL


def test_two_missing_of_very_many_candidates_are_found() -> None:
    ids = drawn(6, 10 * MAX_PAIRS, 55)
    assert solve(ids[7] ^ ids[-1], ids, 55) == Sets((7, len(ids) - 1))
    assert solve(drawn(7, 1, 55)[0], ids, 55) == SEVERAL


def test_two_small_sets_of_many_candidates_are_several() -> None:
    ids = drawn(8, 63 + MAX_FREE + 1)
    ids += [ids[0] ^ ids[1] ^ ids[2], ids[3] ^ ids[4]]
    assert solve(ids[0] ^ ids[1], ids, 63) == SEVERAL, "0 and 1, or 2 and the last but one"
    assert solve(ids[3], ids, 63) == SEVERAL, "3, or 4 and the last one"
    assert solve(ids[5] ^ ids[6], ids, 63) == Sets((5, 6))
