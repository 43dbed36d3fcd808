"""A source whose namespace is resharded, or gets another tick."""

from contextlib import suppress
from typing import Any

import pytest

from acker_redis import Acker, Backoff, Batch, Record
from acker_redis.errors import NamespaceNotFoundError, RedisUnavailableError
from acker_redis.ops.reshard import Progress, reshard
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import AnySource, Clock, MakeSource
from tests.source.test_timeouts import SILENT, TIMEOUT, steps
from tests.support import row, tick, total
from tests.waiting import LIMIT


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a reshard poll without pauses."""
    monkeypatch.setattr("acker_redis.flows.reshard.LONGEST_PAUSE", 0.0)


class Reshard:
    """Reshards; the source runs a step at each progress report."""

    def __init__(self, acker: Acker, clock: Clock, source: AnySource) -> None:
        self._acker, self._clock, self._source = acker, clock, source
        self.looks = 0

    def to(self, shards: int, ticks: int = 0) -> None:
        self.looks = 0
        status = self._acker.status

        def on_progress(progress: Progress) -> None:
            if progress.step == "drain":
                tick(self._acker, ticks)
                for _ in range(40):
                    self._clock.advance(1.0)
                    self._source.step()
                    self.looks += 1
                    if not any(status().backlog.values()):
                        break

        assert reshard(self._acker, shards, on_progress=on_progress, wait=LIMIT).shards == shards


def test_records_emitted_during_a_reshard_are_tracked_after_it(
    make_source: MakeSource,
    make_any_acker: MakeAcker,
    called: CallbackLog,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    acker = make_any_acker(shards=2)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, backoff=Backoff(0.01, 0.01))
    for number in range(8):
        source.emit(f"before-{number}")
    source.step()
    kept = bolts.sent[:2]
    bolts.sent = bolts.sent[2:]
    bolts.ack()
    for number in range(8):
        source.emit(f"meanwhile-{number}")
    source._flows._flows.known = acker.config
    Reshard(acker, clock, source).to(8, ticks=3)
    assert "the namespace is resharding" in caplog.text
    assert sorted(called.take())[-2:] == [f"fail {r.source_id} expired no ack" for r, *_ in kept]
    for _ in range(20):
        clock.advance(1.0)
        source.step()
        bolts.ack()
    assert source.pending == 0
    wanted = {f"ack meanwhile-{number}" for number in range(8)}
    assert set(called.take()) == wanted | {f"ack {record.source_id}" for record, *_ in kept}
    assert total(acker)["pending"] == 0


def test_unreplayed_nacks_do_not_block_a_reshard(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    """They stay in the stream until their records are tracked again, after the reshard."""
    acker = make_any_acker()
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, backoff=Backoff(3600.0, 3600.0))
    source.emit("a")
    source.step()
    bolts.fail("no")
    source.step()
    assert (called.take(), acker.status().backlog) == (["fail a failed no"], {"t": 1})
    move = Reshard(acker, clock, source)
    move.to(2)
    assert acker.status().backlog == {"t": 1}
    move.to(1)
    assert acker.status().backlog == {"t": 1}, "it stays on its shard, which is kept"
    clock.advance(3600.0)
    source.step()
    bolts.ack()
    source.step()
    assert (called.take(), source.pending) == (["ack a"], 0)


@pytest.mark.parametrize("shards", [(1, 2), (2, 1)])
def test_nack_is_delivered_again_after_a_crash_during_a_reshard(
    make_source: MakeSource,
    make_any_acker: MakeAcker,
    called: CallbackLog,
    clock: Clock,
    shards: tuple[int, int],
) -> None:
    """To more shards at any time; to fewer shards as long as trees are pending."""
    acker = make_any_acker(shards=shards[0])
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, backoff=Backoff(3600.0, 3600.0))
    for name in "abcdefgh":
        source.emit(name)
    source.step()
    bolts.fail("no")
    source.step()
    assert len(called.take()) == 8
    row(acker, 2, 5)  # stays pending
    looks = list[Progress]()

    def on_progress(progress: Progress) -> None:
        if progress.step == "drain" and progress.pending:
            looks.append(progress)
            for _ in range(3):
                clock.advance(11.0)
                source.step()
            assert acker.status().backlog == {"t": 8}
            if shards[1] == 1:
                raise KeyboardInterrupt  # the reshard is interrupted, too
            tick(acker, 3)

    with suppress(KeyboardInterrupt):
        reshard(acker, shards[1], on_progress=on_progress, wait=LIMIT)
    assert looks
    again = make_source(acker, bolts.send, reload=lambda name: Record(name, name))
    for _ in range(5):
        clock.advance(11.0)
        again.step()
    assert sorted(called.take()) == sorted(f"fail {name} failed no" for name in "abcdefgh")


def test_last_nacks_on_a_removed_shard_are_taken(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    """They are taken once the reshard waits for nothing else, and are tracked after it."""
    acker = make_any_acker(shards=2)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send, backoff=Backoff(3600.0, 3600.0))
    for name in "abcdefgh":
        source.emit(name)
    source.step()
    bolts.fail("no")
    source.step()
    move = Reshard(acker, clock, source)
    move.to(1)
    assert move.looks > 1
    clock.advance(3600.0)
    source.step()
    bolts.ack()
    source.step()
    assert {each for each in called.take() if "ack" in each} == {
        f"ack {name}" for name in "abcdefgh"
    }
    assert source.pending == 0


def test_take_without_reply_on_a_shard_that_is_then_removed(
    make_source: MakeSource, make_any_acker: MakeAcker, called: CallbackLog, clock: Clock
) -> None:
    acker = make_any_acker(shards=4)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send)
    for number in range(16):
        source.emit(str(number))
    source.step()
    bolts.ack()
    with Lost(source), pytest.raises(RedisUnavailableError):
        source.step()
    assert acker.status().backlog == {"t": 0}
    reshard(acker, 1)
    with suppress(NamespaceNotFoundError):
        source.step()
    source.emit("more")
    source.step()
    bolts.ack()
    source.step()
    assert "ack more" in called.take()
    assert source.pending == 0


def test_verdicts_of_new_shards_are_read_by_a_source_that_tracks_nothing(
    make_source: MakeSource, acker: Acker, called: CallbackLog, clock: Clock
) -> None:
    """Another program tracks for it, for example a service, and the source reads the verdicts."""
    source = make_source(acker)
    source.step()
    reshard(acker, 4)
    batch = Batch("t")
    for anchor in range(4, 8):
        batch.track(anchor, str(anchor), [])
    acker.apply(batch)
    clock.advance(11.0)
    source.step()
    assert sorted(called.take()) == ["ack 4", "ack 5", "ack 6", "ack 7"]


def test_longer_tick_is_read_before_any_attempt_is_given_up(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog, clock: Clock
) -> None:
    source = make_source(acker, bolts.send)
    source.emit("a")
    source.step()
    acker.configure(tick_ms=10 * acker.config.tick_ms)
    steps(source, clock, 9 * TIMEOUT)
    assert (called.take(), len(bolts.sent)) == ([], 1)
    acker.configure(tick_ms=acker.config.tick_ms // 10)
    steps(source, clock, 20 * TIMEOUT)
    assert called.take()[0] == f"fail a timeout {SILENT}"


class Lost:
    """Lose the replies of ``take``."""

    def __init__(self, source: AnySource) -> None:
        self._connection: Any = source.acker.connection
        self._run = self._connection.run
        self._is_async = hasattr(self._connection, "whole")

    def __enter__(self) -> None:
        def run(call: Any) -> Any:
            reply = self._run(call)
            if call.script == "take":
                raise RedisUnavailableError("the reply was lost")
            return reply

        async def run_async(call: Any) -> Any:
            reply = await self._run(call)
            if call.script == "take":
                raise RedisUnavailableError("the reply was lost")
            return reply

        self._connection.run = run_async if self._is_async else run

    def __exit__(self, *error: object) -> None:
        self._connection.run = self._run
