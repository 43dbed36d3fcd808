"""One record in three hundred kills its worker, hangs it, or fails: for each transport."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
import redis

from acker_redis import Acker, AckerConfig, Backoff, Rotator, Source
from acker_redis.embedded import EmbeddedRedis
from acker_redis.embedded.guard import die_with_parent
from acker_redis.integrations.kafka import TrackedProducer
from acker_redis.integrations.rabbitmq import RabbitSender
from acker_redis.integrations.sqs import SqsSender
from acker_redis.integrations.streams import StreamSender
from tests.integrations import poison_worker, rabbitmq, sqs
from tests.integrations.killed import ROOT
from tests.integrations.sqs import moto
from tests.waiting import wait_until

__all__ = ["moto"]
RECORDS = 300
ATTEMPTS = 3
TICK_MS = {"sqs": 5000}
"""Longer than by default for a transport that delivers again only after seconds."""


@contextmanager
def supervisor(*arguments: str) -> Iterator[None]:
    """Run workers, and start another one when one has died or hangs."""
    command = [sys.executable, "-m", poison_worker.__name__, *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, start_new_session=True, preexec_fn=die_with_parent()
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def sender(transport: str, server: str, acker: Acker, queue: str) -> Iterator[tuple[Any, str]]:
    """Create a queue; yield what sends records into it, and its name for workers."""
    with ExitStack() as stack:
        if transport == "streams":
            client = stack.enter_context(redis.Redis.from_url(server))
            client.xgroup_create(queue, "workers", id="0", mkstream=True)
            stack.callback(client.delete, queue)
            adds = StreamSender(acker, client, queue)
            stack.callback(adds.close)
            yield lambda record, ids: adds(record, ids), queue
        elif transport == "rabbitmq":
            connection = stack.enter_context(rabbitmq.connect(server))
            arguments = {"x-queue-type": "quorum", "x-delivery-limit": poison_worker.DELIVERIES}
            connection.channel().queue_declare(queue, durable=True, arguments=arguments)
            yield RabbitSender(pika.URLParameters(server), queue), queue
        elif transport == "sqs":
            yield SqsSender(acker, sqs.client(server), url := _with_redrive(server, queue)), url
        else:
            producer = TrackedProducer(acker, {"bootstrap.servers": server, "log_level": 0})
            stack.callback(producer.flush, 10)
            yield producer.sender(queue), queue


def _with_redrive(server: str, queue: str) -> str:
    client = sqs.client(server)
    dead = client.create_queue(QueueName=f"{queue}-dead")["QueueUrl"]
    of_it = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
    arn = of_it["Attributes"]["QueueArn"]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": {poison_worker.DELIVERIES}}}'
    made = client.create_queue(QueueName=queue, Attributes={"RedrivePolicy": policy})
    return str(made["QueueUrl"])


@pytest.mark.parametrize("way", ["dies", "hangs", "fails"])
@pytest.mark.parametrize(
    "transport",
    ["streams", "rabbitmq", "sqs", "kafka", pytest.param("aiokafka", marks=pytest.mark.nightly)],
)
def test_poison_becomes_a_dead_letter_and_every_other_record_is_acked(
    transport: str, way: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """More orders come until the end: alone, a poison that expires looks like an outage."""
    servers = {"streams": None, "rabbitmq": "rabbit", "sqs": "moto"}
    fixture = servers.get(transport, "servers")
    name = f"poison-{uuid.uuid4().hex[:8]}"
    acked, dead = list[str](), list[tuple[str, str]]()
    started = tmp_path / "started"
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis())
        place = request.getfixturevalue(fixture) if fixture else server.url
        acker = stack.enter_context(Acker.from_url(server.url, name, timeout=60))
        acker.create(AckerConfig(tick_ms=TICK_MS.get(transport, 2000), buckets=3))
        stack.callback(acker.drop)
        send, queue = stack.enter_context(sender(transport, place, acker, name))
        arguments = (way, transport, server.url, name, place, queue, str(started))
        stack.enter_context(supervisor(*arguments))

        def value(source_id: str) -> Any:
            return {"name": source_id} if transport == "streams" else source_id

        stack.enter_context(Rotator([acker]))
        source = stack.enter_context(
            Source(
                acker, "shop", send, attempts=ATTEMPTS, backoff=Backoff(0.05, 0.2),
                on_ack=lambda record: acked.append(record.source_id),
                dead_letter=lambda record, reason, why: dead.append((record.source_id, why)),
            )
        )  # fmt: skip
        orders = [f"order-{number}" for number in range(RECORDS)]
        for source_id in (*orders[: RECORDS // 2], "poison", *orders[RECORDS // 2 :]):
            source.emit(source_id, value(source_id))
        while not dead:
            wait_until(lambda: dead or source.pending <= 1, "all but the poison", 0.1)
            orders.append(f"order-{len(orders)}")
            source.emit(orders[-1], value(orders[-1]))
        wait_until(lambda: not source.pending, "the end of all records")
        workers = started.read_text().count("started")
    assert [source_id for source_id, _ in dead] == ["poison"], dead
    assert sorted(acked) == sorted(orders)
    # The poison has had its workers.
    assert (workers > ATTEMPTS) == (way != "fails"), workers
