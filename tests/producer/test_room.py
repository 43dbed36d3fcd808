"""Redis is slow or unreachable: callers wait, then get an error; no list is added partially."""

import asyncio
from typing import Any

import pytest

from acker_redis.errors import BufferFullError, ClosedError
from tests.producer.conftest import MakeRig
from tests.producer.rig import Awaited, InThread, Rig, tracks
from tests.support import total
from tests.transport.proxy import Proxy
from tests.waiting import wait_until


@pytest.fixture
def stalled(make_rig: MakeRig, proxy: Proxy) -> Rig:
    return make_rig(proxy.url)


def test_callers_wait_while_redis_stalls(stalled: Rig, proxy: Proxy) -> None:
    producer = stalled.producer(buffer=10)
    producer.add(tracks(1))
    producer.flush()
    proxy.stall = True
    producer.add(tracks(10))
    callers = [InThread(lambda: producer.add(tracks(2))) for _ in range(3)]
    stalled.calls.wait_for(2)
    assert not any(caller.ended for caller in callers)
    assert producer.waiting == 10
    proxy.stall = False
    for caller in callers:
        caller.join()
    producer.flush()
    assert total(stalled.direct)["tracked"] == 17
    assert stalled.given_up == []


def test_add_that_waits_too_long_raises_and_adds_nothing(stalled: Rig, proxy: Proxy) -> None:
    producer = stalled.producer(buffer=10, max_block=0.05)
    producer.add(tracks(1))
    producer.flush()
    proxy.stall = True
    producer.add(tracks(12))
    for _ in range(3):
        with pytest.raises(BufferFullError, match="12 rows wait for Redis"):
            producer.add(tracks(5))
        assert producer.waiting == 12
    proxy.stall = False
    producer.flush()
    assert total(stalled.direct)["tracked"] == 13
    producer.add(tracks(5))
    producer.flush()
    assert total(stalled.direct)["tracked"] == 18


def test_rows_that_would_fold_wait_for_room_too(rig: Rig) -> None:
    """The producer learns only while adding them whether they fold."""
    producer = rig.producer(buffer=2, max_block=0, linger=0)
    rig.calls.hold()
    rows = tracks(2)
    producer.add(rows)
    with pytest.raises(BufferFullError):
        producer.add([rows[0]._replace(flags=0, text="")])
    rig.calls.let_all_go()


def test_list_larger_than_the_buffer_is_added_completely(rig: Rig) -> None:
    producer = rig.producer(buffer=1)
    for _ in range(3):
        producer.add(tracks(3000))
    producer.flush()
    assert total(rig.direct)["tracked"] == 9000


def test_add_without_wait_fills_twice_the_buffer_then_gives_up(rig: Rig) -> None:
    producer = rig.producer(buffer=10, linger=0)
    rig.calls.hold()
    for _ in range(4):
        producer.add(tracks(5), wait=False)
    assert producer.waiting == 20
    assert rig.given_up == []
    producer.add(tracks(7), wait=False)
    assert producer.waiting == 20
    [(error, rows)] = rig.given_up
    assert isinstance(error, BufferFullError)
    assert rows == 7
    rig.calls.let_all_go()
    producer.flush()
    assert total(rig.direct)["tracked"] == 20


def test_add_waiting_for_room_raises_when_the_producer_closes(rig: Rig) -> None:
    producer = rig.producer(buffer=1, linger=0)
    rig.calls.hold()
    producer.add(tracks(1))
    caller = InThread(lambda: producer.add(tracks(1)))
    its: Any = getattr(producer, "producer", producer)
    place = its._answered if rig.kind == "asyncio" else its._room
    wait_until(lambda: place._waiters, "a caller that waits")
    closing = InThread(producer.close)
    with pytest.raises(ClosedError):
        caller.join()
    rig.calls.let_all_go()
    closing.join()
    assert total(rig.direct)["tracked"] == 1


@pytest.mark.parametrize("kind", ["asyncio"])
def test_add_cancelled_while_waiting_for_room_adds_nothing(rig: Rig) -> None:
    producer = rig.producer(buffer=3, linger=0)
    assert isinstance(producer, Awaited)
    rig.calls.hold()
    producer.add(tracks(3))

    async def cancelled() -> None:
        task = asyncio.ensure_future(producer.producer.add(tracks(2)))
        while not producer.producer._answered._waiters:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    producer._loop.run(cancelled())
    assert producer.waiting == 3
    rig.calls.let_all_go()
    producer.flush()
    assert total(rig.direct)["tracked"] == 3
