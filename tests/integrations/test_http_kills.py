"""A web service killed by SIGKILL at random moments: no record is lost, no ack is false."""

import os
import random
import subprocess
import sys
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from acker_redis import Acker, AckerConfig, Backoff, Record, Rotator, Source, Verdict
from acker_redis.embedded import EmbeddedRedis
from tests.integrations import http
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_service_loses_no_record_and_acks_nothing_unprocessed(
    kills: int, any_server: EmbeddedRedis, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    dice, file, port = random.Random(seed), tmp_path / "done", http.free_port()
    file.touch()
    name = f"http-{uuid.uuid4().hex[:8]}"
    arguments = [any_server.url, name, str(file), str(port)]
    command = [sys.executable, "-m", "tests.integrations.http", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))}
    failed: dict[str, set[str]] = {}
    acked: list[str] = []
    errors: list[BaseException] = []
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)
        wait_until(lambda: http.listens(port), "the service")
        return process

    def send(record: Record, ids: Any) -> None:
        path = "/price/poison" if record.source_id == "poison" else "/price/hat"
        answer = client.post(path, headers=ids[0].to_headers())
        # The service fails the record by itself, with the words of the exception.
        assert answer.status_code in (200, 500)

    def steps() -> list[str]:
        return file.read_text().splitlines()

    def on(verdict: Verdict) -> None:
        record = verdict.record
        if verdict.verdict == "ack":
            # A handler writes before it returns, so before the row of its request.
            done = Counter(line for line in steps() if line.startswith(f"{verdict.anchor} "))
            wanted = {f"{verdict.anchor} priced": 1, f"{verdict.anchor} shipped": 2}
            assert done == wanted, f"{record.source_id} is acked after {done}, seed {seed}"
            acked.append(record.source_id)
        else:
            failed.setdefault(record.source_id, set()).add(verdict.why or verdict.reason)

    with Acker.from_url(any_server.url, name, timeout=60) as acker:
        acker.create(AckerConfig(tick_ms=500, buckets=3, edges=("price", "ship")))
        source = Source(acker, "shop", send, attempts=6, backoff=Backoff(0.2, 1.0))
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

        reader = threading.Thread(target=read, daemon=True)
        with Rotator([acker]):
            reader.start()
            for _ in range(kills):
                service = start()
                for _ in range(20):
                    source.emit(f"order-{emitted}", edge="price")
                    emitted += 1
                at = len(steps()) + dice.randrange(1, 60)
                wait_until(lambda at=at: closed() or len(steps()) >= at, "work", 0.001)
                service.kill()
                service.wait()
            service = start()
            wait_until(closed, f"verdicts on {source.pending} records, seed {seed}")
            source.emit("poison", edge="price")
            wait_until(closed, "the verdict on the poison")
            service.terminate()
            service.wait()
            source.stop()
            reader.join()
    client.close()
    assert not errors, errors
    assert failed.pop("poison") == {"ValueError: no such address"}
    lost = {f"order-{n}" for n in range(emitted)} - set(acked) - set(failed)
    assert not lost, f"seed {seed}"
    # A failure is a request that had no answer, or names the edges of missing requests.
    named = ("no ack", "ConnectError", "ReadError", "RemoteProtocolError", "WriteError", "POST ")
    assert all(why.startswith(named) for whys in failed.values() for why in whys), failed
