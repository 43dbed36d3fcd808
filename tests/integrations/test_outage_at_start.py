"""Processes that begin while the acker's Redis is away: their first rows wait."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from acker_redis import Acker, AckerConfig, NamespaceNotFoundError, Source
from acker_redis.aio import AsyncAcker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.aiokafka import TrackedAsyncConsumer
from acker_redis.integrations.aiokafka import consumer as aiokafka_consumer
from acker_redis.integrations.kafka import consumer as kafka_consumer
from acker_redis.integrations.streams import StreamWorker
from tests.integrations import celery, http
from tests.integrations.kafka import committed, put
from tests.integrations.test_aiokafka import Rig
from tests.integrations.test_kafka import consumer_of, track, verdicts
from tests.integrations.test_streams import Shop, shops
from tests.producer.rig import InThread
from tests.transport.proxy import Proxy, proxied
from tests.waiting import LIMIT, wait_until


@pytest.fixture
def away(any_server: EmbeddedRedis) -> Iterator[Proxy]:
    """A way to the Redis that loses each request, until ``cut`` is 0."""
    with proxied(any_server.url) as proxy:
        proxy.cut = 10**9
        yield proxy


@pytest.mark.parametrize("options", [(), ("recycled",)])
def test_tasks_of_a_worker_that_began_in_an_outage(
    any_server: EmbeddedRedis, away: Proxy, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Acks of pool processes, also of one that ends after each task, and failures of the worker."""
    file, name = tmp_path / "done", f"celery-{uuid.uuid4().hex[:8]}"
    file.touch()
    app, tracker = celery.make(any_server.url, name, file)
    tracker.acker.create(AckerConfig())
    worker = celery.start(any_server.url, name, file, f"acker={away.url}", *options)
    try:
        source = Source(tracker.acker, "shop", tracker.send, attempts=1)
        # In this order: the other way round, the process that is killed may have the row of "good".
        source.emit("lost", app.tasks["killed"].s())
        source.emit("good", app.tasks["step"].s("one"))
        source.step()
        wait_until(lambda: file.read_text(), "a task that is done")
        wait_until(lambda: away.lost > 2, "attempts that fail")
        assert source.step() >= 0
        assert source.pending == 2
        away.cut = 0
        found = {each.record.source_id: each for each in source.verdicts(until_closed=True)}
    finally:
        celery.stop(worker)
        tracker.close()
        tracker.acker.close()
    assert found["good"].reason == "completed"
    assert "WorkerLostError" in found["lost"].why


def test_requests_of_a_service_that_began_in_an_outage(
    orders: Acker, away: Proxy, tmp_path: Path
) -> None:
    port = http.free_port()
    base = f"http://127.0.0.1:{port}"
    app = http.make(away.url, orders.namespace, tmp_path / "done", base, patience=0)
    messages = track(orders, "good", "bad")
    with http.running(app, port), httpx.Client(base_url=base, timeout=LIMIT) as client:
        for path, (*_, headers) in zip(("/price/hat", "/refused"), messages, strict=True):
            client.post(path, headers=headers)
        assert verdicts(orders) == {}
        away.cut = 0
        found: dict[str, Any] = {}
        wait_until(lambda: found.update(verdicts(orders)) or len(found) == 2, "two verdicts")
    assert found["good"] == ("ack", "")
    assert found["bad"][0] == "nack"


def test_kafka_run_goes_on_and_commits_after_the_outage(
    orders: Acker, away: Proxy, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_consumer, "FLUSH", 0.01)
    put(servers, topic, track(orders, "a", "b"))
    with Acker.from_url(away.url, orders.namespace, retry_for=0) as acker:
        consumer, handled = consumer_of(acker, servers, topic), list[Any]()
        run = InThread(lambda: consumer.run(handled.append, commit_every=0.01))
        wait_until(lambda: len(handled) == 2 and away.lost > 3, "messages that were handled")
        put(servers, topic, track(orders, "c"))
        wait_until(lambda: len(handled) == 3, "a run that goes on")
        assert committed(servers, topic, topic) == {}
        away.cut = 0
        wait_until(lambda: sum(committed(servers, topic, topic).values()) == 3, "three offsets")
        consumer.stop()
        run.join()
    assert verdicts(orders) == dict.fromkeys("abc", ("ack", ""))


def test_aiokafka_run_goes_on_and_commits_after_the_outage(
    orders: Acker, away: Proxy, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiokafka_consumer, "FLUSH", 0.01)

    async def main() -> None:
        async with AsyncAcker.from_url(away.url, orders.namespace, retry_for=0) as acker:
            rig = Rig(orders, acker, servers, topic)
            rig.put("a", "b")
            consumer: TrackedAsyncConsumer = await rig.consumer()
            handled: list[Any] = []

            async def handle(message: Any) -> None:
                handled.append(message)

            running = asyncio.create_task(consumer.run(handle, commit_every=0.01))
            while len(handled) < 2 or away.lost <= 3:
                await asyncio.sleep(0.01)
            assert rig.done() == 0
            away.cut = 0
            while rig.done() < 2:
                await asyncio.sleep(0.01)
            consumer.finish()
            await running
            assert rig.verdicts() == dict.fromkeys("ab", ("ack", ""))

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_aiokafka_child_with_a_key_waits_for_the_salt(
    orders: Acker, away: Proxy, servers: str, topic: str
) -> None:
    """Otherwise each message of an outage fails, and uses up its attempts."""

    async def main() -> None:
        async with AsyncAcker.from_url(away.url, orders.namespace, retry_for=LIMIT) as acker:
            rig = Rig(orders, acker, servers, topic)
            rig.put("a")

            async def handle(message: Any) -> None:
                sending = asyncio.create_task(rig.producer.send(f"{topic}-2", b"", child="priced"))
                while away.lost <= 3:
                    await asyncio.sleep(0.01)
                away.cut = 0
                await sending

            async with rig.producer:
                await rig.run(handle, 1)
            assert rig.verdicts() == {}, "its child is open"

    asyncio.run(asyncio.wait_for(main(), LIMIT))


@pytest.fixture
def shop(any_server: EmbeddedRedis) -> Iterator[Shop]:
    yield from shops(redis.Redis.from_url(any_server.url))


def test_stream_worker_waits_for_the_acker_before_it_handles_entries(
    shop: Shop, away: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acker_redis.integrations.core.worker.PAUSE", 0.01)
    ids, handled = shop.put(), list[Any]()
    with Acker.from_url(away.url, shop.acker.namespace, retry_for=0) as acker:
        worker = StreamWorker(acker, shop.client, shop.orders, "pricing")
        run = InThread(lambda: worker.run(handled.append))
        wait_until(lambda: away.lost > 3, "attempts that fail")
        assert handled == []
        away.cut = 0
        wait_until(lambda: shop.open_ids(ids) is None, "a verdict")
        worker.stop()
        run.join()
    missing = StreamWorker(Acker(shop.client, "absent"), shop.client, shop.orders, "pricing")
    with pytest.raises(NamespaceNotFoundError):
        missing.run(pytest.fail)
