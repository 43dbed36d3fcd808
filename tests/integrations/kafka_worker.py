"""A worker that is killed: prices orders, then ships them, and writes down each step.

``kafka_worker.py SERVERS URL NAMESPACE TOPIC FILE LIBRARY`` runs until SIGTERM.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiokafka import TopicPartition

from acker_redis import Acker, MessageId
from acker_redis.aio import AsyncAcker
from acker_redis.integrations import aiokafka
from acker_redis.integrations.kafka import TrackedConsumer, TrackedProducer
from tests.integrations.kafka import group, partitions


def main(servers: str, url: str, namespace: str, topic: str, file: str, library: str) -> None:
    """Process both topics; append a line ``<anchor> <step>`` before a handler returns."""
    run = {"confluent": process, "aiokafka": process_async}[library]
    done = os.open(file, os.O_WRONLY | os.O_APPEND)

    def did(headers: Any, step: str) -> None:
        (anchor,) = MessageId.from_headers(headers)
        os.write(done, f"{anchor} {step}\n".encode())

    began = Path(f"{file}.{os.getpid()}")
    run(servers, url, namespace, topic, did, began.touch)


def process(
    servers: str, url: str, namespace: str, topic: str, did: Any, begin: Callable[[], None]
) -> None:
    """Process with confluent-kafka."""
    priced = f"{topic}-priced"
    with Acker.from_url(url, namespace) as acker:
        producer = TrackedProducer(acker, {"bootstrap.servers": servers, "log_level": 0})
        consumer = TrackedConsumer(acker, group(servers, topic))

        def handle(message: Any) -> None:
            if message.topic() == priced:
                step = "shipped"
            else:
                if message.key() == b"poison":
                    raise ValueError("no such address")
                producer.produce(priced, message.value(), message.key(), edge="priced")
                step = "priced"
            did(message.headers(), step)

        consumer.assign(partitions(topic, priced))
        begin()
        consumer.run(handle, commit_every=0.05)


def process_async(
    servers: str, url: str, namespace: str, topic: str, did: Any, begin: Callable[[], None]
) -> None:
    """Process with aiokafka."""
    priced = f"{topic}-priced"

    async def run() -> None:
        async with (
            AsyncAcker.from_url(url, namespace) as acker,
            aiokafka.TrackedAsyncProducer(bootstrap_servers=servers) as producer,
        ):
            consumer = aiokafka.TrackedAsyncConsumer(
                acker, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest"
            )

            async def handle(message: Any) -> None:
                if message.topic == priced:
                    step = "shipped"
                else:
                    if message.key == b"poison":
                        raise ValueError("no such address")
                    await producer.send(priced, message.value, message.key, edge="priced")
                    step = "priced"
                did(message.headers, step)

            consumer.assign([TopicPartition(each.topic, each.partition) for each in assigned])
            await consumer.start()
            begin()
            await consumer.run(handle, commit_every=0.05)

    assigned = partitions(topic, priced)
    asyncio.run(run())


if __name__ == "__main__":
    main(*sys.argv[1:])
