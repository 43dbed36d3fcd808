"""Celery workers killed by SIGKILL at random moments: no record is lost, no ack is false.

A record is a task that publishes a chord: five tasks of one tree. Workers are killed with their
pool processes, or one of these alone; tasks are confirmed to the broker before they begin, or late.
"""

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acker_redis import AckerConfig, Backoff, Rotator, Source
from acker_redis.embedded import EmbeddedRedis
from tests.integrations import celery
from tests.integrations.killed import Ledger
from tests.waiting import wait_until


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_workers_lose_no_record_and_ack_nothing_unprocessed(
    kills: int, any_server: EmbeddedRedis, tmp_path: Path
) -> None:
    file, name = tmp_path / "done", f"celery-{uuid.uuid4().hex[:8]}"
    app, tracker = celery.make(any_server.url, name, file)
    acker = tracker.acker
    acker.create(AckerConfig(tick_ms=1000, buckets=4, edges=("price", "part", "ship")))
    source = Source(acker, "shop", tracker.send, attempts=3, backoff=Backoff(0.05, 0.2))
    # A task writes before it returns, so before the row of its message.
    steps = ("priced", "part 0", "part 1", "shipped")
    ledger = Ledger(source, file, *steps, value=app.tasks["price"].s)
    dice = ledger.dice

    @contextmanager
    def running() -> Iterator[Any]:
        worker = celery.start(any_server.url, name, file, *dice.choice([(), ("late",)]))
        try:
            yield worker
        finally:
            celery.kill(worker)

    with Rotator([acker]), ledger:
        for _ in range(kills):
            ledger.emit_orders(20)
            with running() as worker:
                ledger.wait_for_work(1, 80)
                if dice.random() < 0.3 and (one := celery.pool(worker)):
                    os.kill(dice.choice(one), signal.SIGKILL)
                    ledger.wait_for_work(10)
        with running():
            ledger.wait_until_closed()
            # Tasks of records that were given up would delay the last one until it expires.
            queue = f"the end of the queue, seed {ledger.seed}"
            wait_until(lambda: not app.backend.client.llen(name), queue)
            ledger.emit("poison")
            ledger.wait_until_closed()
    tracker.close()
    acker.close()
    # A failure names the edges on which messages are missing, or the task and what became of it.
    poison = r"price\[.*\]: ValueError: no such address"
    ledger.check("price[", "part[", "ship[", poison=poison)
