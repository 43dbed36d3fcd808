"""Workers with one record that kills them, hangs them, or fails.

``poison_worker.py WAY TRANSPORT URL NAMESPACE SERVER QUEUE FILE`` is a supervisor: it starts a
worker, and another one when that has died or hangs, until it is killed. It writes a line to FILE
for each. Workers are forked, so that the next one begins at once.
"""

import asyncio
import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from acker_redis import Acker
from acker_redis.embedded.guard import die_with_parent

POISON = b"poison"
DELIVERIES = 3
IDLE = 0.5
"""Seconds after which an entry of a stream is delivered to another worker."""
LEASE = 4
"""The same of Amazon SQS: the least."""


def work(name: bytes, way: str, hangs: int) -> None:
    """Process a record; the poison ends the process, never returns, or raises."""
    if name != POISON:
        return
    if way == "dies":
        os._exit(1)
    if way == "hangs":
        os.close(hangs)  # so the supervisor notices
        threading.Event().wait()
    raise ValueError("no such address")


def streams(acker: Acker, server: str, queue: str, work: Any) -> None:
    """Process a stream of Redis."""
    import redis

    from acker_redis.integrations.streams import StreamWorker

    with redis.Redis.from_url(server) as client:
        worker = StreamWorker(
            acker, client, queue, "workers", idle=IDLE, deliveries=DELIVERIES, delete=True
        )
        worker.run(lambda fields: work(fields[b"name"]))


def rabbitmq(acker: Acker, server: str, queue: str, work: Any) -> None:
    """Process a queue of RabbitMQ."""
    from acker_redis.integrations.rabbitmq import TrackedChannel
    from tests.integrations.rabbitmq import connect

    def handle(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        work(body)
        channel.basic_ack(method.delivery_tag)

    # The broker notices by the missing heartbeats that a consumer hangs.
    channel = TrackedChannel(acker, connect(f"{server}?heartbeat=1").channel())
    # The limit of a queue counts the deliveries of all messages that a consumer had in hand.
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(queue, handle)
    channel.start_consuming()


def amazon(acker: Acker, server: str, queue: str, work: Any) -> None:
    """Process a queue of Amazon SQS."""
    from acker_redis.integrations.sqs import SqsWorker
    from tests.integrations.sqs import client

    worker = SqsWorker(acker, client(server), queue, lease=LEASE, wait=1)
    # As with RabbitMQ, a delivery counts for each message that was read together.
    worker.run(lambda message: work(message["Body"].encode()), count=1)


def confluent(acker: Acker, server: str, queue: str, work: Any) -> None:
    """Process a topic of Kafka with confluent-kafka."""
    from acker_redis.integrations.kafka import TrackedConsumer
    from tests.integrations.kafka import group, partitions

    consumer = TrackedConsumer(acker, group(server, queue), deliveries=DELIVERIES)
    consumer.assign(partitions(queue))
    consumer.run(lambda message: work(message.key()), batch=50)


def aiokafka(acker: Acker, server: str, queue: str, work: Any) -> None:
    """Process a topic of Kafka with aiokafka, in batches."""
    from aiokafka import TopicPartition

    from acker_redis.aio import AsyncAcker
    from acker_redis.integrations.aiokafka import TrackedAsyncConsumer
    from tests.integrations.kafka import partitions

    async def handle(messages: Any) -> None:
        for each in messages:
            work(each.key)

    async def run() -> None:
        async with AsyncAcker.from_url(url, acker.namespace) as own:
            consumer = TrackedAsyncConsumer(
                own, bootstrap_servers=server, group_id=queue, auto_offset_reset="earliest",
                deliveries=DELIVERIES,
            )  # fmt: skip
            consumer.assign([TopicPartition(each.topic, each.partition) for each in assigned])
            await consumer.start()
            await consumer.run_batches(handle, batch=50, isolate=True)

    url = sys.argv[3]
    assigned = partitions(queue)
    asyncio.run(run())


RUN = {
    "streams": streams, "rabbitmq": rabbitmq, "sqs": amazon, "kafka": confluent,
    "aiokafka": aiokafka,
}  # fmt: skip


def main(
    way: str, transport: str, url: str, namespace: str, server: str, queue: str, file: str
) -> None:
    """Start workers until the end."""
    ties = die_with_parent()
    while True:
        with Path(file).open("a") as lines:
            lines.write("started\n")
        ends, hangs = os.pipe()
        if os.fork() == 0:
            os.close(ends)
            if ties is not None:
                ties()
            with Acker.from_url(url, namespace) as acker:
                RUN[transport](acker, server, queue, partial(work, way=way, hangs=hangs))
            os._exit(0)
        os.close(hangs)
        os.read(ends, 1)  # until the worker has closed its end
        os.close(ends)


if __name__ == "__main__":
    main(*sys.argv[1:])
