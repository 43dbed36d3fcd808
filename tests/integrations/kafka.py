"""A Kafka broker for tests: the mock cluster of librdkafka, with real sockets on loopback.

It keeps at most 5 MB in each of the four partitions of a topic. A new group waits 3 seconds for
members, and a group that has become empty takes no new ones: a program that is started again in a
test takes its partitions by ``assign()``. The offsets that it commits are kept.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import aiokafka.producer.message_accumulator
import aiokafka.producer.producer
from aiokafka import AIOKafkaProducer
from aiokafka.record import default_records
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.waiting import wait_until

PARTITIONS = 4


@contextmanager
def cluster() -> Iterator[str]:
    """Run a cluster in this process; yield its bootstrap servers."""
    host = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    found = host.list_topics(timeout=60).brokers.values()
    yield ",".join(f"{each.host}:{each.port}" for each in found)
    host.flush(0)


def group(servers: str, name: str, **more: Any) -> dict[str, Any]:
    """Return the configuration of a consumer in a group."""
    return {
        "bootstrap.servers": servers,
        "group.id": name,
        "auto.offset.reset": "earliest",
        "log_level": 0,
        **more,
    }


def partitions(*topics: str) -> list[TopicPartition]:
    """Return all partitions of topics, to be assigned."""
    return [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]


def put(servers: str, topic: str, messages: Iterable[tuple[str, Any, Any]]) -> None:
    """Produce messages, each a key, a value and headers."""
    producer = Producer({"bootstrap.servers": servers})
    for key, value, headers in messages:
        producer.produce(topic, value, key, headers=headers)
    assert producer.flush(60) == 0


class RawName(str):
    """The name of a header whose bytes on the wire are not UTF-8."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return super().encode("latin-1")


def put_raw(servers: str, topic: str, messages: Iterable[tuple[str, list[Any]]]) -> None:
    """Produce values with headers to partition 0; only this encoder takes a RawName."""

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for value, headers in messages:
                await producer.send(topic, value.encode(), partition=0, headers=headers)

    builder = default_records._DefaultRecordBatchBuilderPy
    with (
        patch.object(aiokafka.producer.producer, "DefaultRecordBatchBuilder", builder),
        patch.object(aiokafka.producer.message_accumulator, "DefaultRecordBatchBuilder", builder),
    ):
        asyncio.run(send())


def read(servers: str, topic: str, count: int) -> list[Any]:
    """Return the first messages of a topic: wait until there are ``count``."""
    consumer = Consumer(group(servers, "reader"))
    consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    found: list[Any] = []
    wait_until(
        lambda: (
            found.extend(m for m in consumer.consume(500, 0.05) if not m.error())
            or len(found) >= count
        ),
        f"{count} messages of {topic}",
    )
    consumer.close()
    return found


def committed(servers: str, name: str, topic: str) -> dict[int, int]:
    """Return the committed offsets of a group by partition, without partitions that have none."""
    consumer = Consumer(group(servers, name))
    found = consumer.committed(partitions(topic), timeout=60)
    consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}
