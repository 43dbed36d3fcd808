"""The frontier: the position that a source may commit, and the offset that holds it back."""

import doctest
from itertools import count, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from acker_redis.errors import ConfigError
from acker_redis.sync.outcomes import BlockOutcome
from acker_redis.trees import frontier
from acker_redis.trees.frontier import Failures, Frontier, Pin, Quarantined
from tests.properties.play import play
from tests.tiers import examples

RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda r: (r[0], r[0] + r[1])),
    max_size=30,
)
OFFSETS = st.integers(-3, 20) | st.integers(0, 60)
WHYS = st.sampled_from(["no such city", "too late"])


@pytest.fixture(params=[1, 2, 4, frontier.PAGE])
def page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """With tiny pages, few offsets reach all borders; with pages of 1, all offsets are ranges."""
    monkeypatch.setattr(frontier, "PAGE", request.param)
    return int(request.param)


class Machine(RuleBasedStateMachine):
    """A Frontier and its model: sets, and a loop over all offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.front = Frontier(clock=lambda: self.now, remember=3)
        self.done = set(range(-10, 0))
        self.notes: dict[int, list[tuple[float, str]]] = {}
        self.pin: tuple[int, float] | None = None
        self.given_up: list[Quarantined] = []

    def position(self) -> int:
        return next(offset for offset in range(100) if offset not in self.done)

    def failures(self, offset: int) -> Failures:
        notes = self.notes.get(offset)
        if not notes:
            return Failures()
        return Failures(len(notes), notes[-1][1], notes[0][0], notes[-1][0])

    def then(self) -> None:
        """Update the model's pin after an operation."""
        position = self.position()
        if position <= max(self.done) or position in self.notes:
            if self.pin is None or self.pin[0] != position:
                self.pin = position, self.now
        else:
            self.pin = None

    @rule(first=OFFSETS, length=st.integers(0, 12), alone=st.booleans())
    def complete(self, first: int, length: int, alone: bool) -> None:
        self.now += 1
        end = first + 1 if alone else first + length
        self.done |= set(range(first, end))
        self.notes = {o: notes for o, notes in self.notes.items() if o not in self.done}
        assert self.front.complete(first, None if alone else end) == self.position()
        self.then()

    @rule(offset=OFFSETS, why=WHYS, ahead=st.sampled_from([None, 0.5]))
    def fail(self, offset: int, why: str, ahead: float | None) -> None:
        self.now += 1 + (ahead or 0)
        if offset not in self.done:
            self.notes.setdefault(offset, []).append((self.now, why))
        at = None if ahead is None else self.now
        assert self.front.fail(offset, why, at=at) == len(self.notes.get(offset, ()))
        self.then()

    @rule(offset=OFFSETS, why=st.just("") | WHYS)
    def quarantine(self, offset: int, why: str) -> None:
        self.now += 1
        if offset not in self.done:
            failures = self.failures(offset)
            self.given_up.append(Quarantined(offset, self.now, why or failures.why, failures))
        self.done.add(offset)
        self.notes.pop(offset, None)
        assert self.front.quarantine(offset, why) == self.position()
        self.then()

    @invariant()
    def matches_the_sets(self) -> None:
        position = self.position()
        assert self.front.position == position
        gaps = list(self.front.gaps())
        expected = set(range(position, max(self.done) + 1)) - self.done
        assert {o for gap in gaps for o in range(*gap)} == expected
        assert all(end < first for (_, end), (first, _) in pairwise(gaps))
        assert self.front.quarantined() == self.given_up[-3:]
        assert self.front.quarantines == len(self.given_up)
        pin = self.pin and Pin(*self.pin, self.failures(position))
        assert self.front.pinned() == pin

    @invariant()
    def keeps_only_offsets_in_flight(self) -> None:
        assert set(self.front._failures) == set(self.notes)
        ahead = self.front._ahead
        assert all(number >= self.front.position // frontier.PAGE for number in ahead._pages)
        assert all(first > self.front.position for first in ahead._ranges)
        ranges = pairwise(ahead._ranges.items())
        assert all(end < first for (_, end), (first, _) in ranges)
        if max(self.done) < self.front.position:
            assert len(ahead._pages) <= 1


def test_random_histories_match_sets_of_offsets(page: int) -> None:
    play(Machine, histories=examples(), steps=40)


@given(st.integers(0, 10), RANGES)
def test_frontier_matches_sets_of_offsets(start: int, ranges: list[tuple[int, int]]) -> None:
    front, done = Frontier(start), set(range(start))
    for first, end in ranges:
        before = front.position
        done |= set(range(first, end))
        position = front.complete(first, end)
        expected = next(offset for offset in range(100) if offset not in done)
        assert position == front.position == expected >= before
        missing = {o for gap in front.gaps() for o in range(*gap)}
        assert missing == set(range(expected, max(done, default=-1) + 1)) - done


@given(st.integers(0, 2**32), st.integers(-1000, 1000))
def test_any_order_of_all_offsets_ends_after_the_last(seed: int, start: int) -> None:
    """Single offsets, short and long ranges, over several whole pages."""
    chance = Random(seed)
    pieces, offset = [], start
    while offset < start + 3000:
        length = chance.choice((1, 1, 2, 100, frontier.PAGE, 600))
        pieces.append((offset, offset + length))
        offset += length
    chance.shuffle(pieces)
    front = Frontier(start)
    for first, end in pieces:
        position = front.complete(first, end)
        assert position == front.position
        assert next(front.gaps(), (position, None))[0] == position
    assert (front.position, list(front.gaps()), front.pinned()) == (offset, [], None)


def test_completing_an_offset_twice_is_a_no_op() -> None:
    front = Frontier(5)
    assert front.complete(4) == 5
    assert front.complete(6) == 5
    assert front.complete(6) == 5
    assert front.complete(5) == 7
    assert list(front.gaps()) == []


def test_range_of_any_length_is_one_entry() -> None:
    front = Frontier()
    assert front.complete(10, 2**62) == 0
    assert front.complete(2**61) == 0
    assert list(front.gaps()) == [(0, 10)]
    assert front.complete(0, 10) == 2**62
    assert front.complete(2**62) == 2**62 + 1


def test_a_hole_between_long_ranges_that_is_filled_twice() -> None:
    front = Frontier()
    front.complete(1000, 2000)
    front.complete(3000, 4000)
    front.complete(1500, 3500)
    front.complete(1200, 1201)
    assert list(front.gaps()) == [(0, 1000)]
    assert front.complete(0, 5000) == 5000
    assert front.pinned() is None


def test_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ConfigError, match="ends before it begins"):
        Frontier().complete(5, 4)


def test_ranges_of_a_block_advance_the_frontier() -> None:
    """Kafka: slot = offset - base; a failed slot pins the frontier until its replay completes."""
    base = 1000
    front = Frontier(base)
    verdict = BlockOutcome("mixed", "expired", 7, "t/0/1000", 0, 10, failed=(3,), nacked=(7,))
    for first, end in verdict.acked():
        front.complete(base + first, base + end)
    assert front.position == 1003
    assert list(front.gaps()) == [(1003, 1004), (1007, 1008)]
    front.complete(1003)
    assert front.complete(1007) == 1010


def test_holes_of_a_compacted_topic_are_completed_by_the_consumer() -> None:
    """The recipe of the docstring: two polls, the second of which returns only a marker."""
    front, expected = Frontier(100), 100
    for offsets, end in (((101, 102, 110), 112), ((), 113)):
        for offset in offsets:
            front.complete(expected, offset)
            expected = offset + 1
        front.complete(expected, end)
        expected = end
    assert list(front.gaps()) == [(101, 103), (110, 111)]
    for offset in (110, 101, 102):
        front.complete(offset)
    assert front.position == 113


def test_pinned_returns_a_poison_record_with_its_failures() -> None:
    front = Frontier(7)
    front.complete(8, at=10.0)
    assert front.pinned() == Pin(7, 10.0, Failures())
    assert front.fail(7, "no such city", at=11.0) == 1
    assert front.fail(7, "no such town", at=15.0) == 2
    assert front.pinned() == Pin(7, 10.0, Failures(2, "no such town", 11.0, 15.0))


def test_failed_last_record_of_a_topic_pins_the_frontier() -> None:
    front = Frontier(7)
    assert front.pinned() is None
    front.fail(7, "no such city", at=11.0)
    front.complete(8, at=12.0)
    assert front.pinned() == Pin(7, 11.0, Failures(1, "no such city", 11.0, 11.0))


def test_pin_starts_when_the_frontier_arrives_not_at_the_failure() -> None:
    front = Frontier(7)
    front.fail(8, "no such city", at=1.0)
    assert front.pinned() is None
    front.complete(7, at=5.0)
    assert front.pinned() == Pin(8, 5.0, Failures(1, "no such city", 1.0, 1.0))


def test_clock_is_used_without_explicit_time() -> None:
    front = Frontier(clock=count(1).__next__)
    front.complete(1)
    front.complete(2)
    front.fail(0, "no such city")
    assert front.pinned() == Pin(0, 1, Failures(1, "no such city", 2, 2))


def test_completed_replay_clears_failures() -> None:
    front = Frontier()
    for offset in (2, 3, 4, 9):
        front.fail(offset, "no such city")
    front.complete(3)
    front.complete(1, 6)
    front.complete(0)
    assert front.position == 6
    assert front.fail(9, "again") == 2
    assert [front.fail(offset, "late") for offset in (2, 3, 4, 5)] == [0, 0, 0, 0]


def test_late_failure_of_a_complete_offset_is_a_no_op() -> None:
    front = Frontier()
    front.complete(5)
    front.complete(1000, 2000)
    assert front.fail(5, "late") == front.fail(1999, "late") == 0
    assert front.fail(2000, "in time") == 1


def test_quarantined_offset_is_passed_and_listed() -> None:
    front = Frontier(7)
    front.complete(8, 10)
    front.fail(7, "no such city", at=11.0)
    assert front.quarantine(7, at=12.0) == 10
    given_up = Quarantined(7, 12.0, "no such city", Failures(1, "no such city", 11.0, 11.0))
    assert front.quarantined() == [given_up]
    assert front.quarantine(7, "again") == 10
    assert front.complete(7) == 10
    assert front.quarantined() == [given_up]


def test_last_quarantined_offsets_are_listed_and_all_are_counted() -> None:
    front = Frontier(remember=2)
    for offset in range(5):
        front.quarantine(offset, "parked")
    assert [given_up.offset for given_up in front.quarantined()] == [3, 4]
    assert front.quarantines == front.position == 5


def test_negative_remember_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 0"):
        Frontier(remember=-1)


def test_pages_are_dropped_when_the_frontier_has_passed_them() -> None:
    front = Frontier()
    for offset in range(1, 100_000, 2):
        front.complete(offset)
    front.complete(0, 99_000)
    assert len(front._ahead._pages) <= 1000 // frontier.PAGE + 2
    front.complete(99_000, 100_000)
    assert (len(front._ahead._pages), len(front._ahead._ranges)) == (0, 0)


def test_the_examples_in_its_docstrings() -> None:
    assert doctest.testmod(frontier).failed == 0
