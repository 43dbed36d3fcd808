"""The frontier: what a source may commit."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker_redis import frontier
from acker_redis.errors import ConfigError
from acker_redis.frontier import Frontier
from acker_redis.outcomes import BlockOutcome

RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda r: (r[0], r[0] + r[1])),
    max_size=30,
)


@given(st.integers(0, 10), RANGES)
def test_it_is_what_sets_say(start: int, ranges: list[tuple[int, int]]) -> None:
    front, done = Frontier(start), set(range(start))
    for first, end in ranges:
        before = front.position
        done |= set(range(first, end))
        position = front.complete(first, end)
        expected = next(offset for offset in range(100) if offset not in done)
        assert position == front.position == expected >= before
        missing = {o for gap in front.gaps() for o in range(*gap)}
        assert missing == set(range(expected, max(done, default=-1) + 1)) - done


def test_single_offsets_and_what_comes_twice() -> None:
    front = Frontier(5)
    assert front.complete(4) == 5
    assert front.complete(6) == 5
    assert front.complete(6) == 5
    assert front.complete(5) == 7
    assert list(front.gaps()) == []


def test_a_range_that_ends_before_it_begins() -> None:
    with pytest.raises(ConfigError, match="no range"):
        Frontier().complete(5, 4)


def test_it_is_fed_by_the_ranges_of_a_block() -> None:
    """Kafka: slot = offset - base; a failed slot pins the frontier until its replay is done."""
    base = 1000
    front = Frontier(base)
    verdict = BlockOutcome("mixed", "expired", 7, "t/0/1000", 0, 10, failed=(3,), nacked=(7,))
    for first, end in verdict.acked():
        front.complete(base + first, base + end)
    assert front.position == 1003
    assert list(front.gaps()) == [(1003, 1004), (1007, 1008)]
    front.complete(1003)
    assert front.complete(1007) == 1010


def test_the_example_in_its_docstring() -> None:
    assert doctest.testmod(frontier).failed == 0
