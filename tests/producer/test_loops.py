"""Clients at the top of a module, and several event loops one after another."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis.asyncio

from acker_redis.aio import AsyncAcker, AsyncBolt, AsyncProducer, AsyncSource
from acker_redis.batching.batch import Batch
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import AckerError, ConfigError
from acker_redis.protocol.ids import new_anchor
from acker_redis.protocol.rows import Row
from acker_redis.sync.client import Acker
from acker_redis.trees.record import Backoff
from tests.cluster.fixtures import three_masters
from tests.conftest import MakeAcker
from tests.producer.rig import InThread, tracks
from tests.support import total, verdicts

__all__ = ["three_masters"]


@pytest.fixture
def direct(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=2)


def clients(server: EmbeddedRedis) -> dict[str, Callable[[], Any]]:
    url = server.url
    return {
        "pool": lambda: redis.asyncio.Redis.from_url(url),
        "blocking pool": lambda: redis.asyncio.Redis(
            connection_pool=redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=2)
        ),
        "single connection": lambda: redis.asyncio.Redis(
            port=server.port, single_connection_client=True
        ),
    }


async def load(acker: AsyncAcker, tasks: int = 8) -> None:
    """Apply batches side by side, so that locks are waited for, and read."""

    async def one() -> None:
        batch = Batch("t")
        batch.track(new_anchor(), "s", [40])
        await acker.apply(batch)
        await acker.status()

    await asyncio.gather(*(one() for _ in range(tasks)))


@pytest.mark.parametrize("kind", ["pool", "blocking pool", "single connection"])
def test_client_works_in_one_loop_after_another(
    direct: Acker, any_server: EmbeddedRedis, kind: str
) -> None:
    acker = AsyncAcker(clients(any_server)[kind](), direct.namespace)
    for _ in range(3):
        asyncio.run(load(acker))
    asyncio.run(acker.close())
    assert total(direct)["tracked"] == 24


def test_client_of_a_cluster_works_in_one_loop_after_another(
    three_masters: Callable[[], Any],
) -> None:
    with three_masters() as sync:
        Acker(sync, "loops").create()
        host = sync.get_primaries()[0]
    acker = AsyncAcker(redis.asyncio.RedisCluster(host=host.host, port=host.port), "loops")
    for _ in range(3):
        asyncio.run(load(acker))
    asyncio.run(acker.close())


def test_server_sees_that_the_connections_of_a_closed_loop_are_gone(
    direct: Acker, any_server: EmbeddedRedis
) -> None:
    client = direct.connection.client
    acker = AsyncAcker.from_url(any_server.url, direct.namespace)
    before = len(client.client_list())
    for _ in range(5):
        asyncio.run(load(acker, 1))
        assert len(client.client_list()) <= before + 2
    asyncio.run(acker.close())


def test_loop_that_is_not_closed_keeps_its_client(direct: Acker, any_server: EmbeddedRedis) -> None:
    acker = AsyncAcker.from_url(any_server.url, direct.namespace)
    producer = AsyncProducer(acker, "t", linger=0)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(producer.add(tracks(1)))
    for use in (acker.status, lambda: producer.add(tracks(1)), producer.flush):
        with pytest.raises(ConfigError, match="another event loop, which is not closed"):
            asyncio.run(use())
    loop.run_until_complete(producer.close())
    loop.run_until_complete(acker.close())
    loop.close()
    assert total(direct)["tracked"] == 1


def test_rows_that_a_loop_has_left_are_reported_in_the_next(
    direct: Acker, any_server: EmbeddedRedis
) -> None:
    given_up: list[tuple[AckerError, list[Row]]] = []
    acker = AsyncAcker.from_url(any_server.url, direct.namespace)
    producer = AsyncProducer(acker, "t", linger=60, on_given_up=lambda *said: given_up.append(said))
    asyncio.run(producer.add(tracks(3)))
    assert given_up == []

    async def again() -> None:
        await producer.add(tracks(2))
        with pytest.raises(AckerError, match="event loop ended"):
            await producer.flush()
        await producer.flush()

    asyncio.run(again())
    assert sum(len(rows) for _, rows in given_up) == 3
    assert total(direct)["tracked"] == 2

    async def last() -> None:
        async with producer:
            await producer.add(tracks(4))
        await acker.close()

    asyncio.run(last())
    assert total(direct)["tracked"] == 6


def test_source_continues_its_records_in_the_next_loop(
    direct: Acker, any_server: EmbeddedRedis
) -> None:
    acker = AsyncAcker.from_url(any_server.url, direct.namespace)
    producer = AsyncProducer(acker, linger=0)
    done: list[str] = []
    processed: list[bool] = [False]

    async def send(_: Any, ids: Any) -> None:
        if processed[0]:
            async with AsyncBolt(producer).process(*ids):
                pass
        else:
            raise ConnectionError("not in this loop")

    source = AsyncSource(
        acker, "t", send, on_ack=lambda record: done.append(record.source_id), attempts=100,
        backoff=Backoff(0.01, 0.01),
    )  # fmt: skip

    async def first() -> None:
        await source.start()
        await source.emit("a")
        await source.emit("b")

    async def second() -> None:
        processed[0] = True
        async with source:
            await source.emit("c")
            assert await source.join()
            await producer.flush()

    asyncio.run(first())
    asyncio.run(second())
    asyncio.run(acker.close())
    assert sorted(done) == ["a", "b", "c"]
    assert verdicts(direct) == []


def test_two_loops_at_the_same_time_are_refused(direct: Acker, any_server: EmbeddedRedis) -> None:
    acker = AsyncAcker.from_url(any_server.url, direct.namespace)

    async def main() -> None:
        await acker.status()

        def other() -> None:
            with pytest.raises(ConfigError, match="this AsyncConnection was used"):
                asyncio.run(acker.status())

        await asyncio.to_thread(InThread(other).join)
        await acker.close()

    asyncio.run(main())


@pytest.fixture
def outcomes(direct: Acker, any_server: EmbeddedRedis) -> Iterator[Any]:
    acker = AsyncAcker.from_url(any_server.url, direct.namespace)
    yield asyncio.run(acker.outcomes("t"))
    asyncio.run(acker.close())


def test_outcomes_are_read_in_the_next_loop(direct: Acker, outcomes: Any) -> None:
    for _ in range(2):
        direct.apply(_complete())
        entries = asyncio.run(outcomes.read())
        assert asyncio.run(outcomes.take(entries)) == 1


def _complete() -> Batch:
    batch = Batch("t")
    batch.track(new_anchor(), "s", [])
    return batch
