"""A Kafka consumer killed by SIGKILL at random moments: no record is lost, no ack is false."""

import os
import random
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from acker_redis import Acker, AckerConfig, Backoff, Rotator, Source, Verdict
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.kafka import TrackedProducer
from tests.integrations import kafka_worker
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("library", ["confluent", "aiokafka"])
def test_killed_consumer_loses_no_record_and_acks_nothing_unprocessed(
    library: str, kills: int, any_server: EmbeddedRedis, servers: str, topic: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    dice, file = random.Random(seed), tmp_path / "done"
    file.touch()
    name = f"kafka-{uuid.uuid4().hex[:8]}"
    arguments = [servers, any_server.url, name, topic, str(file), library]
    worker = [sys.executable, kafka_worker.__file__, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))}
    failed: dict[str, set[str]] = {}
    acked: list[str] = []
    errors: list[BaseException] = []

    def steps() -> set[str]:
        return set(file.read_text().split("\n"))

    def on(verdict: Verdict) -> None:
        record = verdict.record
        if verdict.verdict == "ack":
            # The worker writes before its handler returns, so before the ack of the message.
            needed = {f"{verdict.anchor} priced", f"{verdict.anchor} shipped"}
            assert needed <= steps(), f"{record.source_id} was not processed, seed {seed}"
            acked.append(record.source_id)
        else:
            failed.setdefault(record.source_id, set()).add(verdict.why)

    with Acker.from_url(any_server.url, name, timeout=60) as acker:
        acker.create(AckerConfig(tick_ms=500, buckets=3, edges=("orders", "priced")))
        producer = TrackedProducer(acker, {"bootstrap.servers": servers, "log_level": 0})
        source = Source(
            acker, "shop", producer.sender(topic), attempts=3, backoff=Backoff(0.05, 0.2)
        )
        emitted = 0

        def more(count: int) -> None:
            nonlocal emitted
            for _ in range(count):
                source.emit(f"order-{emitted}", b"x" * 100, edge="orders")
                emitted += 1

        def read() -> None:
            try:
                for verdict in source.verdicts():
                    on(verdict)
            except BaseException as error:
                errors.append(error)

        def look() -> bool:
            producer.poll(0)
            assert not errors, errors
            return not source.pending

        source.emit("poison", b"x", edge="orders")
        reader = threading.Thread(target=read)
        with Rotator([acker]):
            reader.start()
            for _ in range(kills):
                more(20)
                process = subprocess.Popen(worker, env=environment, cwd=ROOT)
                began = Path(f"{file}.{process.pid}")
                wait_until(lambda began=began: began.exists(), "a worker")
                at = len(steps()) + dice.randrange(40)
                wait_until(lambda at=at: look() or len(steps()) >= at, "work", 0.001)
                process.kill()
                process.wait()
            source.emit("poison", b"x", edge="orders")  # the attempts of the first may have expired
            process = subprocess.Popen(worker, env=environment, cwd=ROOT)
            wait_until(look, f"verdicts on {source.pending} records, seed {seed}")
            process.terminate()
            assert process.wait() == 0
            source.stop()
            reader.join()
    assert "poison" not in acked
    failed["poison"].remove("ValueError: no such address")
    lost = {f"order-{n}" for n in range(emitted)} - set(acked) - set(failed)
    assert not lost, f"seed {seed}"
    # An expired attempt names the edges on which an odd number of messages is missing.
    assert all(why.startswith("no ack") for whys in failed.values() for why in whys), failed
