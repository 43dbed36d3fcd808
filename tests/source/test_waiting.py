"""``max_pending``, ``join()``, and which thread runs the steps."""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from acker_redis import Acker, Source
from acker_redis.errors import BufferFullError, ClosedError, ConfigError
from acker_redis.trees.record import Record
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import AnySource, MakeSource
from tests.waiting import LIMIT, wait_until


def in_threads(count: int, work: Callable[[int], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_emit_waits_while_max_pending_records_are_open(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    with make_source(acker, bolts.send, max_pending=2) as source:
        source.emit("a")
        source.emit("b")
        (emitter,) = in_threads(1, lambda _: source.emit("c"))
        wait_until(lambda: len(bolts.sent) == 2, "two records that are sent")
        assert emitter.is_alive()
        assert source.pending == 2
        bolts.ack()
        emitter.join(LIMIT)
        wait_until(lambda: bolts.attempts == [("c", 1)], "the third")
        bolts.ack()
        assert source.join(LIMIT)


def test_emit_times_out_and_emits_nothing(
    make_source: MakeSource, acker: Acker, bolts: Bolts
) -> None:
    source = make_source(acker, bolts.send, max_pending=1)
    source.emit("a")
    with pytest.raises(BufferFullError, match="1 records of t are open"):
        source.emit("b", timeout=0.1)
    with (
        pytest.raises(BufferFullError),
        source.track("c", timeout=0.1),
    ):
        raise AssertionError("entered")
    assert source.pending == 1
    assert bolts.attempts == [("a", 1)], "emit() ran steps while it waited"


def test_emit_runs_steps_itself_without_a_thread(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send_and_ack, max_pending=3)
    for number in range(20):
        source.emit(f"record-{number}")
    assert source.join(LIMIT)
    assert len(called.take()) == 20


def test_callbacks_emit_without_waiting(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    left = list("bcdefg")

    def more(record: Record) -> Any:
        called.on_ack(record)
        return source.emit(left.pop(0)) if left else None

    source = make_source(acker, bolts.send_and_ack, max_pending=1, on_ack=more)
    with source:
        source.emit("a")
        assert source.join(LIMIT)
    assert called.take() == [f"ack {name}" for name in "abcdefg"]


def test_send_emits_without_waiting(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    left = list("bcdefg")

    def send(record: Record, ids: object) -> Any:
        bolts.send_and_ack(record, ids)
        return source.emit(left.pop(0)) if left else None

    source = make_source(acker, send, max_pending=1)
    with source:
        source.emit("a")
        assert source.join(LIMIT)
    assert sorted(called.take()) == [f"ack {name}" for name in "abcdefg"]


def test_waiting_emits_do_not_exceed_max_pending(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    most: list[int] = []

    def send(record: Record, ids: object) -> None:
        most.append(source.pending)
        bolts.send_and_ack(record, ids)

    source = make_source(acker, send, max_pending=3)
    with source:
        emitters = in_threads(40, lambda n: source.emit(f"record-{n}"))
        for emitter in emitters:
            emitter.join(LIMIT)
        assert source.join(LIMIT)
    assert len(called.take()) == 40
    assert max(most) <= 3


def test_concurrent_waiters_share_the_remaining_room(
    make_source: MakeSource, acker: Acker, bolts: Bolts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waiter checks for room before any of them is added."""
    source = make_source(acker, bolts.send, max_pending=3)
    source.step()
    live = source._flows.live

    def slow_to_look() -> int:
        count: int = live()
        if not hasattr(source, "source"):
            time.sleep(0.002)  # lets the others check; the result is right without it, too
        return count

    monkeypatch.setattr(source._flows, "live", slow_to_look)

    def emit(number: int) -> None:
        try:
            source.emit(f"record-{number}", timeout=0.2)
        except BufferFullError:
            refused.append(number)

    refused: list[int] = []
    emitters = in_threads(12, emit)
    for emitter in emitters:
        emitter.join(LIMIT)
    assert (live(), len(refused)) == (3, 9)


def test_record_counts_as_pending_at_every_moment(
    make_source: MakeSource, acker: Acker, bolts: Bolts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a join() in another thread would return too early."""
    source = make_source(acker, bolts.send)
    add, seen = source._flows.pending.add, []

    def adds(*args: Any) -> None:
        seen.append(source.pending)
        add(*args)
        seen.append(source.pending)

    monkeypatch.setattr(source._flows.pending, "add", adds)
    source.emit("a")
    source.step()
    assert min(seen) >= 1


def test_join_waits_for_the_last_record_or_returns_false(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send)
    assert source.join(0), "no record is pending"
    source.emit("a")
    assert not source.join(0.05)
    bolts.ack()
    assert source.join(LIMIT)
    assert called.take() == ["ack a"]


def test_between_start_and_stop_callbacks_are_called_by_one_thread(
    make_source: MakeSource,
    acker: Acker,
    bolts: Bolts,
    called: CallbackLog,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also when other threads wait in emit() and join() from the start."""
    callers: set[int] = set()

    def note(record: Record) -> None:
        callers.add(threading.get_ident())
        called.on_ack(record)

    for _ in range(20):
        source = make_source(acker, bolts.send_and_ack, max_pending=1, on_ack=note)
        with caplog.at_level(logging.ERROR), source:
            source.emit("a")
            source.emit("b")
            assert source.join(LIMIT)
        assert len(callers) == 1
        assert threading.get_ident() not in callers
        callers.clear()
        assert called.take() == ["ack a", "ack b"]
    assert not caplog.records


def test_callback_that_raises_is_called_again_by_the_sources_thread(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    """A thread that waits in join() does not call it, and does not get its exception."""
    callers: list[int] = []

    def note(record: Record) -> None:
        callers.append(threading.get_ident())
        called.on_ack(record)

    called.raises = [OSError("disk full")]
    with make_source(acker, bolts.send_and_ack, on_ack=note) as source:
        source.emit("a")
        assert source.join(LIMIT)
    assert called.take() == ["ack a", "ack a"]
    assert threading.get_ident() not in callers


def test_source_continues_after_stop_and_start(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send)
    for name in "abc":
        with source:
            source.emit(name)
            wait_until(lambda: len(bolts.sent) == 1, "it is sent")
        bolts.ack()
    with source:
        assert source.join(LIMIT)
    assert sorted(called.take()) == ["ack a", "ack b", "ack c"]
    source.start()
    source.start()
    source.stop()
    source.stop()


def test_run_works_after_stop(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send_and_ack)
    with source:
        pass
    (runner,) = in_threads(1, lambda _: source.run())
    wait_until(lambda: emits(source, "a"), "a source that runs again")
    wait_until(lambda: called.words == ["ack a"], "the ack")
    assert runner.is_alive()
    source.stop()
    runner.join(LIMIT)
    assert not runner.is_alive()


def emits(source: AnySource, name: str) -> bool:
    with suppress(ClosedError):
        source.emit(name)
        return True
    return False


def test_callback_can_stop_the_source(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    def note(record: Record) -> Any:
        called.on_ack(record)
        return source.stop()

    source: Any = make_source(acker, bolts.send_and_ack, on_ack=note)
    for name in ("a", "b"):
        source.emit(name)
        source.run()
        assert called.take() == [f"ack {name}"]


def test_second_concurrent_run_is_refused(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send_and_ack)
    with source:
        source.emit("a")
        assert source.join(LIMIT)
        with pytest.raises(ConfigError, match="another (thread|task) runs source"):
            source.run()
        with pytest.raises(ConfigError, match="another (thread|task) runs source"):
            next(iter(source.verdicts()))
        source.emit("b")
        assert source.join(LIMIT)
    assert called.take() == ["ack a", "ack b"]


def test_forked_child_has_an_empty_source(
    acker: Acker, bolts: Bolts, called: CallbackLog, any_server: Any
) -> None:
    """The records belong to the parent: the child neither sends them nor gets their verdicts."""
    own = Acker.from_url(any_server.url, acker.namespace)
    source = Source(own, "t", bolts.send, **called.callbacks, max_pending=3)
    with source:
        source.emit("queued before")
        wait_until(lambda: len(bolts.sent) == 1, "it is sent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert source.pending == 0
                bolts.sent.clear()
                assert source.step() >= 0
                assert (bolts.sent, called.words) == ([], [])
                own_task = Source(own, "child", bolts.send_and_ack, on_ack=called.on_ack)
                own_task.emit("the child's own")
                assert own_task.join(LIMIT)
                assert called.words == ["ack the child's own"]
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        bolts.ack()
        assert source.join(LIMIT)
    assert called.take() == ["ack queued before"]
    own.close()
