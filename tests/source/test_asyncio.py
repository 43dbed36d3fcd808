"""The asyncio source only: cancelled tasks, and callbacks that run concurrently."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from acker_redis import Acker, Backoff, MessageId, Record
from acker_redis.aio import AsyncAcker, AsyncSource
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import BufferFullError, ConfigError
from tests.source.bolts import Bolts, CallbackLog
from tests.source.twin import LIMIT
from tests.support import backlog, tick, total
from tests.transport.proxy import Proxy
from tests.waiting import wait_until_async

Open = Callable[..., Any]


@pytest.fixture
def opened(any_server: EmbeddedRedis, acker: Acker, called: CallbackLog) -> Open:
    """Open a source with a separate acker."""

    @asynccontextmanager
    async def open_one(send: Any, url: str = "", **options: Any) -> AsyncIterator[AsyncSource]:
        options = {"backoff": Backoff(0, 0), **called.callbacks, **options}
        async with AsyncAcker.from_url(url or any_server.url, acker.namespace) as twin:
            yield AsyncSource(twin, "t", send, **options)

    return open_one


def run(main: Awaitable[None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(LIMIT):
            await main

    asyncio.run(within())


def test_due_records_are_sent_concurrently(opened: Open, bolts: Bolts, called: CallbackLog) -> None:
    async def main() -> None:
        everyone = asyncio.Barrier(10)

        async def send(record: Record, ids: tuple[MessageId, ...]) -> None:
            await everyone.wait()
            bolts.send_and_ack(record, ids)

        async with opened(send) as source:
            for number in range(10):
                await source.emit(f"record-{number}")
            assert await source.join()

    run(main())
    assert len(called.take()) == 10


def test_waiters_leave_the_steps_to_the_sources_own_task(
    opened: Open, bolts: Bolts, called: CallbackLog, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        tasks: set[Any] = set()

        async def note(record: Record) -> None:
            tasks.add(asyncio.current_task())
            called.on_ack(record)

        async with opened(bolts.send_and_ack, on_ack=note, max_pending=1) as source, source:
            await source.emit("a")
            await source.emit("b")
            assert await source.join()
        assert len(tasks) == 1
        assert asyncio.current_task() not in tasks

    run(main())
    assert called.take() == ["ack a", "ack b"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_concurrent_emits_never_exceed_max_pending(
    opened: Open, bolts: Bolts, called: CallbackLog
) -> None:
    async def main() -> None:
        most: list[int] = []

        async def send(record: Record, ids: tuple[MessageId, ...]) -> None:
            most.append(source.pending)
            await asyncio.sleep(0)
            bolts.send_and_ack(record, ids)

        for pumped in (True, False):
            async with opened(send, max_pending=3) as source:
                if pumped:
                    await source.start()
                await asyncio.gather(*(source.emit(f"record-{n}") for n in range(40)))
                assert await source.join()
                await source.stop()
        assert max(most) <= 3

    run(main())
    assert len(called.take()) == 80


def test_cancelled_emit_emits_nothing(
    opened: Open, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    async def main() -> None:
        for pumped in (True, False):
            async with opened(bolts.send, max_pending=1) as source:
                if pumped:
                    await source.start()
                await source.emit("a")
                waiter = asyncio.create_task(source.emit("never"))
                await wait_until_async(lambda: bolts.sent)
                waiter.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiter
                bolts.ack()
                assert await source.join()
                await source.emit("b")
                await wait_until_async(lambda: bolts.sent) if pumped else await source.step()
                bolts.ack()
                assert await source.join()
                await source.stop()

    run(main())
    assert called.take() == ["ack a", "ack b"] * 2


def test_step_cancelled_at_any_await_leaves_no_partial_state(
    opened: Open, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    """Cancelled after 0, 1, 2, .. turns of the loop; records tracked and not sent expire."""

    async def main() -> None:
        async def send(record: Record, ids: tuple[MessageId, ...]) -> None:
            await asyncio.sleep(0)
            bolts.send(record, ids)

        async with opened(send) as source:
            for number in range(60):
                await source.emit(f"record-{number}")
                if number % 3 == 0:
                    bolts.fail("no")
                else:
                    bolts.ack()
                step = asyncio.create_task(source.step())
                for _ in range(number % 20):
                    await asyncio.sleep(0)
                step.cancel()
                await asyncio.wait([step])
            for _ in range(200):
                await source.step()
                bolts.ack()
                tick(acker)
                if not source.pending:
                    break
            assert source.pending == 0

    run(main())
    acked = [word for word in called.take() if word.startswith("ack ")]
    assert sorted(acked) == sorted(f"ack record-{number}" for number in range(60))
    assert total(acker)["conflict"] == 0
    assert backlog(acker) == 0


def test_run_can_be_cancelled_and_run_again(
    opened: Open, bolts: Bolts, called: CallbackLog
) -> None:
    async def main() -> None:
        async with opened(bolts.send) as source:
            for name in "abc":
                await source.emit(name)
                runner = asyncio.create_task(source.run())
                await wait_until_async(lambda: bolts.sent)
                runner.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await runner
                bolts.ack()
            assert await source.join()

    run(main())
    assert called.take() == ["ack a", "ack b", "ack c"]


def test_verdict_is_delivered_again_after_a_cancelled_callback(
    opened: Open, bolts: Bolts, called: CallbackLog
) -> None:
    async def main() -> None:
        entered = asyncio.Event()

        async def note(record: Record) -> None:
            called.on_ack(record)
            if not entered.is_set():
                entered.set()
                await asyncio.sleep(LIMIT)

        async with opened(bolts.send_and_ack, on_ack=note) as source:
            await source.emit("a")
            runner = asyncio.create_task(source.run())
            await entered.wait()
            runner.cancel()
            await asyncio.wait([runner])
            assert source.pending == 1
            assert await source.join()

    run(main())
    assert called.take() == ["ack a", "ack a"]


def test_consumer_that_leaves_verdicts_early_lets_others_step(
    opened: Open, bolts: Bolts, called: CallbackLog
) -> None:
    async def main() -> None:
        async with opened(bolts.send_and_ack) as source:
            for name in "ab":
                await source.emit(name)
            async for verdict in source.verdicts():
                first = verdict.record.source_id
                break
            assert source.pending == 2, "the unfinished verdict does not count"
            assert await source.join()
            assert first in ("a", "b")

    run(main())
    assert sorted(called.take()) == ["ack a", "ack b"]


@pytest.mark.parametrize("error", [OSError("disk full"), asyncio.CancelledError()])
def test_source_task_survives_exceptions_of_callbacks(
    opened: Open, bolts: Bolts, called: CallbackLog, error: Any
) -> None:
    """Also a CancelledError of another task, which the callback awaited."""

    async def main() -> None:
        called.raises = [error]
        async with opened(bolts.send_and_ack) as source, source:
            await source.emit("a")
            assert await source.join()
            assert source._pump
            assert not source._pump.done()

    run(main())
    assert called.take() == ["ack a", "ack a"]


def test_source_task_survives_a_send_that_awaits_a_cancelled_task(
    opened: Open, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    async def main() -> None:
        cancels = [1]

        async def send(record: Record, ids: tuple[MessageId, ...]) -> None:
            if cancels:
                cancels.pop()
                raise asyncio.CancelledError
            bolts.send_and_ack(record, ids)

        async with opened(send) as source, source:
            await source.emit("a")
            while source.pending:
                await source.join(0.01)
                tick(acker)

    run(main())
    assert called.take()[-1] == "ack a"


def test_tasks_awaited_by_a_callback_emit_without_waiting(
    opened: Open, bolts: Bolts, called: CallbackLog
) -> None:
    async def main() -> None:
        async def note(record: Record) -> None:
            called.on_ack(record)
            if record.source_id == "a":
                await asyncio.gather(source.emit("b"), source.emit("c"))

        async with opened(bolts.send_and_ack, max_pending=1, on_ack=note) as source, source:
            await source.emit("a")
            assert await source.join()

    run(main())
    assert sorted(called.take()) == ["ack a", "ack b", "ack c"]


def test_task_that_outlives_its_callback_waits_for_room(
    opened: Open, bolts: Bolts, called: CallbackLog
) -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []

        async def later() -> None:
            await wait_until_async(lambda: not source._turn.locked())
            await source.emit("too much", timeout=0.01)

        async def send(record: Record, ids: tuple[MessageId, ...]) -> None:
            bolts.send(record, ids)
            tasks.append(asyncio.create_task(later()))

        async with opened(send, max_pending=1) as source:
            await source.emit("a")
            await source.step()
            with pytest.raises(BufferFullError):
                await tasks[0]

    run(main())


def test_refused_task_does_not_stop_the_steps_of_others(
    opened: Open, bolts: Bolts, called: CallbackLog
) -> None:
    async def main() -> None:
        async with opened(bolts.send_and_ack) as source, source:
            await asyncio.sleep(0)
            with pytest.raises(ConfigError, match="another task runs source"):
                await source.run()
            await source.emit("a")
            assert await source.join()

    run(main())
    assert called.take() == ["ack a"]


def test_batch_cancelled_while_awaiting_its_reply_is_retried_under_its_number(
    opened: Open, acker: Acker, bolts: Bolts, called: CallbackLog, proxy: Proxy
) -> None:
    async def main() -> None:
        async with opened(bolts.send, url=proxy.url) as source:
            await source.step()
            for number in range(10):
                await source.emit(f"record-{number}")
                proxy.swallow = 1
                step = asyncio.create_task(source.step())
                await wait_until_async(lambda: proxy.swallow == 0)
                step.cancel()
                await asyncio.wait([step])
            while len(bolts.sent) < 10 and source.pending:
                await source.step()
                tick(acker)
            assert len({record.source_id for record, _, _ in bolts.sent}) == 10
            bolts.ack()
            while source.pending:
                await source.step()
                bolts.ack()
                tick(acker)

    run(main())
    acked = {word for word in called.take() if word.startswith("ack ")}
    assert acked == {f"ack record-{number}" for number in range(10)}
    assert total(acker)["conflict"] == 0


def test_cancelled_track_block_fails_its_tree(
    opened: Open, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    async def main() -> None:
        async with opened(None) as source:
            entered = asyncio.Event()

            async def crawl() -> None:
                async with source.track("page") as tree:
                    tree.emit()
                    entered.set()
                    await asyncio.sleep(LIMIT)

            crawler = asyncio.create_task(crawl())
            await entered.wait()
            crawler.cancel()
            with pytest.raises(asyncio.CancelledError):
                await crawler
            await source.step()
            assert source.pending == 0

    run(main())
    assert called.take()[0] == "fail page failed CancelledError"


def test_record_cancelled_while_being_tracked_is_unknown(
    opened: Open, acker: Acker, called: CallbackLog
) -> None:
    async def main() -> None:
        async with opened(None) as source:
            await source.step()

            async def crawl() -> None:
                async with source.track("page"):
                    raise AssertionError("entered")

            for turns in range(3):
                crawler = asyncio.create_task(crawl())
                for _ in range(turns + 1):
                    await asyncio.sleep(0)
                crawler.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await crawler
            await wait_until_async(lambda: not source.acker.connection._whole)
            tick(acker, 3)
            await source.step()
            await source.step()
            assert source.pending == 0

    run(main())
    assert called.take() == []
