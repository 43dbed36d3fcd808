"""The limit of deliveries of a Kafka consumer: notes in the metadata of committed offsets."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import TopicPartition
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st

from acker_redis import Acker, ConfigError
from acker_redis.aio import AsyncAcker
from acker_redis.integrations.aiokafka import TrackedAsyncConsumer
from acker_redis.integrations.kafka_messages.deliveries import Deliveries
from acker_redis.integrations.kafka_messages.partitions import Partitions
from tests.integrations.kafka import committed, group, partitions, put_raw
from tests.integrations.test_kafka import consumer_of, track, verdicts

PLACE = ("orders", 0)


class Group:
    """A group of one partition: its committed offset and metadata, and the handled messages."""

    def __init__(self, messages: list[int], limit: int) -> None:
        self.offset, self.metadata = 0, ""
        self.messages, self.limit = messages, limit
        self.handled: list[int] = []
        self.failed: list[int] = []
        self.deaths = 0

    def run(self, batch: int, poison: set[int], lives: int) -> None:
        """Run a consumer that dies of a poison, or after some messages, or at the end."""
        known = Partitions()
        known.assign([PLACE])
        limit = Deliveries(self.limit, known)
        rest = [each for each in self.messages if each >= self.offset]
        while rest:
            polled, rest = rest[:batch], rest[batch:]
            known.arrived(PLACE, polled[0], polled[-1] + 1)
            while polled:
                located = [(PLACE, each) for each in polled]
                for each in limit.unknown(located):
                    limit.found(each, self.metadata)
                begin = limit.begin(located)
                for moved in (*known.moved(), *begin.notes):
                    self.offset, self.metadata = moved.position, moved.note
                    known.committed(PLACE, moved.position)
                now, polled = polled[: begin.take], polled[begin.take :]
                for each in now:
                    frontier = known.read(PLACE, each)
                    assert frontier is not None
                    if begin.error is not None:
                        self.failed.append(each)
                    elif each in poison or not lives:
                        self.deaths += 1
                        return
                    else:
                        lives -= 1
                        self.handled.append(each)
                    frontier.complete(each)
        for moved in known.moved():
            self.offset, self.metadata = moved.position, moved.note


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40, unique=True).map(sorted),
    st.sets(st.integers(0, 60), max_size=3),
    st.integers(2, 4),
    st.integers(1, 20),
)
def test_each_poison_fails_and_nothing_else_does(
    messages: list[int], poison: set[int], limit: int, batch: int
) -> None:
    """A poison kills ``limit`` consumers, and one more that had it in a batch."""
    poison &= {*messages}
    world = Group(messages, limit)
    while True:
        deaths = world.deaths
        world.run(batch, poison, 1000)
        assert world.deaths <= len(poison) * (limit + 1)
        if deaths == world.deaths:
            break
    assert world.failed == sorted(poison)
    assert {*world.handled} == {*messages} - poison


@given(st.integers(2, 4), st.integers(1, 20), st.lists(st.integers(1, 9), max_size=20))
def test_kills_between_which_something_was_settled_fail_nothing(
    limit: int, batch: int, lives: list[int]
) -> None:
    world = Group([*range(60)], limit)
    for each in lives:
        world.run(batch, set(), each)  # at least one message was settled
    world.run(batch, set(), 1000)
    assert world.failed == []


@pytest.mark.parametrize("wrong", [1, 0, -1, True, 2.0, "3"])
def test_limit_below_two_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="deliveries is a number, at least 2"):
        Deliveries(wrong, Partitions())


def metadata(servers: str, topic: str) -> str:
    """Return the metadata of the committed offset of partition 0."""
    consumer = Consumer(group(servers, topic))
    (found,) = consumer.committed(partitions(topic)[:1], timeout=60)
    consumer.close()
    return (found.metadata or "").rstrip("\0")


@pytest.mark.parametrize("library", ["confluent", "aiokafka"])
def test_message_that_ends_its_consumers_fails_and_others_are_acked(
    library: str, orders: Acker, servers: str, topic: str
) -> None:
    """A consumer that ends with a BaseException commits, but not the message that it began."""
    names = [f"order-{number}" for number in range(6)]
    sent = [(value, [*headers.items()]) for _, value, headers in track(orders, *names)]
    put_raw(servers, topic, [(value, [(k, v.encode()) for k, v in h]) for value, h in sent])
    seen: list[list[str]] = []
    for _ in range(4):
        seen.append([])
        with suppress(Killed):
            run[library](orders, servers, topic, seen[-1])
    # In a batch, with a note, alone, and not any more.
    assert seen == [names[:3], ["order-2"], ["order-2"], names[3:]]
    why = "AckerError: delivered 2 times, and no consumer has settled it"
    assert verdicts(orders) == {**dict.fromkeys(names, ("ack", "")), "order-2": ("nack", why)}
    assert committed(servers, topic, topic) == {0: 6}
    assert metadata(servers, topic) == ""


class Killed(BaseException):
    """Ends a consumer in its handler."""


def handle(value: bytes, seen: list[str]) -> bool:
    """Note a value; return whether it is the last."""
    seen.append(value.decode())
    if value == b"order-2":
        raise Killed
    return value == b"order-5"


def run_confluent(acker: Acker, servers: str, topic: str, seen: list[str]) -> None:
    consumer = consumer_of(acker, servers, topic, deliveries=2)
    consumer.run(lambda each: consumer.stop() if handle(each.value(), seen) else None)


def run_aiokafka(acker: Acker, servers: str, topic: str, seen: list[str]) -> None:
    place = acker.connection.client.get_connection_kwargs()
    url = f"redis://{place['host']}:{place['port']}"

    async def process() -> None:
        async with AsyncAcker.from_url(url, acker.namespace, timeout=60) as own:
            consumer = TrackedAsyncConsumer(
                own, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest",
                deliveries=2,
            )  # fmt: skip
            consumer.assign([TopicPartition(each.topic, each.partition) for each in assigned])
            await consumer.start()

            async def one(message: Any) -> None:
                if handle(message.value, seen):
                    consumer.finish()

            await consumer.run(one)

    assigned = partitions(topic)
    asyncio.run(process())


run = {"confluent": run_confluent, "aiokafka": run_aiokafka}
