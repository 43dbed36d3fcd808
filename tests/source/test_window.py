"""The window of an edge, rule by rule, with a clock that the test moves."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acker_redis.trees.window import Window
from tests.tiers import examples

T = 10.0
"""Seconds that trees live."""


def busy(window: Window, now: float, count: int, took: float = 0.1, waits: bool = True) -> None:
    """Send and answer records, one window after the other, while others wait."""
    for _ in range(count):
        if waits:
            window.waits()
        window.sent(now)
        window.answered(now, took)


def down(most: int = 100) -> Window:
    """Return the window of an edge that has answered, and is down at time 10."""
    window = Window(most, T)
    busy(window, 0.0, 1)
    for _ in range(9):
        window.sent(0.0)
    window.expired(T)
    window.room(T)
    return window


def test_it_doubles_each_second_until_the_first_answer() -> None:
    window, sent = Window(1000, T), []
    for second in range(6):
        room = int(window.room(second))
        sent.append(room)
        for _ in range(room):
            window.sent(second)
        window.waits()
    assert sent == [100, 100, 200, 400, 200, 0]
    careful = Window(1000, T)
    careful.begin_carefully()
    for _ in range(10):
        careful.sent(0.0)
    careful.waits()
    assert careful.room(5.0) == 0


def test_it_never_exceeds_the_most() -> None:
    window = Window(100, T)
    assert window.room(0.0) == 100
    busy(window, 0.0, 50)
    assert (window.size, window.room(0.0)) == (100, 100)


def test_silence_lets_one_record_go_each_time_it_doubles() -> None:
    window = Window(100, T)
    busy(window, 0.0, 20)
    window.sent(0.0)
    at = []
    for tenth in range(1, 95):
        if window.room(tenth / 10) and tenth > 11:
            at.append(tenth / 10)
            window.sent(tenth / 10)
    assert at == [1.2, 2.4, 4.8]
    window.answered(9.5, 9.5)
    assert window.size == 4, "the records in flight"


def test_one_slow_record_does_not_hold_the_others_back() -> None:
    window = Window(100, T)
    busy(window, 0.0, 20)
    window.sent(0.0)
    assert window.room(1.2) == 1
    window.sent(1.2)
    window.answered(1.3, 0.1)
    assert window.room(1.3) >= 1


def test_edge_without_an_answer_for_a_lifetime_gets_one_probe_a_lifetime() -> None:
    window = down()
    assert (window.size, window.down_since) == (1, T)
    for _ in range(8):
        window.expired(T + 1)
    sent = 0
    for tenth in range(110, 1000):
        now = tenth / 10
        if window.room(now):
            sent += 1
            window.sent(now)
        if tenth % 100 == 20:
            window.expired(now)
    assert sent == 9


def test_probes_go_on_while_records_are_stuck_on_a_shard_that_is_away() -> None:
    window = down()
    assert window.in_flight == 8
    assert window.room(3 * T) == 1


def test_first_answer_opens_it_again_fast() -> None:
    window = down()
    for _ in range(8):
        window.expired(T)
    window.sent(T)
    window.answered(T + 1, 1.0)
    assert (window.down_since, window.size) == (None, 1)
    busy(window, T + 1, 8)
    assert window.size >= 8, "one an answer, up to the number in flight before"
    busy(window, T + 1, 100)
    assert window.size < 40, "slower above that"


def test_failure_is_an_answer() -> None:
    """A consumer that fails each record is there: nothing shrinks."""
    window = Window(100, T)
    for second in range(100):
        window.sent(second)
        window.answered(second, 0.1)
    assert (window.size, window.down_since) == (100, None)


def test_expiries_halve_it_once_a_lifetime() -> None:
    window = Window(100, T)
    for _ in range(100):
        window.sent(0.0)
    for _ in range(50):
        window.expired(5.0)
    assert 45 < window.size < 50
    window.expired(5.0 + T)
    assert 20 < window.size <= 25


def test_few_expiries_among_answers_shrink_nothing() -> None:
    window = Window(100, T)
    for round_ in range(50):
        busy(window, round_, 10)
        window.sent(round_)
        window.expired(round_)
    assert window.size == 100


def test_window_that_does_not_limit_does_not_grow() -> None:
    window = Window(100, T, size=10)
    busy(window, 0.0, 50, waits=False)
    assert window.size == 10
    busy(window, 0.0, 5)
    assert window.size == 15


def test_it_grows_slowly_while_answers_have_queued() -> None:
    window = Window(1000, T, size=10)
    busy(window, 0.0, 10, took=0.1)
    size = window.size
    busy(window, 0.0, 20, took=3.0)
    assert 0 < window.size - size < 2


def test_answers_that_are_heard_a_little_later_are_no_silence() -> None:
    """All take three seconds, so they come together; the source hears them with its next step."""
    window, sent = Window(100, 60.0, size=5, _threshold=5), list[float]()
    for step in range(100):
        busy(window, (step - 100) / 20, 1, took=3.0, waits=False)
    for step in range(2400):
        now = step / 20
        while sent and sent[0] + 3.05 <= now:
            window.answered(now, 3.0)
            sent.pop(0)
        for _ in range(int(window.room(now))):
            window.sent(now)
            sent.append(now)
        window.waits()
    assert window.size > 60


def test_answer_after_half_a_lifetime_adds_nothing() -> None:
    window = Window(1000, T, size=10)
    busy(window, 0.0, 2, took=0.1)
    size = window.size
    busy(window, 0.0, 1, took=0.6 * T)
    assert window.size == size


def test_window_shrinks_to_the_records_in_flight_when_answers_become_slow() -> None:
    window = Window(100, T)
    busy(window, 0.0, 20, took=0.1, waits=False)
    for step in range(1, 31):
        for _ in range(2):
            window.sent(step)
        window.answered(step, 0.4 * T)
    assert 5 < window.size < 35


def test_record_that_was_not_sent_says_nothing() -> None:
    window = Window(100, T)
    window.sent(0.0)
    window.withdrawn()
    assert (window.in_flight, window.room(20.0), window.down_since) == (0, 100, None)


def test_time_in_which_no_answer_could_be_heard_is_no_silence() -> None:
    window = Window(100, T)
    busy(window, 0.0, 10)
    window.sent(0.0)
    window.pardon(50.0)
    assert (window.room(50.5), window.down_since) == (99, None)


@pytest.mark.parametrize("now", [0.0, 1e9])
def test_infinite_window_never_limits(now: float) -> None:
    window = Window(math.inf, T)
    for _ in range(10_000):
        window.sent(0.0)
    assert window.room(now) == math.inf


def test_window_of_one() -> None:
    window = Window(1, T)
    assert window.room(0.0) == 1
    window.sent(0.0)
    assert window.room(0.0) == 0
    window.answered(0.1, 0.1)
    assert window.room(0.1) == 1


def test_long_idle_time_is_no_silence() -> None:
    window = Window(100, T)
    busy(window, 0.0, 10)
    assert window.room(1e6) == 100
    window.sent(1e6)
    assert (window.room(1e6 + 0.5), window.down_since) == (99, None)


def test_first_answer_after_an_outage_is_no_second_beginning() -> None:
    """A consumer that answers once and stops again: the window does not double meanwhile."""
    window = down()
    for _ in range(8):
        window.expired(T)
    window.sent(T)
    window.answered(T + 0.1, 0.1)
    for tenth in range(102, 200):
        while window.room(tenth / 10) >= 1:
            window.sent(tenth / 10)
        window.waits()
    assert 1 < window.in_flight <= 5


@pytest.mark.parametrize("careful", [False, True])
def test_records_stuck_on_a_shard_that_is_away_hold_no_others_back(careful: bool) -> None:
    """Its verdicts do not come, and other records are answered."""
    window, sent = Window(100, T), 0
    if careful:
        window.begin_carefully()
    for _ in range(10):
        window.sent(0.0)
    for tenth in range(100, 600):
        now = tenth / 10
        if window.room(now) >= 1:
            window.sent(now)
            window.waits()
            window.answered(now, 0.1)
            sent += 1
        window.waits()
    assert sent > 100


def test_trees_that_are_kept_alive_for_lifetimes_are_no_outage() -> None:
    """Touched, or refreshed by each row: their answers come later than a lifetime."""
    window = Window(1000, T)
    busy(window, 0.0, 20, took=6 * T)
    for _ in range(20):
        window.sent(1000.0)
    assert window.room(1000.0 + 5 * T) > 1
    assert window.down_since is None
    window.room(1000.0 + 50 * T)
    assert window.down_since is None, "no record has expired"


def test_probe_that_was_not_sent_is_no_probe() -> None:
    window = down()
    assert window.room(T) == 1
    window.sent(T)
    assert window.room(T) == 0
    window.withdrawn()
    assert window.room(T) == 1


def test_errors_of_redis_make_no_more_probes() -> None:
    window = down()
    window.sent(T)
    window.pardon(T + 1)
    assert window.room(T + 1) == 0


@settings(max_examples=examples(10))
@given(
    lifetime=st.sampled_from([0.4, 1.0, T]),
    careful=st.booleans(),
    history=st.lists(
        st.tuples(
            st.sampled_from(["sent", "sent", "answered", "expired", "withdrawn", "error"]),
            st.sampled_from([0.0, 0.0, 0.1, 1.0, T, 6 * T]),
        ),
        max_size=40,
    ),
)
def test_records_flow_after_any_history(
    lifetime: float, careful: bool, history: list[tuple[str, float]]
) -> None:
    """Also if some remain in flight, because their shard is away: the others are answered."""
    window, now = Window(1000, lifetime), 0.0
    if careful:
        window.begin_carefully()
    for what, seconds in history:
        now += seconds
        window.room(now)
        if what == "sent":
            window.sent(now)
        elif what == "error":
            window.pardon(now)
        elif not window.in_flight:
            continue
        elif what == "answered":
            window.answered(now, seconds)
        elif what == "expired":
            window.expired(now)
        else:
            window.withdrawn()
    stuck, sent, end = window.in_flight, 0, now + 20 * T + 10 * window.in_flight
    while sent < 100:
        now += lifetime / 50
        assert now < end, (sent, window)
        if window.room(now) >= 1:
            window.sent(now)
            window.waits()
            window.answered(now, 0.01)
            sent += 1
        window.waits()
    assert window.in_flight == stuck
