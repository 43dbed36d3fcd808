"""A web service killed by SIGKILL at random moments: no record is lost, no ack is false."""

import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from acker_redis import Acker, AckerConfig, Backoff, Record, Rotator, Source
from acker_redis.embedded import EmbeddedRedis
from tests.integrations import http
from tests.integrations.killed import Ledger


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_service_loses_no_record_and_acks_nothing_unprocessed(
    kills: int, any_server: EmbeddedRedis, tmp_path: Path
) -> None:
    file, port, name = tmp_path / "done", http.free_port(), f"http-{uuid.uuid4().hex[:8]}"
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def service() -> AbstractContextManager[Any]:
        arguments = [any_server.url, name, str(file), str(port)]
        command = ["-m", "tests.integrations.http", *arguments]
        return ledger.worker(*command, ready=lambda: http.listens(port))

    def send(record: Record, ids: Any) -> None:
        path = "/price/poison" if record.source_id == "poison" else "/price/hat"
        answer = client.post(path, headers=ids[0].to_headers())
        # The service fails the record by itself, with the words of the exception.
        assert answer.status_code in (200, 500)

    with Acker.from_url(any_server.url, name, timeout=60) as acker:
        acker.create(AckerConfig(tick_ms=500, buckets=3, edges=("price", "ship")))
        source = Source(acker, "shop", send, attempts=6, backoff=Backoff(0.2, 1.0))
        # A handler writes before it returns, so before the row of its request. No request is sent
        # twice in an attempt.
        ledger = Ledger(source, file, "priced", "shipped", "shipped", edge="price", exact=True)
        with Rotator([acker]), ledger:
            for _ in range(kills):
                with service():
                    ledger.emit_orders(20)
                    ledger.wait_for_work(1, 60)
            with service() as last:
                ledger.wait_until_closed()
                ledger.emit("poison")
                ledger.wait_until_closed()
                last.terminate()
                last.wait()
    client.close()
    assert ledger.failed.get("poison") == {"ValueError: no such address"}, f"seed {ledger.seed}"
    # A failure is a request that had no answer, or names the edges of missing requests.
    ledger.check("ConnectError", "ReadError", "RemoteProtocolError", "WriteError", "POST ")
