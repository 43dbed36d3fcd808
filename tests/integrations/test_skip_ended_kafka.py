"""Kafka messages of ended trees are not processed, and their offsets count as complete.

The mock cluster has no LogAppendTime: the messages have the time of their producer, which the tests
take for that of the broker. No test waits: times are set in messages, and in ``meta``.
"""

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Producer

from acker_redis import Acker, InvalidBatchError, MessageId
from acker_redis.aio import AsyncAcker
from acker_redis.integrations.aiokafka import TrackedAsyncConsumer
from acker_redis.integrations.aiokafka import consumer as theirs
from acker_redis.integrations.kafka import TrackedConsumer
from acker_redis.integrations.kafka import consumer as ours
from acker_redis.integrations.kafka.messages import appended_ms, once
from acker_redis.protocol.keys import ShardKeys
from tests.integrations.kafka import RawName, committed, group, put_raw
from tests.integrations.test_kafka import consumer_of, track, verdicts
from tests.support import tick

HOUR = 3_600_000
"""ms: the age of the messages."""


@pytest.fixture
def now_ms(orders: Acker, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let the shard remember two hours; take the times of producers for those of the broker."""
    tick(orders)
    meta, client = ShardKeys(orders.namespace, 0).meta, orders.connection.client
    seconds, _ = client.time()
    _, until, run = client.hget(meta, "whole").decode().split(":")
    client.hset(meta, "whole", f"{seconds * 1000 - 2 * HOUR}:{until}:{run}")
    monkeypatch.setattr(ours, "appended_ms", lambda message: message.timestamp()[1])
    monkeypatch.setattr(theirs, "_appended_ms", lambda message: message.timestamp)
    return seconds * 1000


def put(servers: str, topic: str, at_ms: int, *messages: tuple[str, str]) -> None:
    """Produce values with ids to one partition, as if the broker had received them then."""
    producer = Producer({"bootstrap.servers": servers})
    for value, ids in messages:
        headers = {"acker-tuple": ids}
        producer.produce(topic, value, headers=headers, partition=0, timestamp=at_ms)
    assert producer.flush(60) == 0


def live(acker: Acker, name: str) -> tuple[str, str]:
    """Return a message of a pending tree."""
    ((_, value, headers),) = track(acker, name)
    return value, headers["acker-tuple"]


def run(consumer: TrackedConsumer, batches: bool, last: str) -> list[str]:
    """Process messages until the last; return their values."""
    seen: list[str] = []

    def handle(message: Any) -> None:
        seen.append(message.value().decode())
        if seen[-1] == last:
            consumer.stop()

    if batches:
        consumer.run_batches(lambda messages: [handle(each) for each in messages])
    else:
        consumer.run(handle)
    return seen


async def run_async(
    acker: Acker, servers: str, topic: str, batches: bool, last: str
) -> tuple[list[str], int]:
    seen: list[str] = []
    place = acker.connection.client.get_connection_kwargs()
    url = f"redis://{place['host']}:{place['port']}"
    async with AsyncAcker.from_url(url, acker.namespace, timeout=60) as own:
        consumer = TrackedAsyncConsumer(
            own, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest",
            skip_ended=True,
        )  # fmt: skip
        consumer.assign([theirs.TopicPartition(topic, 0)])
        await consumer.start()

        async def handle(message: Any) -> None:
            seen.append(message.value.decode())
            if seen[-1] == last:
                consumer.finish()

        async def handle_all(messages: Any) -> None:
            for each in messages:
                await handle(each)

        await (consumer.run_batches(handle_all) if batches else consumer.run(handle))
        return seen, consumer.skipped


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("library", ["confluent", "aiokafka"])
def test_messages_of_ended_trees_are_skipped_and_committed(
    orders: Acker, servers: str, topic: str, now_ms: int, library: str, batches: bool
) -> None:
    """At the begin of a partition, between others, and at its end; not one of an unknown time."""
    ended = [(f"ended {number}", str(MessageId({number: 7}))) for number in range(1, 5)]
    put(servers, topic, now_ms - HOUR, ended[0], live(orders, "a"), *ended[1:3], live(orders, "b"))
    put(servers, topic, now_ms - HOUR, ("malformed", "7:"), ("none", ""))
    put(servers, topic, now_ms - 600_000, ("young", "5:7"))
    put(servers, topic, now_ms - HOUR, ended[3])
    parked: list[Any] = []
    if library == "aiokafka":
        with pytest.MonkeyPatch.context() as patch:
            init = TrackedAsyncConsumer.__init__
            patch.setattr(
                TrackedAsyncConsumer, "__init__",
                lambda *args, **more: init(*args, on_failure=lambda m, _: parked.append(m), **more),
            )  # fmt: skip
            seen, skipped = asyncio.run(run_async(orders, servers, topic, batches, "young"))
    else:
        consumer = consumer_of(
            orders, servers, topic, skip_ended=True, on_failure=lambda m, _: parked.append(m)
        )
        seen = run(consumer, batches, "young")
        skipped = consumer.skipped
    assert seen == ["a", "b", "none", "young"]
    assert (len(parked), skipped) in {(1, 3), (1, 4)}, "the last may come in a later batch"
    assert committed(servers, topic, topic)[0] == 5 + 3 + (skipped == 4)


def test_batch_of_an_own_loop_skips_between_others(
    orders: Acker, servers: str, topic: str, now_ms: int
) -> None:
    names = ["x", "a", "b", "x", "x", "c", "x"]
    ended = iter(range(1, 9))
    messages = [("x", f"{next(ended)}:7") if name == "x" else live(orders, name) for name in names]
    put(servers, topic, now_ms - HOUR, *messages)
    seen: list[str] = []

    def handle(given: Any) -> None:
        seen.extend(each.value().decode() for each in given)
        given.fail(1, "no such address")

    with consumer_of(orders, servers, topic, skip_ended=True) as consumer:
        read: list[Any] = []
        while len(read) < len(names):
            read += consumer.consume(len(names) - len(read), 1)
        consumer.handle_batch(read, handle)
        assert (seen, consumer.skipped) == (["a", "b", "c"], 4)
    assert committed(servers, topic, topic)[0] == 7
    ack, nack = ("ack", ""), ("nack", "no such address")
    assert verdicts(orders) == {"a": ack, "b": nack, "c": ack}


def test_frontier_that_is_held_holds_the_offsets_of_skipped_messages(
    orders: Acker, servers: str, topic: str, now_ms: int
) -> None:
    """A handler whose message stays open: no later offset is committed, and it comes again."""
    put(servers, topic, now_ms - HOUR, live(orders, "a"), ("ended", "1:7"))

    def broken(messages: Any) -> None:
        raise KeyboardInterrupt

    with consumer_of(orders, servers, topic, skip_ended=True) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.run_batches(broken)
        assert consumer.skipped <= 1
    assert committed(servers, topic, topic).get(0, 0) == 0
    again = consumer_of(orders, servers, topic, skip_ended=True)
    assert run(again, True, "a") == ["a"]


def test_only_the_time_of_the_broker_counts() -> None:
    message = Mock(**{"error.return_value": None})
    message.timestamp.return_value = TIMESTAMP_LOG_APPEND_TIME, 1700
    assert appended_ms(message) == 1700
    message.timestamp.return_value = TIMESTAMP_CREATE_TIME, 1700
    assert appended_ms(message) is None
    message.error.return_value = "end of partition"
    assert appended_ms(message) is None
    assert theirs._appended_ms(Mock(timestamp_type=1, timestamp=1700)) == 1700
    assert theirs._appended_ms(Mock(timestamp_type=0, timestamp=1700)) is None


def test_old_message_with_the_time_of_its_producer_is_processed(
    orders: Acker, servers: str, topic: str, now_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "appended_ms", appended_ms)
    put(servers, topic, now_ms - HOUR, ("old", "1:7"))
    consumer = consumer_of(orders, servers, topic, skip_ended=True)
    assert (run(consumer, False, "old"), consumer.skipped) == (["old"], 0)


def test_malformed_header_that_can_be_read_once_still_fails_its_message(
    orders: Acker, servers: str, topic: str, now_ms: int
) -> None:
    put_raw(servers, topic, [("raw", [(RawName("\xff"), b"1")])])
    parked: list[str] = []

    def park(message: Any, error: Exception) -> None:
        parked.append(str(error))
        consumer.stop()

    consumer = TrackedConsumer(orders, group(servers, topic), skip_ended=True, on_failure=park)
    consumer._ended._margin = -2 * HOUR  # type: ignore[union-attr] # so that its id is looked up
    consumer.assign([ours.TopicPartition(topic, 0)])
    consumer.run(lambda message: parked.append("handled"))
    assert len(parked) == 1
    assert "not UTF-8" in parked[0]


def test_id_is_read_once() -> None:
    read = Mock(side_effect=["7:40", InvalidBatchError("malformed"), "9:1"])
    known = once(read)
    assert (known(1), known(1)) == ("7:40", "7:40")
    for _ in range(2):
        with pytest.raises(InvalidBatchError):
            known(2)
    assert read.call_count == 2
