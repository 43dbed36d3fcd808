"""Handlers of batches: the same behaviour in each integration that polls."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from operator import xor
from typing import Any, Protocol

import numpy as np
import pytest
import redis
from aiokafka import TopicPartition

from acker_redis import Acker, InvalidBatchError, MessageId
from acker_redis.aio import AsyncAcker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.aiokafka import TrackedAsyncConsumer, TrackedAsyncProducer
from acker_redis.integrations.core.batches import Messages, Works
from acker_redis.integrations.core.work import Work
from acker_redis.integrations.kafka import TrackedProducer
from acker_redis.integrations.sqs import SqsWorker
from acker_redis.integrations.sqs.queue import Sqs as SqsQueue
from acker_redis.integrations.streams import StreamWorker
from acker_redis.protocol.rows import Row
from tests.integrations import kafka, sqs
from tests.integrations.sqs import moto
from tests.integrations.test_kafka import consumer_of, track, verdicts
from tests.integrations.test_streams import Shop, shops

__all__ = ["moto"]

Handler = Callable[[Any, Any], Coroutine[Any, Any, None]]
"""``handler(messages, send)``: ``await send("a", child=..)`` sends a child, named like a record."""
Named = dict[str, Any]


class Died(BaseException):
    """Stands for a cancellation or an interrupt."""


def step(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits."""
    with pytest.raises(StopIteration):
        work.send(None)


class Rig(Protocol):
    """One integration: a topic of orders that leads to a topic of priced orders."""

    acker: Acker

    def put(self, *names: str, headers: Any = None) -> None:
        """Send tracked messages; with ``headers``, messages with these headers instead."""

    def name(self, message: Any) -> str: ...

    def batch(self, count: int, handler: Handler, **options: Any) -> None:
        """Read messages, hand them over as one batch, and close the consumer."""

    def run(self, count: int, handler: Handler, **options: Any) -> None:
        """Let run_batches() process messages."""

    def confirmed(self) -> int: ...

    def children(self, count: int) -> list[MessageId]: ...


class Streams:
    """Redis Streams."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.acker, self._count = shop, shop.acker, 0

    def put(self, *names: str, headers: Any = None) -> None:
        self._count += len(names)
        for name in names:
            if headers is None:
                self.shop.put(name)
            else:
                self.shop.client.xadd(self.shop.orders, {"name": name, **headers})

    def name(self, message: Any) -> str:
        return str(message[b"name"].decode())

    def batch(self, count: int, handler: Handler, **options: Any) -> None:
        isolate = options.pop("isolate", False)
        with self.shop.worker(**options) as worker:
            worker._reading._pace.fits = count
            ((_, messages),) = worker.read(count, block=0)
            assert len(messages) == count
            worker.handle_batch(messages, self._handler(worker, handler), isolate=isolate)

    def run(self, count: int, handler: Handler, **options: Any) -> None:
        seen = 0

        def counted(messages: Any) -> None:
            nonlocal seen
            seen += len(messages)
            if seen >= count:
                worker.stop()
            inner(messages)

        worker = self.shop.worker()
        inner = self._handler(worker, handler)
        worker.run_batches(counted, **options)

    def confirmed(self) -> int:
        return self._count - self.shop.pending()

    def children(self, count: int) -> list[MessageId]:
        found = self.shop.children()
        assert len(found) == count
        return found

    def _handler(self, worker: StreamWorker, handler: Handler) -> Callable[[Any], None]:
        async def send(name: str, **options: Any) -> None:
            worker.xadd(self.shop.priced, {"name": name}, **options)

        return lambda messages: step(handler(messages, send))


class Sqs:
    """Amazon SQS."""

    def __init__(self, acker: Acker, moto: str, topic: str) -> None:
        self.acker, self.client = acker, sqs.client(moto)
        self.orders = self.client.create_queue(QueueName=topic)["QueueUrl"]
        self.priced = self.client.create_queue(QueueName=f"{topic}-priced")["QueueUrl"]
        self._count = 0

    def put(self, *names: str, headers: Any = None) -> None:
        self._count += len(names)
        tracked = track(self.acker, *names) if headers is None else [(n, n, headers) for n in names]
        for name, _, given in tracked:
            found = {key: {"DataType": "String", "StringValue": v} for key, v in given.items()}
            self.client.send_message(
                QueueUrl=self.orders, MessageBody=name, MessageAttributes=found
            )

    def name(self, message: Any) -> str:
        return str(message["Body"])

    def batch(self, count: int, handler: Handler, **options: Any) -> None:
        isolate = options.pop("isolate", False)
        with self.worker(**options) as worker:
            worker._reader._pace.fits = count
            messages = worker._read(count, 0)
            assert len(messages) == count
            inner = functools.partial(self._handle, worker, handler)
            worker.handle_batch(messages, inner, isolate=isolate)

    def run(self, count: int, handler: Handler, **options: Any) -> None:
        seen = 0

        def counted(messages: Any) -> None:
            nonlocal seen
            seen += len(messages)
            if seen >= count:
                worker.stop()
            self._handle(worker, handler, messages)

        worker = self.worker()
        worker.run_batches(counted, **options)

    def confirmed(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client.get_queue_attributes(QueueUrl=self.orders, AttributeNames=names)
        return self._count - sum(int(found["Attributes"][name]) for name in names)

    def children(self, count: int) -> list[MessageId]:
        found: list[Any] = []
        reader = SqsQueue(self.client, self.priced, 60, 0)
        while some := reader.read(10, 0, pytest.fail):
            found += some
        assert len(found) == count
        return [reader.id_of(body) for _, body in found]

    def worker(self, **options: Any) -> SqsWorker:
        return SqsWorker(self.acker, self.client, self.orders, **{"wait": 0, **options})

    def _handle(self, worker: SqsWorker, handler: Handler, messages: Any) -> None:
        async def send(name: str, **options: Any) -> None:
            worker.send(self.priced, name, **options)

        step(handler(messages, send))


class Kafka:
    """``confluent-kafka``."""

    def __init__(self, acker: Acker, servers: str, topic: str) -> None:
        self.acker, self.servers, self.topic = acker, servers, topic

    def put(self, *names: str, headers: Any = None) -> None:
        tracked = track(self.acker, *names) if headers is None else [(n, n, headers) for n in names]
        kafka.put(self.servers, self.topic, [("k", value, given) for _, value, given in tracked])

    def name(self, message: Any) -> str:
        return str(message.value().decode())

    def batch(self, count: int, handler: Handler, **options: Any) -> None:
        isolate = options.pop("isolate", False)
        consumer, messages = consumer_of(self.acker, self.servers, self.topic, **options), []
        while len(messages) < count:
            messages += consumer.consume(count, 0.05)
        try:
            consumer.handle_batch(messages, self._handler(handler), isolate=isolate)
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()

    def run(self, count: int, handler: Handler, **options: Any) -> None:
        seen = 0

        def counted(messages: Any) -> None:
            nonlocal seen
            seen += len(messages)
            if seen >= count:
                consumer.stop()
            inner(messages)

        consumer, inner = consumer_of(self.acker, self.servers, self.topic), self._handler(handler)
        consumer.run_batches(counted, **options)

    def confirmed(self) -> int:
        return sum(kafka.committed(self.servers, self.topic, self.topic).values())

    def children(self, count: int) -> list[MessageId]:
        found = kafka.read(self.servers, f"{self.topic}-priced", count)
        assert len(found) == count
        return [MessageId.from_headers(each.headers()) for each in found]

    def _handler(self, handler: Handler) -> Callable[[Any], None]:
        producer = TrackedProducer(self.acker, {"bootstrap.servers": self.servers})

        async def send(name: str, **options: Any) -> None:
            producer.produce(f"{self.topic}-priced", name, "k", **options)

        return lambda messages: step(handler(messages, send))


class AsyncKafka(Kafka):
    """``aiokafka``."""

    def name(self, message: Any) -> str:
        return str(message.value.decode())

    def batch(self, count: int, handler: Handler, **options: Any) -> None:
        isolate = options.pop("isolate", False)

        async def scene(consumer: TrackedAsyncConsumer, inner: Any) -> None:
            messages: list[Any] = []
            while len(messages) < count:
                for each in (await consumer.getmany(timeout_ms=50)).values():
                    messages += each
            await consumer.handle_batch(messages, inner, isolate=isolate)

        asyncio.run(self._play(scene, handler, options))

    def run(self, count: int, handler: Handler, **options: Any) -> None:
        async def scene(consumer: TrackedAsyncConsumer, inner: Any) -> None:
            seen = 0

            async def counted(messages: Any) -> None:
                nonlocal seen
                seen += len(messages)
                if seen >= count:
                    consumer.finish()
                await inner(messages)

            await consumer.run_batches(counted, **options)

        asyncio.run(self._play(scene, handler, {}))

    async def _play(self, scene: Any, handler: Handler, options: Named) -> None:
        url = self.acker.connection.client.get_connection_kwargs()
        async with AsyncAcker.from_url(
            f"redis://{url['host']}:{url['port']}", self.acker.namespace
        ) as acker:
            consumer = TrackedAsyncConsumer(
                acker, bootstrap_servers=self.servers, group_id=self.topic,
                auto_offset_reset="earliest", **options,
            )  # fmt: skip
            places = [TopicPartition(self.topic, n) for n in range(kafka.PARTITIONS)]
            consumer.assign(places)
            async with TrackedAsyncProducer(bootstrap_servers=self.servers) as producer, consumer:

                async def send(name: str, **more: Any) -> None:
                    await producer.send(f"{self.topic}-priced", name.encode(), b"k", **more)

                await scene(consumer, lambda messages: handler(messages, send))


@pytest.fixture(params=["streams", "kafka", "aiokafka", "sqs"])
def rig(
    request: pytest.FixtureRequest,
    orders: Acker,
    servers: str,
    moto: str,
    topic: str,
    server: EmbeddedRedis,
) -> Iterator[Rig]:
    if request.param == "streams":
        for shop in shops(redis.Redis.from_url(server.url)):
            yield Streams(shop)
    elif request.param == "sqs":
        yield Sqs(orders, moto, topic)
    else:
        kind = Kafka if request.param == "kafka" else AsyncKafka
        yield kind(orders, servers, topic)


def open_ids(rig: Rig, children: list[MessageId]) -> bool:
    """Return whether the ids of these children are what their trees wait for, and nothing else."""
    (anchor,) = {anchor for each in children for anchor in each}
    state = rig.acker.show(anchor)
    return state is not None and state.checksum == functools.reduce(
        xor, (each[anchor] for each in children)
    )


def test_messages_that_the_handler_does_not_name_are_acked(rig: Rig) -> None:
    rig.put("ack", "fail", "skip", "parent")

    async def handle(messages: Any, send: Any) -> None:
        assert [rig.name(each) for each in messages] == ["ack", "fail", "skip", "parent"]
        messages.fail(1, "no such address")
        messages.skip(2)
        for _ in range(2):
            with messages.of(3):
                await send("parent")

    rig.batch(4, handle)
    assert verdicts(rig.acker) == {"ack": ("ack", ""), "fail": ("nack", "no such address")}
    assert open_ids(rig, rig.children(2))
    assert rig.confirmed() == 4


def test_exception_fails_all_messages_and_each_failure_is_told(rig: Rig) -> None:
    rig.put("a", "b")
    told: list[tuple[str, str]] = []

    async def handle(messages: Any, send: Any) -> None:
        messages.fail(0, "no such address")
        messages.skip(1)
        raise ValueError("poison")

    rig.batch(2, handle, on_failure=lambda each, why: told.append((rig.name(each), str(why))))
    assert verdicts(rig.acker) == {
        "a": ("nack", "no such address"), "b": ("nack", "ValueError: poison"),
    }  # fmt: skip
    assert told == [("a", "no such address"), ("b", "poison")]
    assert rig.confirmed() == 2


@pytest.mark.parametrize("child", [None, "priced"])
def test_isolation_finds_the_message_that_raises(rig: Rig, child: str | None) -> None:
    rig.put("a", "poison", "c")
    sizes = []

    async def handle(messages: Any, send: Any) -> None:
        sizes.append(len(messages))
        for at, each in enumerate(messages):
            if rig.name(each) == "poison":
                raise ValueError("no such address")
            if rig.name(each) == "a":
                with messages.of(at):
                    await send("a", child=child)

    rig.batch(3, handle, isolate=True)
    assert sizes == [3, 1, 1, 1]
    assert verdicts(rig.acker) == {
        "poison": ("nack", "ValueError: no such address"), "c": ("ack", ""),
    }  # fmt: skip
    children = rig.children(2)
    assert len(set(children)) == 2, "each copy has its own id"
    assert open_ids(rig, children)
    assert rig.confirmed() == 3


def test_ids_are_emitted_in_columns(rig: Rig) -> None:
    rig.put("a", "b")
    found: list[MessageId] = []

    async def handle(messages: Any, send: Any) -> None:
        children = messages.emit(np.array([2, 0]), edge="priced")
        assert children.parents == [0, 0]
        found.extend(children.ids)

    rig.batch(2, handle)
    assert open_ids(rig, found)
    assert verdicts(rig.acker) == {"b": ("ack", "")}


@pytest.mark.parametrize("headers", [{}, {"acker-tuple": "seven"}])
def test_failure_of_which_no_source_is_told_is_raised_and_its_message_stays(
    rig: Rig, headers: Named
) -> None:
    rig.put("good")
    rig.put("bad", headers=headers)

    async def handle(messages: Any, send: Any) -> None:
        assert ("bad" in map(rig.name, messages)) != bool(headers), "a torn id has no handler"
        if not headers:
            messages.fail(1, "no such address")

    with pytest.raises(Exception, match="no such address|seven"):
        rig.batch(2, handle)
    assert verdicts(rig.acker) == {"good": ("ack", "")}
    assert rig.confirmed() == 1


def test_batch_whose_handler_is_interrupted_stays_open(rig: Rig) -> None:
    rig.put("a", "b")

    async def handle(messages: Any, send: Any) -> None:
        messages.fail(0, "no such address")
        raise Died

    with pytest.raises(Died):
        rig.batch(2, handle)
    assert (verdicts(rig.acker), rig.confirmed()) == ({}, 0)


def test_run_processes_all_batches(rig: Rig) -> None:
    names = [str(n) for n in range(20)]
    rig.put(*names)

    async def handle(messages: Any, send: Any) -> None:
        for at, each in enumerate(messages):
            if rig.name(each) == "7":
                messages.fail(at, "seven")

    rig.run(20, handle)
    found = verdicts(rig.acker)
    assert found.pop("7") == ("nack", "seven")
    assert found == {name: ("ack", "") for name in names if name != "7"}
    assert rig.confirmed() == 20


@pytest.mark.parametrize("position", [-1, 2, True, 0.5, np.array([True, False]), "0"])
def test_position_that_names_no_message_is_refused(position: Any) -> None:
    messages = Messages(Works([(Work(None, "7:40"), "a"), (Work(None, "8:41"), "b")]))
    with pytest.raises(InvalidBatchError, match="messages 0 to 1, not"):
        messages.fail(position, "no such address")
    assert (messages[np.int64(1)], messages[:1], len(messages)) == ("b", ["a"], 2)


@pytest.mark.parametrize("counts", [-1, [1], [1, -1], [1, 0.5], np.array([True, False]), "12"])
def test_counts_that_do_not_fit_are_refused_and_emit_nothing(counts: Any) -> None:
    works = [Work(None, "7:40"), Work(None, "8:41")]
    messages = Messages(Works([(each, None) for each in works]))
    with pytest.raises(InvalidBatchError, match="one whole number for each of the 2 messages"):
        messages.emit(counts)
    with pytest.raises(InvalidBatchError, match="one child"):
        messages.emit(2, key="priced")
    assert [each.rows() for each in works] == [[Row(7, 40)], [Row(8, 41)]]
