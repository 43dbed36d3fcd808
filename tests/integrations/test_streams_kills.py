"""A worker of streams killed by SIGKILL at random moments: no record is lost, no ack is false."""

import signal
import uuid
from pathlib import Path
from typing import Any

import pytest
import redis

from acker_redis import Acker, AckerConfig, Backoff, Rotator, Source
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.streams import StreamSender
from tests.integrations import streams_worker
from tests.integrations.killed import Ledger
from tests.waiting import wait_until


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_worker_loses_no_record_and_acks_nothing_unprocessed(
    kills: int, any_server: EmbeddedRedis, tmp_path: Path
) -> None:
    file, name = tmp_path / "done", f"streams-{uuid.uuid4().hex[:8]}"
    worker = [streams_worker.__file__, any_server.url, name, name, str(file)]
    client = redis.Redis.from_url(any_server.url)
    groups = {name: "pricing", f"{name}-priced": "shipping"}
    for stream, group in groups.items():
        client.xgroup_create(stream, group, id="0", mkstream=True)

    def value(source_id: str) -> dict[str, Any]:
        return {"name": source_id, "blob": b"\xff" * 100}

    def left(pid: int) -> int:
        return sum(
            each["pending"]
            for stream, group in groups.items()
            for each in client.xinfo_consumers(stream, group)
            if f"-{pid}-".encode() in each["name"]
        )

    def pause(slow: Any) -> None:
        """Stop a worker until another has taken its entries over; then both work."""
        slow.send_signal(signal.SIGSTOP)
        with ledger.worker(*worker):
            what = f"entries of a stopped worker, seed {ledger.seed}"
            wait_until(lambda: ledger.closed() or not left(slow.pid), what)
            slow.send_signal(signal.SIGCONT)
            ledger.wait_for_work(20)

    with Acker.from_url(any_server.url, name, timeout=60) as acker:
        acker.create(AckerConfig(tick_ms=500, buckets=3, edges=("orders", "priced")))
        sender = StreamSender(acker, client, name)
        source = Source(acker, "shop", sender, attempts=3, backoff=Backoff(0.05, 0.2))
        # The worker writes before its handler returns, so before the ack of the entry.
        ledger = Ledger(source, file, "priced", "shipped", value=value, edge="orders")
        with Rotator([acker]), ledger:
            for number in range(kills):
                ledger.emit_orders(20)
                with ledger.worker(*worker) as process:
                    ledger.wait_for_work(40)
                    if number % 4 == 1:
                        pause(process)
            with ledger.worker(*worker) as last:
                ledger.wait_until_closed()
                ledger.emit("poison")
                ledger.wait_until_closed()
                last.terminate()
                assert last.wait() == 0, f"seed {ledger.seed}"
        sender.close()
        # An entry that was in process at several kills names that.
        ledger.check("AckerError: delivered 5 times")
        client.delete(*groups)
        acker.drop()
    client.close()
