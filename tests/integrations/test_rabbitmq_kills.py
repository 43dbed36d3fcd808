"""A RabbitMQ consumer killed by SIGKILL at random moments: no record is lost, no ack is false."""

import os
import random
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pika
import pytest

from acker_redis import Acker, AckerConfig, Backoff, Rotator, Source, Verdict
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.rabbitmq import RabbitSender
from tests.integrations import rabbitmq, rabbitmq_worker
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_consumer_loses_no_record_and_acks_nothing_unprocessed(
    kills: int, any_server: EmbeddedRedis, rabbit: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    dice, file = random.Random(seed), tmp_path / "done"
    file.touch()
    name = f"rabbitmq-{uuid.uuid4().hex[:8]}"
    worker = [sys.executable, rabbitmq_worker.__file__, rabbit, any_server.url, name, str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))}
    failed: dict[str, set[str]] = {}
    acked: list[str] = []
    errors: list[BaseException] = []

    def steps() -> set[str]:
        return set(file.read_text().split("\n"))

    def on(verdict: Verdict) -> None:
        record = verdict.record
        if verdict.verdict == "ack":
            # The worker writes before it acks the delivery, so before the ack of the message.
            needed = {f"{verdict.anchor} priced", f"{verdict.anchor} shipped"}
            assert needed <= steps(), f"{record.source_id} was not processed, seed {seed}"
            acked.append(record.source_id)
        else:
            failed.setdefault(record.source_id, set()).add(verdict.why)

    broker = rabbitmq.connect(rabbit)
    for queue in (name, f"{name}-priced"):
        broker.channel().queue_declare(queue)
    broker.close()
    with Acker.from_url(any_server.url, name, timeout=60) as acker:
        acker.create(AckerConfig(tick_ms=500, buckets=3, edges=("orders", "priced")))
        sender = RabbitSender(pika.URLParameters(rabbit), name)
        source = Source(acker, "shop", sender, attempts=5, backoff=Backoff(0.05, 0.2))
        emitted = 0

        def more(count: int) -> None:
            nonlocal emitted
            for _ in range(count):
                source.emit(f"order-{emitted}", f"order-{emitted}", edge="orders")
                emitted += 1

        def read() -> None:
            try:
                for verdict in source.verdicts():
                    on(verdict)
            except BaseException as error:
                errors.append(error)

        def closed() -> bool:
            assert not errors, errors
            return not source.pending

        def start() -> "subprocess.Popen[bytes]":
            prefetch = str(dice.choice([1, 5, 50]))
            process = subprocess.Popen([*worker, prefetch], env=environment, cwd=ROOT)
            wait_until(Path(f"{file}.{process.pid}").exists, "a worker")
            return process

        reader = threading.Thread(target=read)
        with Rotator([acker]):
            reader.start()
            for _ in range(kills):
                more(20)
                process = start()
                at = len(steps()) + dice.randrange(120)
                wait_until(lambda at=at: closed() or len(steps()) >= at, "work", 0.001)
                process.kill()
                process.wait()
            process = start()
            wait_until(closed, f"verdicts on {source.pending} records, seed {seed}")
            source.emit("poison", "poison", edge="orders")
            wait_until(closed, f"the verdict on the poison, seed {seed}")
            process.kill()
            process.wait()
            source.stop()
            reader.join()
        sender.close()
    assert not errors, errors
    assert "poison" not in acked
    assert "ValueError: no such address" in failed.pop("poison")
    lost = {f"order-{n}" for n in range(emitted)} - set(acked) - set(failed)
    assert not lost, f"seed {seed}"
    # An expired attempt names the edges on which an odd number of messages is missing.
    assert all(why.startswith("no ack") for whys in failed.values() for why in whys), failed
    print(f"{kills} kills: {emitted} records, {len(set(acked))} acked, {len(failed)} failed an "
          f"attempt, {len(set(failed) - set(acked))} given up")  # fmt: skip
