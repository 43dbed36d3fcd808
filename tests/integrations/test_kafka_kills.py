"""A Kafka consumer killed by SIGKILL at random moments: no record is lost, no ack is false."""

import uuid
from pathlib import Path

import pytest

from acker_redis import Acker, AckerConfig, Backoff, Rotator, Source
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.kafka import TrackedProducer
from tests.integrations import kafka_worker
from tests.integrations.killed import Ledger


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("library", ["confluent", "aiokafka"])
def test_killed_consumer_loses_no_record_and_acks_nothing_unprocessed(
    library: str, kills: int, any_server: EmbeddedRedis, servers: str, topic: str, tmp_path: Path
) -> None:
    file, name = tmp_path / "done", f"kafka-{uuid.uuid4().hex[:8]}"
    worker = [kafka_worker.__file__, servers, any_server.url, name, topic, str(file), library]
    with Acker.from_url(any_server.url, name, timeout=60) as acker:
        acker.create(AckerConfig(tick_ms=500, buckets=3, edges=("orders", "priced")))
        producer = TrackedProducer(acker, {"bootstrap.servers": servers, "log_level": 0})
        source = Source(
            acker, "shop", producer.sender(topic), attempts=3, backoff=Backoff(0.05, 0.2)
        )
        # The worker writes before its handler returns, so before the ack of the message.
        ledger = Ledger(
            source, file, "priced", "shipped",
            value=lambda _: b"x" * 100, edge="orders", poll=lambda: producer.poll(0),
        )  # fmt: skip
        with Rotator([acker]), ledger:
            ledger.emit("poison")
            for _ in range(kills):
                ledger.emit_orders(20)
                with ledger.worker(*worker):
                    ledger.wait_for_work(40)
            ledger.emit("poison")  # the attempts of the first may have expired
            with ledger.worker(*worker) as last:
                ledger.wait_until_closed()
                last.terminate()
                assert last.wait() == 0, f"seed {ledger.seed}"
    ledger.check()
