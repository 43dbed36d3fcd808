"""Bolts: each program sends one whole row per message and anchor.

Most tests run with both the sync bolt and its asyncio twin, by the same programs.
"""

import asyncio
import doctest
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

import pytest

import acker_redis.aio.bolt
import acker_redis.sync.bolt
from acker_redis.aio.bolt import AsyncBolt, AsyncHandle
from acker_redis.errors import BufferFullError, ClosedError, InvalidBatchError
from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.rows import FAIL, TOUCH, Row
from acker_redis.sync.bolt import Bolt, Handle
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.processing import OpenTree, Processing

MESSAGE = "7:40,8:41"
OWN = {7: 40, 8: 41}


@pytest.mark.parametrize("module", [acker_redis.sync.bolt, acker_redis.aio.bolt])
def test_examples(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


class Rows:
    """A sink whose next calls raise the exceptions in ``refusals``, without taking the rows."""

    def __init__(self, *refusals: BaseException | None) -> None:
        self.taken: list[Row] = []
        self.calls: list[tuple[list[Row], bool]] = []
        self.refusals = list(refusals)
        self.refused_last = False

    def add(self, rows: list[Row], wait: bool = True) -> None:
        assert rows, "an unanchored message sends no rows"
        self.calls.append((rows, wait))
        refusal = self.refusals.pop(0) if self.refusals else None
        self.refused_last = refusal is not None
        if refusal:
            raise refusal
        self.taken += rows


class AsyncRows(Rows):
    """The asyncio twin of Rows; it suspends if it is allowed to wait."""

    async def add(self, rows: list[Row], wait: bool = True) -> None:  # type: ignore[override]
        if wait:
            await asyncio.sleep(0)
        super().add(rows, wait)


# A program is a list of words, so that both the sync and the asyncio bolt can run it.


class Bad(Exception):
    """Raised by the programs."""


@dataclass
class Played:
    """The result of a program."""

    sink: Rows
    error: BaseException | None
    children: list[MessageId]

    def check(self, own: dict[int, int] = OWN) -> None:
        """Check for one whole row per anchor, with all children, and at most one FAIL."""
        for anchor, tuple_id in own.items():
            rows = [row for row in self.sink.taken if row.anchor == anchor]
            whole = [row for row in rows if not row.flags & TOUCH and row.delta]
            expected = tuple_id
            for child in self.children:
                expected ^= child[anchor]
            assert [row.delta for row in whole] == [expected]
            assert sum(bool(row.flags & FAIL) for row in rows) <= 1

    @property
    def failed(self) -> bool:
        return any(row.flags & FAIL for row in self.sink.taken)


WORDS = ["emit", "ack", "fail", "touch", "raise", "try ack", "try fail"]


def play(program: tuple[str, ...], refusals: tuple[BaseException | None, ...] = ()) -> Played:
    sink = Rows(*refusals)
    children: list[MessageId] = []
    try:
        with Bolt(sink).process(MESSAGE) as t:
            for word in program:
                step(word, t, children)
    except BaseException as error:
        return Played(sink, error, children)
    return Played(sink, None, children)


def step(word: str, t: Handle, children: list[MessageId]) -> None:
    match word.split():
        case ["try", what]:
            try:
                step(what, t, children)
            except Exception:
                return
        case ["emit"]:
            children.append(t.emit())
        case ["ack"]:
            t.ack()
        case ["fail"]:
            t.fail("why")
        case ["touch"]:
            t.reset_timeout()
        case ["raise"]:
            raise Bad("bad")


def play_async(program: tuple[str, ...], refusals: tuple[BaseException | None, ...] = ()) -> Played:
    sink = AsyncRows(*refusals)
    children: list[MessageId] = []

    async def main() -> None:
        async with AsyncBolt(sink).process(MESSAGE) as t:
            for word in program:
                await step_async(word, t, children)

    try:
        asyncio.run(main())
    except BaseException as error:
        return Played(sink, error, children)
    return Played(sink, None, children)


async def step_async(word: str, t: AsyncHandle, children: list[MessageId]) -> None:
    match word.split():
        case ["try", what]:
            try:
                await step_async(what, t, children)
            except Exception:
                return
        case ["emit"]:
            children.append(t.emit())
        case ["ack"]:
            await t.ack()
        case ["fail"]:
            await t.fail("why")
        case ["touch"]:
            await t.reset_timeout()
        case ["raise"]:
            raise Bad("bad")


Play = Callable[..., Played]
BOTH = pytest.mark.parametrize("play", [play, play_async])


PROGRAMS = [program for length in range(4) for program in itertools.product(WORDS, repeat=length)]


FULL = BufferFullError("full")
REFUSALS = [(), (FULL,), (None, FULL), (FULL, FULL), (FULL, None, FULL)]


@BOTH
@pytest.mark.parametrize("words", [2, pytest.param(3, marks=pytest.mark.full)])
def test_every_short_program_sends_each_row_once(play: Play, words: int) -> None:
    """All programs of up to ``words`` words, with sinks that refuse some of the rows."""
    short = [program for program in PROGRAMS if len(program) <= words]
    for program, refusals in itertools.product(short, REFUSALS):
        played = play(program, refusals)
        try:
            _check_each_row_was_sent_once(program, played)
        except AssertionError as error:
            raise AssertionError(f"{program} {refusals} {played}") from error


def _check_each_row_was_sent_once(program: tuple[str, ...], played: Played) -> None:
    sink = played.sink
    unsaid = bool(sink.calls) and sink.refused_last
    if any(row.delta for row in sink.taken):
        played.check()
    else:
        assert unsaid, "a row was never sent"
    if played.error is not None:
        assert played.failed or unsaid
    if program and "fail" in program[0] and not any("ack" in word for word in program):
        assert all(row.flags for row in sink.taken), "acked a message that was failed"
    if not any("fail" in word for word in program) and played.error is None:
        assert not played.failed


@pytest.mark.parametrize(
    ("program", "error", "flags"),
    [
        ((), None, [0]),
        (("emit", "emit"), None, [0]),
        (("ack",), None, [0]),
        (("emit", "ack"), None, [0]),
        (("fail",), None, [FAIL]),
        (("raise",), Bad, [FAIL]),
        (("emit", "raise"), Bad, [FAIL]),
        (("ack", "raise"), Bad, [0, FAIL]),
        (("ack", "fail"), None, [0, FAIL]),
        (("ack", "fail", "raise"), Bad, [0, FAIL]),
        (("fail", "raise"), Bad, [FAIL]),
        (("ack", "ack"), ClosedError, [0, FAIL]),
        (("ack", "emit"), ClosedError, [0, FAIL]),
        (("ack", "touch"), ClosedError, [0, FAIL]),
        (("ack", "try ack"), None, [0]),
        (("fail", "ack"), ClosedError, [FAIL]),
        (("fail", "fail"), ClosedError, [FAIL]),
        (("fail", "emit"), ClosedError, [FAIL]),
        (("fail", "try ack"), None, [FAIL]),
        (("touch", "emit"), None, [TOUCH, 0]),
    ],
)
@BOTH
def test_rows_that_each_program_sends(
    play: Play, program: tuple[str, ...], error: type[Exception] | None, flags: list[int]
) -> None:
    played = play(program)
    played.check()
    assert type(played.error) is (error or type(None))
    assert not hasattr(played.error, "__notes__")
    assert [row.flags for row in played.sink.taken if row.anchor == 7] == flags


@BOTH
def test_failure_carries_the_exception_text_and_waits_for_no_room(play: Play) -> None:
    played = play(("raise",))
    assert played.sink.calls == [
        ([Row(7, 40, FAIL, "Bad: bad"), Row(8, 41, FAIL, "Bad: bad")], False)
    ]
    played = play(("ack", "emit"))
    assert [wait for _, wait in played.sink.calls] == [True, False]
    assert played.sink.taken[-1] == Row(8, 0, FAIL, "ClosedError: this message was acked before")


@BOTH
def test_explicit_calls_wait_for_room(play: Play) -> None:
    for word in ("ack", "fail", "touch"):
        assert play((word,)).sink.calls[0][1]
    assert play(()).sink.calls[0][1]


@BOTH
def test_refused_ack_becomes_a_failure(play: Play) -> None:
    for program in (("emit",), ("emit", "ack")):
        played = play(program, (BufferFullError("full"),))
        assert isinstance(played.error, BufferFullError)
        assert {row.text for row in played.sink.taken} == {"BufferFullError: full"}
        assert [wait for _, wait in played.sink.calls] == [True, False]
        played.check()


@BOTH
def test_refused_failure_never_becomes_an_ack(play: Play) -> None:
    for program, refusals in ((("try fail",), 1), (("fail",), 1), (("try fail", "raise"), 1)):
        played = play(program, (BufferFullError("full"),) * refusals)
        assert {(row.flags, row.text) for row in played.sink.taken} == {(FAIL, "why")}
        played.check()
    played = play(("try fail",), (BufferFullError("full"),) * 3)
    assert isinstance(played.error, BufferFullError)
    assert not played.sink.taken
    played = play(("try fail", "ack"), (BufferFullError("full"),))
    assert not played.failed
    played.check()


@BOTH
def test_interrupted_ack_becomes_a_failure(play: Play) -> None:
    for program in ((), ("ack",)):
        played = play(program, (KeyboardInterrupt(),))
        assert isinstance(played.error, KeyboardInterrupt)
        assert {row.text for row in played.sink.taken} == {"KeyboardInterrupt"}
        played.check()


@BOTH
def test_refused_ack_can_be_retried(play: Play) -> None:
    for program in (("try ack",), ("try ack", "emit"), ("try ack", "emit", "ack")):
        played = play(program, (BufferFullError("full"),))
        assert played.error is None
        assert not played.failed
        played.check()


@BOTH
def test_exception_propagates_if_the_failure_cannot_be_sent(play: Play) -> None:
    played = play(("raise",), (BufferFullError("full"),))
    assert isinstance(played.error, Bad)
    assert played.error.__notes__ == [
        "its trees cannot be failed and will expire: BufferFullError: full"
    ]
    assert not played.sink.taken


@BOTH
def test_interrupted_sink_is_not_called_again(play: Play) -> None:
    played = play(("raise",), (KeyboardInterrupt(),))
    assert isinstance(played.error, KeyboardInterrupt)
    assert len(played.sink.calls) == 1


@dataclass(frozen=True)
class Frozen(Exception):
    """An exception that accepts no note."""


def test_frozen_exception_propagates_too() -> None:
    handle = Handle(Processing(MESSAGE), Rows(BufferFullError("full")))
    handle.__exit__(Frozen, Frozen(), None)
    other = AsyncHandle(Processing(MESSAGE), AsyncRows(BufferFullError("full")))
    asyncio.run(other.__aexit__(Frozen, Frozen(), None))
    assert handle.processing.open
    assert other.processing.open


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_base_exceptions_fail_the_tree_too(error: BaseException) -> None:
    sink = Rows()
    with pytest.raises(type(error)), Bolt(sink).process(MESSAGE):
        raise error
    assert {row.flags for row in sink.taken} == {FAIL}
    Played(sink, None, []).check()


def test_closed_generator_fails_its_tree() -> None:
    sink = Rows()

    def messages() -> Generator[MessageId, None, None]:
        with Bolt(sink).process(MESSAGE) as t:
            yield t.emit()

    running = messages()
    child = next(running)
    running.close()
    assert {row.text for row in sink.taken} == {"GeneratorExit"}
    Played(sink, None, [child]).check()


def test_closed_async_generator_fails_its_tree() -> None:
    sink = AsyncRows()

    async def messages() -> AsyncIterator[MessageId]:
        async with AsyncBolt(sink).process(MESSAGE) as t:
            yield t.emit()

    async def main() -> MessageId:
        running: Any = messages()
        child: MessageId = await anext(running)
        await running.aclose()
        return child

    child = asyncio.run(main())
    assert {row.text for row in sink.taken} == {"GeneratorExit"}
    Played(sink, None, [child]).check()


def test_nested_processing() -> None:
    sink = Rows()
    bolt = Bolt(sink)
    with pytest.raises(Bad), bolt.process("7:40") as outer:
        with bolt.process("8:41", "9:42") as inner:
            child = bolt.emit(outer, inner)
        assert sink.taken == [Row(8, 41 ^ child[8]), Row(9, 42 ^ child[9])]
        raise Bad
    assert sink.taken[2:] == [Row(7, 40 ^ child[7], FAIL, "Bad")]


def test_a_window_is_acked_message_by_message() -> None:
    sink = Rows()
    bolt = Bolt(sink, ids=IdMaker(salt="00" * 16))
    window = [bolt.process(given) for given in ("7:40", "7:41,8:1", "")]
    child = bolt.emit(*window, key="sum")
    assert not sink.calls
    for t in window:
        t.ack()
    assert len(sink.calls) == 2
    assert sink.taken[0].delta ^ sink.taken[1].delta == 40 ^ 41 ^ child[7]
    assert sink.taken[2] == Row(8, 1 ^ child[8])
    assert bolt.emit() == MessageId()


def test_unanchored_message_sends_no_rows() -> None:
    sink = Rows()  # it refuses an empty list

    async def main() -> None:
        bolt = AsyncBolt(AsyncRows())
        for program in (("emit",), ("ack",), ("fail",), ("touch",)):
            async with bolt.process("", MessageId()) as t:
                await step_async(program[0], t, children)

    children: list[MessageId] = []
    for word in ("emit", "ack", "fail", "touch"):
        with Bolt(sink).process("") as t:
            step(word, t, children)
    with pytest.raises(Bad), Bolt(sink).process():
        raise Bad
    asyncio.run(main())
    assert children == [MessageId(), MessageId()]
    assert not sink.calls


def test_closed_handle_cannot_be_entered() -> None:
    sink = Rows()
    t = Bolt(sink).process("7:40")
    with pytest.raises(TypeError), t:
        raise TypeError
    with pytest.raises(ClosedError), t:
        pass
    assert len(sink.taken) == 1
    other = AsyncBolt(AsyncRows()).process("")

    async def main() -> None:
        async with other:
            pass
        async with other:
            pass

    with pytest.raises(ClosedError):
        asyncio.run(main())


def test_invalid_message_is_refused_before_the_block() -> None:
    for bolt in (Bolt(Rows()), AsyncBolt(AsyncRows())):
        for inputs in (["x"], ["7:40", "7:40"], [None]):
            with pytest.raises(InvalidBatchError):
                bolt.process(*inputs)


def test_handle_works_with_an_open_tree() -> None:
    sink, tree = Rows(), OpenTree("file/1")
    with Handle(tree, sink) as t:
        first = t.emit()
    assert sink.taken == [Row(tree.anchor, tree.opening.delta ^ first[tree.anchor])]


def test_many_threads_share_a_bolt() -> None:
    sink = Rows()
    bolt = Bolt(sink)

    def work(start: int) -> None:
        for n in range(start, start + 200):
            with bolt.process(f"{n}:40"):
                pass

    threads = [threading.Thread(target=work, args=(1 + 1000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({row.anchor for row in sink.taken}) == len(sink.taken) == 800


# Cancellation.


class Slow(AsyncRows):
    """A sink without room, until ``room`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.room = asyncio.Event()
        self.asked = asyncio.Event()

    async def add(self, rows: list[Row], wait: bool = True) -> None:  # type: ignore[override]
        if wait:
            self.asked.set()
            await self.room.wait()
        Rows.add(self, rows, wait)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 30))


def test_a_cancelled_block_fails_and_stays_cancelled() -> None:
    sink = AsyncRows()

    async def main() -> None:
        begun = asyncio.Event()

        async def work() -> None:
            async with AsyncBolt(sink).process(MESSAGE):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    run(main())
    assert sink.calls == [
        ([Row(7, 40, FAIL, "CancelledError"), Row(8, 41, FAIL, "CancelledError")], False)
    ]


@pytest.mark.parametrize("explicit", [False, True])
def test_ack_cancelled_while_it_waits_becomes_a_failure(explicit: bool) -> None:
    async def main() -> None:
        sink = Slow()

        async def work() -> None:
            async with AsyncBolt(sink).process(MESSAGE) as t:
                if explicit:
                    await t.ack()

        task = asyncio.create_task(work())
        await sink.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert {(row.flags, row.text) for row in sink.taken} == {(FAIL, "CancelledError")}
        Played(sink, None, []).check()

    run(main())


def test_nothing_is_emitted_while_an_ack_waits() -> None:
    async def main() -> None:
        sink = Slow()
        t = AsyncBolt(sink).process("7:40")
        task = asyncio.create_task(t.ack())
        await sink.asked.wait()
        for late in (t.emit, t.processing.acked):
            with pytest.raises(ClosedError):
                late()
        sink.room.set()
        await task
        assert sink.taken == [Row(7, 40)]

    run(main())


def test_waiting_ack_can_be_failed_by_another_task() -> None:
    async def main() -> None:
        sink = Slow()
        t = AsyncBolt(sink).process("7:40")
        task = asyncio.create_task(t.ack())
        await sink.asked.wait()
        await t._deliver(t.processing.failed("late"), wait=False)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The whole row is sent at most once; here never.
        assert sink.taken == [Row(7, 0, FAIL, "late")]
        with pytest.raises(ClosedError):
            await t.ack()

    run(main())
