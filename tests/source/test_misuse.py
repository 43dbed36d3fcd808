"""Calls that would wait for themselves, and sources that nothing runs."""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acker_redis import Acker, Record, Source
from acker_redis.aio import AsyncAcker, AsyncSource
from acker_redis.errors import AckerError, ClosedError
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import AnySource, MakeSource
from tests.source.test_waiting import in_threads
from tests.support import backlog
from tests.waiting import LIMIT, wait_until

CALLBACKS = ("send", "on_ack", "on_fail", "dead_letter", "reload", "on_group")


@pytest.fixture
def calls(make_source: MakeSource, acker: Acker, bolts: Bolts) -> Callable[..., AnySource]:
    """Make a source of which one callback makes a call, and records that reach that callback."""

    def make(callback: str, call: Callable[[AnySource], Any]) -> AnySource:
        def calling(*args: Any) -> Any:
            return call(source)

        def send(record: Record, ids: Any) -> Any:
            bolts.send(record, ids)
            (bolts.fail if record.source_id == "bad" else bolts.ack)()
            return calling() if callback == "send" else None

        options: dict[str, Any] = {"attempts": 1, "on_group": lambda result: None}
        if callback == "reload":
            with make_source(acker, bolts.send) as earlier:
                earlier.emit("old")
                wait_until(lambda: bolts.sent, "the message of an earlier program")
            bolts.fail()
        if callback != "send":
            options[callback] = calling
        source = make_source(acker, send, **options)
        return source

    return make


def feed(source: AnySource, callback: str) -> None:
    """Emit a record that leads to the callback."""
    if callback == "on_group":
        in_threads(1, lambda _: emit_group(source))
    elif callback != "reload":
        source.emit("bad" if callback in ("on_fail", "dead_letter") else "good")


def emit_group(source: AnySource) -> None:
    with source.group("g") as group:
        group.emit("good")


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize("method", ["join", "step", "run"])
def test_callback_that_would_wait_for_itself_gets_an_error_at_once(
    calls: Callable[..., AnySource], callback: str, method: str
) -> None:
    errors: list[BaseException] = []

    def call(source: AnySource) -> Any:
        try:
            result = getattr(source, method)()
        except BaseException as error:
            errors.append(error)
            return None
        return caught(result)

    async def caught(result: Any) -> None:
        try:
            await result
        except BaseException as error:
            errors.append(error)

    source = calls(callback, call)
    with source:
        feed(source, callback)
        wait_until(lambda: errors, "the error")
    assert type(errors[0]) is AckerError
    name = "verdicts" if method == "run" else method
    assert f"{name}() inside a callback of source t would wait for itself" in str(errors[0])


@pytest.mark.parametrize("callback", CALLBACKS)
def test_any_callback_may_stop_the_source(calls: Callable[..., AnySource], callback: str) -> None:
    stopped: list[str] = []

    def call(source: AnySource) -> Any:
        result = source.stop()
        stopped.append(callback)
        return result

    source = calls(callback, call)
    source.start()
    feed(source, callback)
    wait_until(lambda: stopped, "the callback")
    source.stop()
    with pytest.raises(ClosedError):
        source.emit("later")


def test_unthreaded_step_in_a_callback_is_refused_and_the_next_step_continues(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    nested = [True]

    def note(record: Record) -> Any:
        called.on_ack(record)
        return source.step() if nested.pop() else None

    source: Any = make_source(acker, bolts.send_and_ack, on_ack=note)
    source.emit("a")
    source.step()
    nested.insert(0, False)
    with pytest.raises(AckerError, match="wait for itself"):
        source.step()
    source.step()
    assert (called.take(), backlog(acker)) == (["ack a", "ack a"], 0)


def test_join_in_a_loop_over_verdicts_is_refused(
    make_source: MakeSource, acker: Acker, bolts: Bolts
) -> None:
    source = make_source(acker, bolts.send_and_ack)
    source.emit("a")
    if hasattr(source, "source"):  # the body of a loop over verdicts() is in the task of the step

        async def consumes() -> None:
            async for _ in source.source.verdicts():
                await source.source.join()

        with pytest.raises(AckerError, match="wait for itself"):
            source._loop.call(consumes())
    else:
        with pytest.raises(AckerError, match="wait for itself"):
            for _ in source.verdicts():
                source.join()


def test_emit_after_the_block_is_an_error_until_the_source_runs_again(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    source = make_source(acker, bolts.send_and_ack)
    with source:
        source.emit("a")
        assert source.join(LIMIT)
    for call in (lambda: source.emit("b"), lambda: tracks(source, "b")):
        with pytest.raises(ClosedError, match=r"source t was stopped: call start\(\), run\(\)"):
            call()
    assert source.pending == 0
    source.step()
    source.emit("c")
    assert source.join(LIMIT)
    assert called.take() == ["ack a", "ack c"]


def tracks(source: AnySource, name: str) -> None:
    with source.track(name):
        raise AssertionError("entered")


def test_emit_that_waits_for_room_ends_with_the_block(
    make_source: MakeSource, acker: Acker, bolts: Bolts
) -> None:
    """Otherwise its thread would go on to run the steps of a source that was stopped."""
    errors: list[BaseException] = []

    def emits(_: int) -> None:
        try:
            source.emit("b")
        except BaseException as error:
            errors.append(error)

    with make_source(acker, bolts.send, max_pending=1) as source:
        source.emit("a")
        (emitter,) = in_threads(1, emits)
        wait_until(lambda: bolts.sent, "the first record")
    emitter.join(LIMIT)
    assert [type(error) for error in errors] == [ClosedError]


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    with caplog.at_level(logging.WARNING):
        yield lambda: [each for each in caplog.messages if "nothing ran source t" in each]


def test_records_of_a_source_that_nothing_runs_are_reported(
    kind: str, acker: Acker, bolts: Bolts, any_server: Any, warned: Callable[[], list[str]]
) -> None:
    async def emits() -> None:
        async with AsyncAcker.from_url(any_server.url, acker.namespace) as own:
            source = AsyncSource(own, "t", bolts.send)
            await source.emit("a")
            await source.emit("b")

    if kind == "asyncio":
        asyncio.run(emits())
    else:
        with Acker.from_url(any_server.url, acker.namespace) as own:
            source = Source(own, "t", bolts.send)
            source.emit("a")
            source.emit("b")
            del source
    gc.collect()
    assert len(warned()) == 1
    assert "2 records were emitted and not tracked" in warned()[0]


def test_source_that_was_run_is_not_reported(
    make_source: MakeSource, acker: Acker, bolts: Bolts, warned: Callable[[], list[str]]
) -> None:
    source = make_source(acker, bolts.send_and_ack)
    source.emit("a")
    assert source.join(LIMIT)
    finalizer = source._forgotten if hasattr(source, "_forgotten") else source.source._forgotten
    finalizer()
    assert warned() == []
