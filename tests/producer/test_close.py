"""close(): all rows are sent, or the error says how many are not; no row is added any more."""

import asyncio
import contextlib
from typing import Any

import pytest

from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.producer import AsyncProducer
from acker_redis.batching.batch import MAX_ROWS
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import BufferFullError, ClosedError, RedisRefusedError
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from tests.conftest import MakeAcker
from tests.producer.conftest import MakeRig
from tests.producer.rig import Awaited, InThread, Rig, tracks
from tests.support import total
from tests.transport.proxy import Proxy
from tests.waiting import wait_until

LONG = 60.0


def test_close_sends_everything_without_lingering(rig: Rig) -> None:
    producer = rig.producer(linger=LONG)
    producer.add(tracks(3 * MAX_ROWS + 5))
    producer.close()
    assert total(rig.direct)["tracked"] == 3 * MAX_ROWS + 5
    assert producer.waiting == 0


def test_closed_producer_refuses_rows(rig: Rig) -> None:
    producer = rig.producer()
    producer.add(tracks(1))
    producer.close()
    for wait in (True, False):
        with pytest.raises(ClosedError):
            producer.add(tracks(1), wait)
    producer.flush()
    assert total(rig.direct)["tracked"] == 1


def test_second_close_is_a_no_op(rig: Rig) -> None:
    producer = rig.producer(linger=0)
    rig.calls.errors = [RedisRefusedError("no")]
    producer.add(tracks(1))
    with pytest.raises(RedisRefusedError):
        producer.close()
    producer.close()
    producer.close(0)


def test_close_of_an_unused_producer(rig: Rig) -> None:
    producer = rig.producer()
    producer.close()
    with pytest.raises(ClosedError):
        producer.add(tracks(1))


@pytest.mark.parametrize("shards", [1, 4])
def test_close_ends_the_senders(make_rig: MakeRig, shards: int) -> None:
    rig = make_rig(shards=shards)
    producer = rig.producer()
    producer.add(tracks(10))
    producer.close()
    its: Any = getattr(producer, "producer", producer)
    ended = [
        sender.done() if isinstance(sender, asyncio.Task) else not sender.is_alive()
        for sender in its._senders
    ]
    assert ended == [True] * shards


def test_close_gives_up_rows_if_redis_is_unreachable(make_rig: MakeRig, proxy: Proxy) -> None:
    """Also rows that were not sent yet, and regardless of how long a call would be retried."""
    rig = make_rig(proxy.url)
    producer = rig.producer(linger=0, retry_for=600)
    producer.add(tracks(1))
    producer.flush()
    proxy.cut = 10**9
    for _ in range(20):
        producer.add(tracks(MAX_ROWS))
    closing = InThread(lambda: producer.close(0.1))
    with pytest.raises(BufferFullError, match=f"{20 * MAX_ROWS} rows got no reply"):
        closing.join()
    assert sum(rows for _, rows in rig.given_up) == 20 * MAX_ROWS
    assert producer.waiting == 0
    assert total(rig.direct)["tracked"] == 1


def test_close_waits_for_calls_in_flight_after_its_timeout(rig: Rig) -> None:
    """A call in flight may have run: it is not cut off."""
    producer = rig.producer(linger=0)
    rig.calls.hold()
    producer.add(tracks(1))
    rig.calls.wait_for(1)
    producer.add(tracks(2))
    closing = InThread(lambda: producer.close(0))
    its: Any = getattr(producer, "producer", producer)
    wait_until(lambda: its._end < 0, "the end of its time")
    assert not closing.ended
    rig.calls.let_all_go()
    with pytest.raises(BufferFullError):
        closing.join()
    assert total(rig.direct)["tracked"] == 1
    assert [rows for _, rows in rig.given_up] == [2]


def test_exception_in_the_with_block_closes_the_producer(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    direct = make_any_acker()
    with (
        contextlib.suppress(KeyError),
        Acker.from_url(any_server.url, direct.namespace) as acker,
        Producer(acker, "t", linger=LONG) as producer,
    ):
        producer.add(tracks(3))
        raise KeyError
    assert total(direct)["tracked"] == 3

    async def by_asyncio() -> None:
        async with (
            AsyncAcker.from_url(any_server.url, direct.namespace) as acker,
            AsyncProducer(acker, "t", linger=LONG) as producer,
        ):
            await producer.add(tracks(3))
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(by_asyncio())
    assert total(direct)["tracked"] == 6


@pytest.mark.parametrize("kind", ["asyncio"])
def test_cancelled_close_runs_to_its_end(rig: Rig) -> None:
    producer = rig.producer(linger=LONG)
    assert isinstance(producer, Awaited)
    rig.calls.hold()
    producer.add(tracks(3))

    async def cancelled() -> None:
        task = asyncio.ensure_future(producer.producer.close())
        while not rig.calls.in_flight:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        rig.calls.let_all_go()
        await producer.producer.acker.close()  # waits for the close
        assert all(sender.done() for sender in producer.producer._senders)

    producer._loop.run(cancelled())
    assert total(rig.direct)["tracked"] == 3


@pytest.mark.parametrize("kind", ["asyncio"])
def test_close_during_the_first_add_refuses_its_rows(rig: Rig) -> None:
    """Otherwise the rows would be added to a producer whose senders have ended."""
    producer = rig.producer(linger=LONG)
    assert isinstance(producer, Awaited)

    async def race() -> None:
        adding = asyncio.ensure_future(producer.producer.add(tracks(3)))
        await asyncio.sleep(0)
        await producer.producer.close()
        with pytest.raises(ClosedError):
            await adding

    producer._loop.run(race())
    assert producer.waiting == 0
