"""A RabbitMQ consumer killed by SIGKILL at random moments: no record is lost, no ack is false."""

import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pika
import pytest

from acker_redis import Acker, AckerConfig, Backoff, Rotator, Source
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.rabbitmq import RabbitSender
from tests.integrations import rabbitmq, rabbitmq_worker
from tests.integrations.killed import Ledger


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_consumer_loses_no_record_and_acks_nothing_unprocessed(
    kills: int, any_server: EmbeddedRedis, rabbit: str, tmp_path: Path
) -> None:
    file, name = tmp_path / "done", f"rabbitmq-{uuid.uuid4().hex[:8]}"
    worker = [rabbitmq_worker.__file__, rabbit, any_server.url, name, str(file)]
    broker = rabbitmq.connect(rabbit)
    for queue in (name, f"{name}-priced"):
        broker.channel().queue_declare(queue)
    broker.close()

    def consumer() -> AbstractContextManager[Any]:
        prefetch = str(ledger.dice.choice([1, 5, 50]))
        return ledger.worker(*worker, prefetch)

    with Acker.from_url(any_server.url, name, timeout=60) as acker:
        acker.create(AckerConfig(tick_ms=500, buckets=3, edges=("orders", "priced")))
        sender = RabbitSender(pika.URLParameters(rabbit), name)
        source = Source(acker, "shop", sender, attempts=5, backoff=Backoff(0.05, 0.2))
        # The worker writes before it acks the delivery, so before the ack of the message.
        ledger = Ledger(source, file, "priced", "shipped", edge="orders")
        with Rotator([acker]), ledger:
            for _ in range(kills):
                ledger.emit_orders(20)
                with consumer():
                    ledger.wait_for_work(120)
            with consumer():
                ledger.wait_until_closed()
                ledger.emit("poison")
                ledger.wait_until_closed()
        sender.close()
    ledger.check()
