"""A source in an outage of its consumers: probes, free attempts, and what it says of them."""

import contextlib
from collections import Counter
from typing import Any

import pytest

from acker_redis import Acker, Backoff, Entry, Outcome, Record
from acker_redis.errors import BacklogError, BufferFullError, ConfigError
from acker_redis.trees.pending import Pending
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import AnySource, Clock, MakeSource
from tests.support import backlog, tick

LIFE = 3 * 3600.0
"""Seconds that trees live at least, in the tests' configuration; all sleeps are moved clocks."""


@pytest.fixture
def acker(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(edges=("parts", "dead"))


def expire(source: AnySource, acker: Acker, clock: Clock) -> None:
    """Let a lifetime pass: all trees expire, and the source hears it and sends what it may."""
    tick(acker, 4)
    clock.advance(acker.config.timeout_ms / 1000 + 1)
    for _ in range(3):
        source.step()


def test_an_outage_makes_no_dead_letter_and_ends_by_itself(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send, attempts=2, give_up_after=10**9)
    for number in range(20):
        source.emit(f"r{number}")
    source.step()
    for _ in range(30):
        expire(source, acker, clock)
    assert not [word for word in called.take() if word.startswith("dead")]
    assert source.pending == 20
    assert len(bolts.sent) < 60, "probes, one a lifetime"
    assert len({record.source_id for record, *_ in bolts.sent}) == 20, "they go round"
    for _ in range(60):
        bolts.ack()
        clock.advance(2)
        source.step()
    assert (source.pending, source.status()[0].down_for) == (0, None)


def test_attempt_of_a_live_edge_counts(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    """A poison record: after each of its attempts others are acked, so all of them count."""
    source = make_source(acker, bolts.send, attempts=3)
    source.emit("poison")
    for number in range(40):
        source.emit(f"r{number}")
        source.step()
        bolts.sent = [each for each in bolts.sent if each[0].source_id != "poison"]
        bolts.ack()
        expire(source, acker, clock)
        bolts.sent = [each for each in bolts.sent if each[0].source_id != "poison"]
        bolts.ack()
        source.step()
        words = called.take()
        if any(word.startswith("dead poison") for word in words):
            break
    else:
        pytest.fail("the poison record never became a dead letter")
    assert number < 15


@pytest.mark.parametrize(("idle_ms", "free"), [(60_000, 1), (55_000, 1), (50_000, 0), (0, 0)])
def test_probe_whose_tree_had_a_row_counts(idle_ms: int, free: int) -> None:
    """A consumer works on it, too slowly. A row right after TRACK is of the source itself."""
    pending = Pending(5, Backoff(0, 0), True, most=10)
    pending.live_for(60.0)
    pending.add(Record("slow"))
    for number, now in enumerate((0.0, 61.0), 1):
        record = pending.next(now)
        assert record
        pending.tracking(record, number, now)
        nack = Outcome("nack", "expired", number, "slow", 60_000, "", "idle", 0, idle_ms)
        (_,) = pending.verdicts(Entry(0, f"{number}-0", 0, (nack,)), now + 60)
    assert (record.attempt, record.free) == (2 - free, free)


def test_record_is_given_up_after_a_time_of_free_attempts(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send, attempts=2, give_up_after=20 * LIFE)
    source.emit("a")
    source.step()
    for _ in range(18):
        expire(source, acker, clock)
    assert not [word for word in called.take() if word.startswith("dead")]
    for _ in range(4):
        expire(source, acker, clock)
    assert called.take()[-1].startswith("dead a outage no answer for 2")
    assert source.pending == 0


def test_dead_edge_does_not_hold_the_others_up(
    make_source: MakeSource, acker: Acker, bolts: Bolts, clock: Clock
) -> None:
    source = make_source(acker, bolts.send, max_pending=20)
    source.emit("first", edge="parts")
    with pytest.raises(BufferFullError):
        for number in range(30):
            source.emit(f"d{number}", edge="dead", timeout=0)
    for _ in range(5):
        expire(source, acker, clock)
        bolts.sent = [each for each in bolts.sent if each[0].edge == "parts"]
        bolts.ack()
    for number in range(50):
        source.emit(f"p{number}", edge="parts", timeout=0)
        source.step()
        assert [record.source_id for record, *_ in bolts.sent if record.edge == "parts"]
        bolts.sent = [each for each in bolts.sent if each[0].edge == "parts"]
        bolts.ack()
        source.step()
    dead, parts = source.status()
    assert (dead.edge, dead.waiting > 10, dead.down_for is not None) == ("dead", True, True)
    assert (parts.edge, parts.down_for) == ("parts", None)
    assert source.pending <= 20


def test_it_begins_carefully_if_expired_verdicts_wait(
    make_source: MakeSource, acker: Acker, bolts: Bolts, clock: Clock
) -> None:
    before = make_source(acker, bolts.send)
    before.emit("old")
    before.step()
    before.stop()
    tick(acker, 4)
    source = make_source(acker, bolts.send)
    for number in range(100):
        source.emit(f"r{number}")
    source.step()
    assert source.status()[0].in_flight == 10


def test_record_says_why_it_waits(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send, backoff=Backoff(1, 1))
    for name in "ab":
        source.emit(name, edge="parts")
    source.step()
    a, b = (record for record, *_ in bolts.sent)
    assert a.delivery == "in flight on edge parts, attempt 1"
    expire(source, acker, clock)
    assert a.delivery == "waits after attempt 1: back-off"
    clock.advance(1)
    source.step()
    a, b = (a, b) if bolts.sent[-1][0] is a else (b, a)
    assert a.delivery == "in flight on edge parts, attempt 2, a probe"
    assert "nothing is answered on edge parts, one probe a lifetime is sent" in b.delivery
    expire(source, acker, clock)
    assert (a.attempt, a.free) == (1, 1)
    assert Record("new").delivery == "not taken in yet"


def test_adaptive_false_sends_all_at_once(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send, adaptive=False, attempts=3)
    for number in range(20):
        source.emit(f"r{number}")
    source.step()
    for _ in range(2):
        expire(source, acker, clock)
    assert len(bolts.sent) == 60
    assert source.status()[0].window is None


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [("adaptive", 1, "adaptive is True or False"), ("give_up_after", 0, "more than 0")],
)
def test_bad_settings_are_refused(
    make_source: MakeSource, acker: Acker, option: str, value: object, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        make_source(acker, print, **{option: value})


@pytest.mark.parametrize("killed_after", [None, *range(6)])
def test_outage_that_fills_the_backlog_ends_by_itself(
    make_source: MakeSource,
    make_any_acker: MakeAcker,
    called: CallbackLog,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    killed_after: int | None,
) -> None:
    """Also with the smallest window, and if the program is killed anywhere and started again."""
    acker, let_go = make_any_acker(outcomes_limit=10), list[bool]()
    bolts, real = Bolts(acker), Pending.let_go
    monkeypatch.setattr(Pending, "let_go", lambda *args: let_go.append(True) or real(*args))
    names = {f"r{number}" for number in range(20)}

    def started() -> AnySource:
        source = make_source(acker, bolts.send, reload=Record, give_up_after=10**9)
        for name in sorted(names - {word[4:] for word in called.words if word[:3] == "ack"}):
            source.emit(name)
        return source

    def turn() -> None:
        tick(acker, 4)
        clock.advance(LIFE + 1)
        for _ in range(3):
            with contextlib.suppress(BacklogError):
                source.step()

    source = started()
    for number in range(6):
        if number == killed_after:
            source._flows.pending = None
            source = started()
        turn()
    assert let_go, "the backlog was full"
    assert not [word for word in called.words if word.startswith("dead")]
    for _ in range(60):
        bolts.ack()
        turn()
    assert (source.pending, backlog(acker)) == (0, 0)
    assert names == {word[4:] for word in called.words if word.startswith("ack")}


def test_send_that_raises_is_no_answer(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    """No consumer has seen the record: its failure says nothing about them."""

    def send(record: Record, ids: Any) -> None:
        if record.source_id == "bad":
            raise OSError("no such address")
        bolts.send(record, ids)

    source = make_source(acker, send, attempts=10, give_up_after=10**9)
    for number in range(20):
        source.emit(f"r{number}")
    for _ in range(2):
        source.step()
        expire(source, acker, clock)
    before = len(bolts.sent)
    source.emit("bad")
    for _ in range(20):
        expire(source, acker, clock)
        (edge,) = source.status()
        assert edge.down_for is not None
    assert "fail bad failed OSError: no such address" in " ".join(called.take())
    assert len(bolts.sent) - before <= 20
    assert edge.in_flight <= 1


def test_busy_edge_does_not_starve_another() -> None:
    """Each batch has 1,024 records at most, and more wait on one edge all the time."""
    pending, sent = Pending(5, Backoff(0, 0), True), Counter[str]()
    for turn in range(10):
        for number in range(20):
            pending.add(Record(f"{turn}-{number}", edge="import"))
        pending.add(Record(f"{turn}", edge="orders"))
        for number in range(10):
            record = pending.next(turn)
            assert record
            pending.tracking(record, 100 * turn + number, turn)
            sent[record.edge] += 1
        pending.drawn(full=True)
    assert sent["orders"] >= 9


def test_window_grows_beside_a_busy_edge() -> None:
    """It limits its own edge, although the other one fills each batch."""
    pending = Pending(5, Backoff(0, 0), True, most=1000)
    for number in range(2):
        pending.add(Record(f"{number}", edge="orders"))
    orders = pending.edges["orders"].window
    orders.size = 1.0
    for number in range(20):
        pending.add(Record(f"i{number}", edge="import"))
    for number in range(10):
        record = pending.next(0.0)
        assert record
        pending.tracking(record, number, 0.0)
    pending.drawn(full=True)
    ack = Outcome("ack", "completed", 0, "0", 100, "")
    assert len(list(pending.verdicts(Entry(0, "1-0", 0, (ack,)), 0.1))) == 1
    assert orders.size == 2


def test_batch_without_a_shard_is_not_limited_by_the_window(
    make_source: MakeSource, acker: Acker, bolts: Bolts
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a")
    flows = source._flows
    flows._take_in()
    flows._draw([])
    assert not flows.pending.edges[""].window._limits


def test_record_whose_entry_was_taken_early_waits_for_no_window_after_an_error() -> None:
    """Only the source knows of it now: an error while its ids are drawn must not delay it."""
    pending = Pending(5, Backoff(0, 0), True, most=1)
    for number in (1, 2):
        pending.add(Record(f"r{number}"), number)
    nacks = tuple(Outcome("nack", "failed", n, f"r{n}", 5, "") for n in (1, 2))
    assert len(list(pending.verdicts(Entry(0, "1-0", 0, nacks), 0.0))) == 2
    assert pending.let_go({0: 1}, 1.0)
    first = pending.next(1.0)
    assert first
    pending.put_back(first)
    assert pending.next(1.0) is first
    pending.tracking(first, 3, 1.0)
    assert pending.next(1.0), "the window is 1, and the other record is not held back either"
