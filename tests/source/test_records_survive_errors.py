"""Regressions: each of these once lost a record, or hung."""

import asyncio
import threading
from typing import Any

import pytest

from acker_redis import Acker, AckerConfig, Batch, Bolt, Producer, Record, Source
from acker_redis.aio import AsyncAcker, AsyncSource
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import BufferFullError, ConfigError, InvalidBatchError
from acker_redis.trees.processing import OpenTree
from tests.conftest import MakeAcker
from tests.source.bolts import Bolts, CallbackLog
from tests.source.conftest import MakeSource
from tests.waiting import LIMIT, wait_until


def test_verdicts_of_new_shards_are_read_without_an_error(
    make_any_acker: MakeAcker, make_source: MakeSource, called: CallbackLog
) -> None:
    """Another user of the acker notices first that the namespace was created again."""
    acker = make_any_acker(shards=1)
    bolts = Bolts(acker)
    source = make_source(acker, bolts.send_and_ack)
    source.step()
    acker.connection.client.flushall()
    made_restarted = AckerConfig(shards=8, tick_ms=3_600_000)
    acker.create(made_restarted)
    source.acker.flows.known = made_restarted
    for number in range(40):
        source.emit(str(number))
    for _ in range(4):
        source.step()
    assert len(called.take()) == 40
    assert source.pending == 0


def test_emit_that_steps_loses_no_verdict(acker: Acker, bolts: Bolts) -> None:
    """Without callbacks the verdict would be lost."""
    source = Source(acker, "t", bolts.send_and_ack, max_pending=10)
    with pytest.raises(BufferFullError, match="make sure that verdicts are read"):
        for number in range(25):
            source.emit(str(number))
    heard = [verdict.record.source_id for verdict in source.verdicts(until_closed=True)]
    assert sorted(heard, key=int) == [str(number) for number in range(10)]


@pytest.mark.parametrize("count", [-1, 65_537, 2**60, 1.0, True])
def test_invalid_numbers_of_messages_are_refused(acker: Acker, bolts: Bolts, count: Any) -> None:
    with pytest.raises(InvalidBatchError, match="messages"):
        Source(acker, "t", bolts.send).emit("odd", messages=count)


def test_no_record_is_lost_when_a_batch_cannot_be_built(
    make_source: MakeSource,
    acker: Acker,
    bolts: Bolts,
    called: CallbackLog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = make_source(acker, bolts.send_and_ack)
    for number in range(5):
        source.emit(str(number))
    fold, left = Batch.fold, [3]

    def fails_once(self: Batch, *args: Any) -> bool:
        left[0] -= 1
        if not left[0]:
            raise MemoryError
        return fold(self, *args)

    monkeypatch.setattr(Batch, "fold", fails_once)
    with pytest.raises(MemoryError):
        source.step()
    wait_until(lambda: source.step() >= 0 and not source.pending, "all five")
    assert sorted(called.take()) == [f"ack {number}" for number in range(5)]


def test_tree_closed_by_send_fails_and_other_records_continue(
    make_source: MakeSource, acker: Acker, bolts: Bolts, called: CallbackLog
) -> None:
    def send(record: Record, tree: OpenTree) -> None:
        if record.source_id == "2" and record.attempt == 1:
            tree.close()

    source = make_source(acker, send)
    for number in range(5):
        source.emit(str(number), messages=None)
    wait_until(lambda: source.step() >= 0 and not source.pending, "all five")
    words = called.take()
    assert sorted(word for word in words if word.startswith("ack")) == [
        f"ack {number}" for number in range(5)
    ]
    assert (
        "fail 2 failed send() has closed its tree, but the source closes it after send()" in words
    )


def test_callback_that_stops_and_raises_stops_the_source(acker: Acker, bolts: Bolts) -> None:
    calls: list[str] = []

    def on_ack(record: Record) -> None:
        calls.append(record.source_id)
        source.stop()
        raise ValueError("and out")

    source = Source(acker, "t", bolts.send_and_ack, on_ack=on_ack, poll=0.001)
    source.start()
    pump = source._pump
    source.emit("a")
    assert pump
    wait_until(lambda: not pump.is_alive(), "the end of the pump")
    assert calls == ["a"]


def test_unfinished_verdicts_generator_does_not_block_stop(acker: Acker, bolts: Bolts) -> None:
    source = Source(acker, "t", bolts.send_and_ack)
    source.emit("a")
    kept = source.verdicts()
    next(kept)
    source.start()
    stopper = threading.Thread(target=source.stop)
    stopper.start()
    stopper.join(LIMIT)
    assert not stopper.is_alive()
    kept.close()


def test_slow_send_delays_no_other_record(any_server: EmbeddedRedis, acker: Acker) -> None:
    async def main() -> None:
        done: list[str] = []
        slow = asyncio.Event()
        with Producer(acker, linger=0) as producer:
            bolt = Bolt(producer)

            async def send(record: Record, ids: Any) -> None:
                if record.source_id == "slow":
                    await slow.wait()
                with bolt.process(*ids):
                    pass

            async with AsyncAcker.from_url(any_server.url, acker.namespace) as twin:
                source = AsyncSource(twin, "t", send, on_ack=lambda r: done.append(r.source_id))
                async with source:
                    for name in ("a", "slow", "b"):
                        await source.emit(name)
                    while len(done) < 2:
                        await asyncio.sleep(0.001)
                    await source.emit("c")
                    while len(done) < 3:
                        await asyncio.sleep(0.001)
                    assert sorted(done) == ["a", "b", "c"]
                    slow.set()
                    assert await source.join(LIMIT)

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_send_cancelled_from_within_fails_alone(any_server: EmbeddedRedis, acker: Acker) -> None:
    async def main() -> None:
        failed: list[str] = []

        async def send(record: Record, tree: OpenTree) -> None:
            if record.source_id == "3" and record.attempt == 1:
                sub = asyncio.ensure_future(asyncio.sleep(60))
                sub.cancel()
                await sub

        async with AsyncAcker.from_url(any_server.url, acker.namespace) as twin:
            source = AsyncSource(
                twin, "t", send, on_fail=lambda r, reason, why: failed.append(why), poll=0.001
            )
            async with source:
                for number in range(6):
                    await source.emit(str(number), messages=None)
                assert await source.join(LIMIT)
        assert failed == ["CancelledError"]

    asyncio.run(asyncio.wait_for(main(), LIMIT))


@pytest.mark.parametrize("kind", ["coroutine", "generator", "object"])
def test_send_that_returns_a_coroutine_or_generator_has_not_sent(acker: Acker, kind: str) -> None:
    """The returned coroutine looks like success: the open tree would be closed and acked."""

    async def coroutine(record: Record, tree: Any) -> None: ...

    def generator(record: Record, tree: Any) -> Any:
        yield tree.emit()

    class Sender:
        async def __call__(self, record: Record, tree: Any) -> None: ...

    sends = {"coroutine": lambda r, t: coroutine(r, t), "generator": generator, "object": Sender()}
    called: list[str] = []
    source = Source(
        acker, "t", sends[kind], attempts=1,
        on_ack=lambda r: called.append("ack"),
        dead_letter=lambda r, reason, why: called.append(why),
    )  # fmt: skip
    source.emit("a", messages=None)
    assert source.join(LIMIT)
    (why,) = called
    assert "was not run" in why


def test_callback_that_returns_a_coroutine_is_refused(acker: Acker, bolts: Bolts) -> None:
    async def later(record: Record) -> None: ...

    source = Source(acker, "t", bolts.send_and_ack, on_ack=lambda record: later(record))
    source.emit("a")
    with pytest.raises(ConfigError, match="was not run"):
        for _ in range(5):
            source.step()
    assert source.pending == 1


def test_concurrent_stops_close_all_sent_trees(any_server: EmbeddedRedis, acker: Acker) -> None:
    async def main() -> None:
        all_sending = asyncio.Event()

        async def send(record: Record, tree: OpenTree) -> None:
            await all_sending.wait()

        async with AsyncAcker.from_url(any_server.url, acker.namespace) as twin:
            for _ in range(30):
                all_sending.clear()
                source = AsyncSource(twin, "t", send, poll=0.001)
                await source.start()
                for number in range(5):
                    await source.emit(str(number), messages=None)
                while len(source._sending) < 5:
                    await asyncio.sleep(0)
                all_sending.set()
                await asyncio.gather(source.stop(), source.stop(), source.stop())
                assert not source._flows._work
                assert not source._flows._sent

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_source_that_was_never_started_can_be_stopped(acker: Acker, bolts: Bolts) -> None:
    """Afterwards it steps as before, and pauses between the steps."""
    source = Source(acker, "t", bolts.send_and_ack, on_ack=lambda record: None)
    source.stop()
    assert not source._stop.is_set()
    source.emit("a")
    assert source.join(LIMIT)


def test_step_of_a_started_source_is_refused(acker: Acker, bolts: Bolts) -> None:
    with (
        Source(acker, "t", bolts.send_and_ack) as source,
        pytest.raises(ConfigError, match="runs in its own (thread|task)"),
    ):
        source.step()
