"""The consumer and the producer of aiokafka on a mock cluster: acks, failures, commits, cancels."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError

from acker_redis import Acker, BufferFullError, ConfigError, MessageId, Record
from acker_redis.aio import AsyncAcker, AsyncSource
from acker_redis.integrations.aiokafka import TrackedAsyncConsumer, TrackedAsyncProducer
from tests.integrations.kafka import PARTITIONS, committed, put, read
from tests.integrations.test_kafka import track, verdicts
from tests.waiting import LIMIT


class Rig:
    """Clients of one namespace and of one topic, in one event loop."""

    def __init__(self, orders: Acker, acker: AsyncAcker, servers: str, topic: str) -> None:
        self.orders, self.acker, self.servers, self.topic = orders, acker, servers, topic
        self._verdicts: dict[str, tuple[str, str]] = {}
        self.producer = TrackedAsyncProducer(bootstrap_servers=servers)

    def verdicts(self) -> dict[str, tuple[str, str]]:
        """Return all verdicts so far."""
        self._verdicts |= verdicts(self.orders)
        return self._verdicts

    def put(self, *names: str) -> None:
        """Track a record per name, and put its message into one partition."""
        tracked = track(self.orders, *names)
        put(self.servers, self.topic, [("k", value, headers) for _, value, headers in tracked])

    async def consumer(self, topic: str = "", **more: Any) -> TrackedAsyncConsumer:
        """Return a started consumer with all partitions of a topic."""
        topic = topic or self.topic
        consumer = TrackedAsyncConsumer(
            self.acker, bootstrap_servers=self.servers, group_id=topic,
            auto_offset_reset="earliest", **more,
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        await consumer.start()
        return consumer

    async def read(self, consumer: TrackedAsyncConsumer, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            for messages in (await consumer.getmany(timeout_ms=50)).values():
                found += messages
        return found

    async def run(
        self, handler: Callable[[Any], Awaitable[object]], count: int, **more: Any
    ) -> None:
        """Run a consumer until the handler has been called ``count`` times."""
        consumer = await self.consumer(**more)
        left = count

        async def counted(message: Any) -> object:
            nonlocal left
            left -= 1
            if not left:
                consumer.finish()
            return await handler(message)

        await consumer.run(counted)

    def done(self, topic: str = "") -> int:
        """Return the number of committed messages of the group of a topic."""
        topic = topic or self.topic
        return sum(committed(self.servers, topic, topic).values())


@pytest.fixture
def play(
    orders: Acker, servers: str, topic: str
) -> Callable[[Callable[[Rig], Awaitable[None]]], None]:
    """Run a coroutine function with a rig."""

    def play(scene: Callable[[Rig], Awaitable[None]]) -> None:
        async def main() -> None:
            url = orders.connection.client.get_connection_kwargs()
            async with AsyncAcker.from_url(
                f"redis://{url['host']}:{url['port']}", orders.namespace, timeout=60
            ) as acker:
                rig = Rig(orders, acker, servers, topic)
                async with rig.producer, asyncio.timeout(LIMIT):
                    await scene(rig)

        asyncio.run(main())

    return play


Play = Callable[[Callable[[Rig], Awaitable[None]]], None]


async def nothing(_: Any) -> None:
    """Handle a message."""


def test_messages_are_acked_and_committed_when_their_handler_returned(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        rig.put("a", "b", "c")
        seen: list[bytes] = []

        async def handler(message: Any) -> None:
            seen.append(message.value)

        await rig.run(handler, 3)
        assert seen == [b"a", b"b", b"c"]
        assert rig.verdicts() == dict.fromkeys("abc", ("ack", ""))
        assert rig.done() == 3

    play(scene)


def test_children_hold_their_tree_open_and_carry_their_edge(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        rig.put("a")
        priced = f"{rig.topic}-priced"

        async def handler(message: Any) -> None:
            headers = [("trace", b"x"), ("acker-tuple", b"1:2")]
            await rig.producer.send(priced, b"two", headers=headers, edge="priced")
            await asyncio.create_task(rig.producer.send_and_wait(priced, b"one", edge="priced"))

        await rig.run(handler, 1)
        assert rig.verdicts() == {}
        children = read(rig.servers, priced, 2)
        for child in children:
            ((_, tuple_id),) = MessageId.from_headers(child.headers()).items()
            assert rig.orders.ids.edges_of(tuple_id) == ("priced",)
        (two,) = (child for child in children if child.value() == b"two")
        assert dict(two.headers())["trace"] == b"x"
        await rig.run(nothing, 2, topic=priced)
        assert rig.verdicts() == {"a": ("ack", "")}

    play(scene)


def test_failing_handler_fails_its_tree_and_its_offset_is_committed(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        rig.put("a", "b")
        dead = f"{rig.topic}-dead"

        async def handler(message: Any) -> None:
            if message.value == b"a":
                raise ValueError("no such address")

        async def park(message: Any, error: BaseException) -> None:
            await rig.producer.send(dead, message.value, headers=[("why", str(error).encode())])

        await rig.run(handler, 2, on_failure=park)
        assert rig.verdicts() == {
            "a": ("nack", "ValueError: no such address"), "b": ("ack", ""),
        }  # fmt: skip
        (parked,) = read(rig.servers, dead, 1)
        assert parked.headers() == [("why", b"no such address")]
        assert rig.done() == 2

    play(scene)


def test_refused_child_fails_its_tree_although_the_handler_returns(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        rig.put("a", "b")

        async def handler(message: Any) -> None:
            if message.value == b"a":
                with pytest.raises(MessageSizeTooLargeError):
                    await rig.producer.send("priced", b"x" * 2_000_000)
            else:
                (await rig.producer.send("priced", b"x")).cancel()

        await rig.run(handler, 2)
        found = rig.verdicts()
        assert {name: verdict for name, (verdict, _) in found.items()} == {"a": "nack", "b": "nack"}
        assert found["a"][1].startswith("MessageSizeTooLargeError")
        assert found["b"][1] == "CancelledError: the future of send() was cancelled"

    play(scene)


def test_message_without_a_header_is_processed_and_its_failure_ends_the_run(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        put(rig.servers, rig.topic, [("k", "good", None), ("k", "bad", None), ("k", "new", None)])

        async def handler(message: Any) -> None:
            if message.value == b"bad":
                raise ValueError("no such address")
            await rig.producer.send(f"{rig.topic}-priced", message.value)

        with pytest.raises(ValueError, match="no such address"):
            await rig.run(handler, 3)
        assert rig.done() == 1
        (child,) = read(rig.servers, f"{rig.topic}-priced", 1)
        assert not child.headers()

    play(scene)


def test_no_offset_above_a_message_in_process_is_committed(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        rig.put("a", "b", "c")
        consumer = await rig.consumer()
        messages = await rig.read(consumer, 3)
        go = asyncio.Event()

        async def handler(message: Any) -> None:
            if message.value == b"b":
                await go.wait()

        async with asyncio.TaskGroup() as tasks:
            for message in messages:
                tasks.create_task(consumer.handle(message, handler))
            while len(rig.verdicts()) < 2:
                await asyncio.sleep(0.01)
            await consumer.commit()
            assert rig.done() == 1
            go.set()
        await consumer.commit()
        assert rig.done() == 3
        assert rig.verdicts() == dict.fromkeys("abc", ("ack", ""))
        await consumer.stop()

    play(scene)


def test_delivery_report_holds_the_ack_and_the_offset(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(rig: Rig) -> None:
        rig.put("a")
        consumer = await rig.consumer()
        (message,) = await rig.read(consumer, 1)
        report: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def unanswered(*_: Any) -> Any:
            return report

        monkeypatch.setattr("aiokafka.AIOKafkaProducer.send", unanswered)

        async def handler(message: Any) -> None:
            await rig.producer.send("priced", b"x")

        await consumer.handle(message, handler)
        await consumer.commit()
        assert (rig.done(), rig.orders.status().counters["failed"]) == (0, 0)
        report.set_exception(ConnectionError("the broker is gone"))
        await asyncio.sleep(0)
        await consumer.commit()
        assert rig.verdicts() == {"a": ("nack", "ConnectionError: the broker is gone")}
        assert rig.done() == 1
        await consumer.stop()

    play(scene)


def test_cancelled_handler_leaves_its_message_to_be_delivered_again(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        rig.put("a", "b")
        began = asyncio.Event()

        async def handler(message: Any) -> None:
            if message.value == b"b":
                began.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(rig.run(handler, 3))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert rig.verdicts() == {"a": ("ack", "")}
        assert rig.done() == 1
        await rig.run(nothing, 1)
        assert rig.verdicts() == dict.fromkeys("ab", ("ack", ""))
        assert rig.done() == 2

    play(scene)


def test_ack_that_redis_did_not_take_is_tried_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(rig: Rig) -> None:
        rig.put("a")
        consumer = await rig.consumer()
        (message,) = await rig.read(consumer, 1)

        async def full(*_: Any, **__: Any) -> None:
            raise BufferFullError("no room")

        with monkeypatch.context() as patched:
            patched.setattr("acker_redis.aio.producer.AsyncProducer.add", full)
            with pytest.raises(BufferFullError):
                await consumer.handle(message, nothing)
        assert rig.done() == 0
        await consumer.commit()
        assert rig.verdicts() == {"a": ("ack", "")}
        assert rig.done() == 1
        await consumer.stop()

    play(scene)


def test_signal_ends_the_run_after_the_handler_and_commits(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        rig.put("a", "b")
        before = signal.getsignal(signal.SIGTERM)
        seen: list[bytes] = []

        async def handler(message: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.01)
            seen.append(message.value)

        await (await rig.consumer()).run(handler)
        assert seen == [b"a"]
        assert rig.done() == 1
        assert signal.getsignal(signal.SIGTERM) is before

    play(scene)


@pytest.mark.full
def test_partition_is_given_away_after_its_handlers_and_a_commit(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    """The mock cluster, unlike Kafka, refuses commits meanwhile: the message comes again."""

    async def scene(rig: Rig) -> None:
        rig.put("a")
        told: list[int] = []
        slow: asyncio.Task[None] | None = None
        assigned = asyncio.Event()

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, given: Any) -> None:
                assigned.set()

            async def on_partitions_revoked(self, taken: Any) -> None:
                assert slow is None or slow.done()
                told.append(await asyncio.to_thread(rig.done))

        consumer = TrackedAsyncConsumer(
            rig.acker, bootstrap_servers=rig.servers, group_id=rig.topic,
            auto_offset_reset="earliest", heartbeat_interval_ms=100,
        )  # fmt: skip
        consumer.subscribe([rig.topic], listener=Listener())
        # The mock cluster lets a second member of aiokafka join, and then refuses it.
        other = AIOKafkaConsumer(rig.topic, bootstrap_servers=rig.servers, group_id=rig.topic)
        async with consumer:
            await assigned.wait()
            (message,) = await rig.read(consumer, 1)
            slow = asyncio.create_task(consumer.handle(message, lambda _: asyncio.sleep(0.5)))
            joins = asyncio.create_task(other.start())
            while not told:
                await asyncio.sleep(0.01)
            await slow
            joins.cancel()
            await asyncio.wait([joins])
            await other.stop()
            assert told[0] == ("delivered again" not in caplog.text)
            assert rig.verdicts() == {"a": ("ack", "")}

    play(scene)


def test_seek_back_is_told_from_messages_out_of_order(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        put(rig.servers, rig.topic, [("k", value, None) for value in "abc"])
        consumer = await rig.consumer()
        first, *others = await rig.read(consumer, 3)
        for message in others:
            await consumer.handle(message, nothing)
        with pytest.raises(ConfigError, match="offset 0 is handled after offset 2"):
            await consumer.handle(first, nothing)
        consumer.seek(TopicPartition(rig.topic, first.partition), 0)
        for message in await rig.read(consumer, 3):
            await consumer.handle(message, nothing)
        await consumer.stop()
        assert rig.done() == 3

    play(scene)


def test_partition_begins_again_where_kafka_goes_back(play: Play) -> None:
    """A topic was created again, or truncated: to the consumer, it is a seek of another's."""

    async def scene(rig: Rig) -> None:
        rig.put("a", "b", "c", "d")
        seen: list[int] = []
        consumer = await rig.consumer()

        async def handler(message: Any) -> None:
            seen.append(message.offset)
            if seen == [0, 1, 2, 3]:
                place = TopicPartition(message.topic, message.partition)
                AIOKafkaConsumer.seek(consumer, place, 1)
            if len(seen) == 6:
                consumer.finish()

        await consumer.run(handler, commit_every=0)
        assert seen == [0, 1, 2, 3, 1, 2]
        assert rig.done() == 3

    play(scene)


def test_what_would_commit_messages_in_process_is_refused(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        config = {"bootstrap_servers": rig.servers}
        with pytest.raises(ConfigError, match="enable_auto_commit"):
            TrackedAsyncConsumer(rig.acker, enable_auto_commit=True, group_id="g", **config)
        with pytest.raises(ConfigError, match="group_id is missing"):
            TrackedAsyncConsumer(rig.acker, **config)
        consumer = await rig.consumer()
        with pytest.raises(ConfigError, match="takes no offsets"):
            await consumer.commit({TopicPartition(rig.topic, 0): 7})
        with pytest.raises(ConfigError, match="in a handler"):
            _ = consumer.current
        with pytest.raises(ConfigError, match="needs a message in process"):
            await rig.producer.send("priced", b"x")
        await consumer.stop()

    play(scene)


def test_source_sends_its_records_and_a_refused_one_fails(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        found: dict[str, tuple[str, str]] = {}

        def acked(record: Record) -> None:
            found[record.source_id] = ("ack", "")

        def failed(record: Record, reason: str, why: str) -> None:
            found[record.source_id] = ("nack", why)

        send = rig.producer.sender(rig.topic)
        async with AsyncSource(
            rig.acker, "shop", send, attempts=1, on_ack=acked, dead_letter=failed
        ) as source:
            await source.emit("order-1", "a hat", edge="orders")
            await source.emit("order-2", b"x" * 2_000_000)
            await rig.run(lambda m: asyncio.to_thread(seen.append, (m.key, m.value)), 1)
            await source.join()
        assert seen == [(b"order-1", b"a hat")]
        assert found["order-1"] == ("ack", "")
        assert found["order-2"][0] == "nack"
        assert found["order-2"][1].startswith("MessageSizeTooLargeError")

    seen: list[tuple[bytes, bytes]] = []
    play(scene)


@pytest.mark.parametrize("event", ["rebalance", "seek", "seek_to_beginning", "seek_to_committed"])
def test_messages_that_were_read_before_their_partition_moved_are_read_again(
    play: Play, event: str
) -> None:
    """In a rebalance that a slow handler outlasts, and when a handler seeks."""

    async def scene(rig: Rig) -> None:
        put(rig.servers, rig.topic, [("k", value, None) for value in "abcd"])
        consumer, tried = await rig.consumer(), list[bytes]()

        async def again(message: Any) -> None:
            tried.append(message.value)
            place = TopicPartition(rig.topic, message.partition)
            if tried == [b"a", b"b"]:
                if event == "rebalance":
                    await consumer.commit()
                    consumer._assigned.forget([place])
                    consumer._assigned.assign([place])
                    AIOKafkaConsumer.seek(consumer, place, 1)
                elif event == "seek":
                    consumer.seek(place, 1)
                else:
                    await consumer.commit()
                    await getattr(consumer, event)(place)
            elif message.value == b"d":
                consumer.finish()

        await consumer.run(again)
        second = [b"a", b"b"] if event == "seek_to_beginning" else [b"b"]
        assert tried == [b"a", b"b", *second, b"c", b"d"]
        assert rig.done() == 4

    play(scene)


def test_handler_that_returns_a_coroutine_fails_its_message(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        rig.put("a")

        async def careless(message: Any) -> Any:
            return nothing(message)  # not awaited

        await rig.run(careless, 1)
        ((verdict, why),) = rig.verdicts().values()
        assert verdict == "nack"
        assert "was not run" in why

    play(scene)


def test_message_that_its_handler_has_settled_is_left_as_it_is(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        rig.put("failed", "acked")
        consumer = await rig.consumer()

        async def settle(message: Any) -> None:
            if message.value == b"failed":
                await consumer.current.fail("no such address")
            else:
                await consumer.current.ack()
                consumer.finish()

        await consumer.run(settle)
        assert rig.verdicts() == {"failed": ("nack", "no such address"), "acked": ("ack", "")}
        assert rig.done() == 2

    play(scene)


def test_batch_of_messages_without_ids_is_refused(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        with pytest.raises(ConfigError, match="send_batch"):
            await rig.producer.send_batch(rig.producer.create_batch(), rig.topic, partition=0)

    play(scene)


def test_no_message_of_a_partition_begins_while_it_is_given_away(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        put(rig.servers, rig.topic, [("k", str(number), None) for number in range(50)])
        consumer, tried = await rig.consumer(), list[int]()
        given = list[asyncio.Task[None]]()

        async def slow(message: Any) -> None:
            tried.append(message.offset)
            if message.offset == 2:
                places = [TopicPartition(rig.topic, number) for number in range(PARTITIONS)]
                given.append(asyncio.create_task(consumer._give_away(places)))
                given[0].add_done_callback(lambda _: consumer.finish())
            await asyncio.sleep(0.05)

        await consumer.run(slow)
        await given[0]
        assert tried == [0, 1, 2]
        assert rig.done() == 3

    play(scene)
