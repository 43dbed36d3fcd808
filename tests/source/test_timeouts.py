"""The source's own timeout, in case Redis has lost its data."""

import pytest

from acker_redis import Acker
from acker_redis.flows.source import MAX_REVIVED
from acker_redis.protocol.keys import ShardKeys
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import Clock, MakeSource
from tests.support import tick, total

LIFE = 3 * 3600.0
"""Maximum lifetime of a tree in the tests' configuration, in seconds."""
TIMEOUT = 1.5 * LIFE + 5
SILENT = "no verdict came; no rotator has ticked: run acker-redis rotator"
"""Why an attempt timed out, in a namespace without ticks."""


def lose_all(acker: Acker) -> None:
    """Empty Redis, and create the namespace again."""
    acker.connection.client.flushall()
    acker.create(acker.config)


def steps(source: object, clock: Clock, seconds: float) -> None:
    """Advance the clock in small steps, and run the source after each."""
    for _ in range(20):
        clock.advance(seconds / 20)
        source.step()  # type: ignore[attr-defined]


def test_record_lost_by_redis_is_replayed_after_the_source_timeout(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a")
    source.step()
    bolts.sent.clear()
    lose_all(acker)
    steps(source, clock, TIMEOUT - 60)
    assert (called.take(), bolts.sent) == ([], []), "not before"
    steps(source, clock, TIMEOUT * 0.6)
    assert called.take() == [f"fail a timeout {SILENT}"]
    assert bolts.attempts == [("a", 2)]
    bolts.ack()
    source.step()
    assert (called.take(), source.pending) == (["ack a"], 0)


def test_source_timeout_is_never_shorter_than_trees_live(
    make_source: MakeSource,
    acker: Acker,
    bolts: Bolts,
    called: CallbackLog,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = make_source(acker, bolts.send, timeout=LIFE / 2)
    source.emit("a")
    source.step()
    assert "is too short" in caplog.text
    steps(source, clock, LIFE)
    assert called.take() == [], "the tree may still be acked"
    assert caplog.text.count("is too short") == 1
    bolts.ack()
    source.step()
    assert called.take() == ["ack a"]
    source = make_source(acker, bolts.send, timeout=LIFE + 1)
    source.emit("a")
    source.step()
    lose_all(acker)
    steps(source, clock, LIFE)
    assert called.take() == []
    steps(source, clock, LIFE)
    assert called.take()[:1] == [f"fail a timeout {SILENT}"]


def test_last_timeout_makes_a_dead_letter(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send, attempts=1)
    source.emit("a")
    source.step()
    lose_all(acker)
    steps(source, clock, 2 * TIMEOUT)
    words = f"a timeout {SILENT}"
    assert called.take() == [f"fail {words}", f"dead {words}"]
    assert source.pending == 0


def test_callback_that_raises_at_a_timeout_is_called_again(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send, adaptive=False)
    for name in ("a", "b"):
        source.emit(name)
    source.step()
    bolts.sent.clear()
    lose_all(acker)
    called.raises = [OSError("disk full")] * 2
    for _ in range(2):
        with pytest.raises(OSError, match="disk full"):
            steps(source, clock, 2 * TIMEOUT)
        assert (source.pending, bolts.sent) == (2, [])
    source.step()
    source.step()
    assert sorted(bolts.attempts) == [("a", 2), ("b", 2)]
    assert len(called.take()) == 4


def test_late_verdict_of_a_timed_out_attempt_is_ignored(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a")
    source.step()
    steps(source, clock, 2 * TIMEOUT)
    assert called.take()[0] == f"fail a timeout {SILENT}"
    late, current = bolts.sent[0], bolts.sent[-1]
    bolts.sent = [late]
    bolts.ack()
    source.step()
    assert (called.take(), source.pending) == ([], 1)
    bolts.sent = [current]
    bolts.ack()
    source.step()
    assert (called.take(), source.pending) == (["ack a"], 0)


def test_touch_restarts_the_source_timeout(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("touched")
    source.emit("not touched")
    source.step()
    touched, other = bolts.sent
    bolts.sent = [touched]
    for _ in range(4):
        steps(source, clock, 0.6 * TIMEOUT)
        bolts.touch()
    words = called.take()
    assert words
    assert set(words) == {f"fail not touched timeout {SILENT}"}
    bolts.sent = [touched]
    bolts.ack()
    source.step()
    assert called.take() == ["ack touched"]


def test_source_checks_redis_before_timing_out_refreshed_trees(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    """More trees than one step checks: none may be given up unchecked."""
    acker = make_any_acker(refresh="update")
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, max_pending=2000)
    count = 2 * MAX_REVIVED + 10
    for number in range(count):
        source.emit(f"record-{number}")
    source.step()
    for _ in range(2):
        steps(source, clock, 2 * TIMEOUT)
    assert (called.take(), source.pending) == ([], count)
    bolts.sent.pop()
    bolts.ack()
    while source.step() == 0:
        pass
    assert len(called.take()) == count - 1
    lose_all(acker)
    steps(source, clock, 2 * TIMEOUT)
    assert [word.split(" ", 2)[2] for word in called.take()[:1]] == [f"timeout {SILENT}"]


@pytest.mark.parametrize("late_s", [0, 3600, 9 * 3600])
def test_timeout_names_a_rotator_that_has_stopped(
    make_source: MakeSource,
    acker: Acker,
    bolts: Bolts,
    called: CallbackLog,
    clock: Clock,
    late_s: int,
) -> None:
    """A tick of one hour that is late by up to that is no cause."""
    source = make_source(acker, bolts.send)
    source.emit("a")
    source.step()
    lose_all(acker)
    tick(acker)
    before = acker.status().shards[0].ticked_ms - 1000 * late_s
    acker.connection.command("HSET", ShardKeys(acker.namespace, 0).meta, "ticked_ms", before)
    steps(source, clock, 2 * TIMEOUT)
    (word,) = called.take()[:1]
    assert word.startswith("fail a timeout no verdict came")
    assert ("; no rotator has ticked for " in word) == (late_s == 9 * 3600)


def test_expiry_by_a_tick_precedes_the_source_timeout(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a")
    source.step()
    tick(acker, 3)
    steps(source, clock, 0.3 * TIMEOUT)
    assert called.take() == ["fail a expired no ack"]
    assert total(acker)["pending"] == 1
