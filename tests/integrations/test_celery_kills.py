"""Celery workers killed by SIGKILL at random moments: no record is lost, no ack is false.

A record is a task that publishes a chord: five tasks of one tree. Workers are killed with their
pool processes, or one of these alone; tasks are confirmed to the broker before they begin, or late.
"""

import os
import random
import signal
import threading
import uuid
from pathlib import Path

import pytest

from acker_redis import AckerConfig, Backoff, Rotator, Source, Verdict
from acker_redis.embedded import EmbeddedRedis
from tests.integrations import celery
from tests.waiting import wait_until

STEPS = {"priced", "part 0", "part 1", "shipped"}


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_workers_lose_no_record_and_ack_nothing_unprocessed(
    kills: int, any_server: EmbeddedRedis, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    dice, file = random.Random(seed), tmp_path / "done"
    file.touch()
    name = f"celery-{uuid.uuid4().hex[:8]}"
    failed: dict[str, set[str]] = {}
    acked: list[str] = []
    errors: list[BaseException] = []

    def steps() -> list[str]:
        return file.read_text().splitlines()

    def on(verdict: Verdict) -> None:
        record = verdict.record
        if verdict.verdict == "ack":
            # A task writes before it returns, so before the row of its message.
            missing = {f"{verdict.anchor} {step}" for step in STEPS} - set(steps())
            assert not missing, f"{record.source_id} is acked without {missing}, seed {seed}"
            acked.append(record.source_id)
        else:
            failed.setdefault(record.source_id, set()).add(verdict.why or verdict.reason)

    app, tracker = celery.make(any_server.url, name, file)
    acker = tracker.acker
    acker.create(AckerConfig(tick_ms=1000, buckets=4, edges=("price", "part", "ship")))
    source = Source(acker, "shop", tracker.send, attempts=3, backoff=Backoff(0.05, 0.2))
    emitted = 0

    def read() -> None:
        try:
            for verdict in source.verdicts():
                on(verdict)
        except BaseException as error:
            errors.append(error)

    def closed() -> bool:
        assert not errors, errors
        return not source.pending

    def start() -> object:
        return celery.start(any_server.url, name, file, *dice.choice([(), ("late",)]))

    reader = threading.Thread(target=read, daemon=True)
    with Rotator([acker]):
        reader.start()
        for _ in range(kills):
            for _ in range(20):
                source.emit(f"order-{emitted}", app.tasks["price"].s("a hat"))
                emitted += 1
            worker = start()
            at = len(steps()) + dice.randrange(1, 80)
            wait_until(lambda at=at: closed() or len(steps()) >= at, "work", 0.002)
            if dice.random() < 0.3 and (one := celery.pool(worker)):
                os.kill(dice.choice(one), signal.SIGKILL)
                at = len(steps()) + dice.randrange(10)
                wait_until(lambda at=at: closed() or len(steps()) >= at, "work", 0.002)
            celery.kill(worker)
        worker = start()
        wait_until(closed, f"verdicts on {source.pending} records, seed {seed}")
        # Tasks of records that were given up would delay the last one until it expires.
        wait_until(lambda: not app.backend.client.llen(name), "the end of the queue")
        source.emit("poison", app.tasks["price"].s("poison"))
        wait_until(closed, f"verdicts on {source.pending} records, seed {seed}")
        celery.kill(worker)
        source.stop()
        reader.join()
    tracker.close()
    acker.close()
    assert not errors, errors
    assert "poison" not in acked
    assert any(why.endswith("]: ValueError: no such address") for why in failed.pop("poison"))
    lost = {f"order-{n}" for n in range(emitted)} - set(acked) - set(failed)
    assert not lost, f"seed {seed}"
    # A failure names the edges on which messages are missing, or the task and what became of it.
    named = ("no ack", "price[", "part[", "ship[")
    assert all(why.startswith(named) for whys in failed.values() for why in whys), failed
