"""A worker of streams killed by SIGKILL at random moments: no record is lost, no ack is false."""

import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest
import redis

from acker_redis import Acker, AckerConfig, Backoff, Rotator, Source, Verdict
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.streams import StreamSender
from tests.integrations import streams_worker
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_worker_loses_no_record_and_acks_nothing_unprocessed(
    kills: int, any_server: EmbeddedRedis, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    dice, file = random.Random(seed), tmp_path / "done"
    file.touch()
    name = f"streams-{uuid.uuid4().hex[:8]}"
    worker = [sys.executable, streams_worker.__file__, any_server.url, name, name, str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))}
    failed: dict[str, set[str]] = {}
    acked: list[str] = []
    errors: list[BaseException] = []

    def steps() -> set[str]:
        return set(file.read_text().split("\n"))

    def on(verdict: Verdict) -> None:
        record = verdict.record
        if verdict.verdict == "ack":
            # The worker writes before its handler returns, so before the ack of the entry.
            needed = {f"{verdict.anchor} priced", f"{verdict.anchor} shipped"}
            assert needed <= steps(), f"{record.source_id} was not processed, seed {seed}"
            acked.append(record.source_id)
        else:
            failed.setdefault(record.source_id, set()).add(verdict.why)

    client = redis.Redis.from_url(any_server.url)
    groups = {name: "pricing", f"{name}-priced": "shipping"}
    for stream, group in groups.items():
        client.xgroup_create(stream, group, id="0", mkstream=True)
    with Acker.from_url(any_server.url, name, timeout=60) as acker:
        acker.create(AckerConfig(tick_ms=500, buckets=3, edges=("orders", "priced")))
        sender = StreamSender(acker, client, name)
        source = Source(acker, "shop", sender, attempts=3, backoff=Backoff(0.05, 0.2))
        emitted = 0

        def emit(source_id: str) -> None:
            source.emit(source_id, {"name": source_id, "blob": b"\xff" * 100}, edge="orders")

        def more(count: int) -> None:
            nonlocal emitted
            for _ in range(count):
                emit(f"order-{emitted}")
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
            process = subprocess.Popen(worker, env=environment, cwd=ROOT)
            wait_until(Path(f"{file}.{process.pid}").exists, "a worker")
            return process

        def pause(slow: "subprocess.Popen[bytes]") -> None:
            """Stop a worker until another has taken its entries over; then both work."""
            slow.send_signal(signal.SIGSTOP)
            other = start()
            wait_until(lambda: closed() or not left(slow.pid), "entries of a stopped worker")
            slow.send_signal(signal.SIGCONT)
            at = len(steps()) + dice.randrange(20)
            wait_until(lambda: closed() or len(steps()) >= at, "work of both", 0.001)
            other.kill()
            other.wait()

        def left(pid: int) -> int:
            return sum(
                each["pending"]
                for stream, group in groups.items()
                for each in client.xinfo_consumers(stream, group)
                if f"-{pid}-".encode() in each["name"]
            )

        reader = threading.Thread(target=read)
        with Rotator([acker]):
            reader.start()
            for number in range(kills):
                more(20)
                process = start()
                at = len(steps()) + dice.randrange(40)
                wait_until(lambda at=at: closed() or len(steps()) >= at, "work", 0.001)
                if number % 4 == 1:
                    pause(process)
                process.kill()
                process.wait()
            process = start()
            wait_until(closed, f"verdicts on {source.pending} records, seed {seed}")
            emit("poison")
            wait_until(closed, f"the verdict on the poison, seed {seed}")
            process.terminate()
            assert process.wait() == 0
            source.stop()
            reader.join()
        sender.close()
        assert not errors, errors
        assert "poison" not in acked
        assert "ValueError: no such address" in failed.pop("poison")
        lost = {f"order-{n}" for n in range(emitted)} - set(acked) - set(failed)
        assert not lost, f"seed {seed}"
        # An expired attempt names the edges on which an odd number of messages is missing. An
        # entry that was in process at several kills names that.
        named = ("no ack", "AckerError: delivered 5 times")
        assert all(why.startswith(named) for whys in failed.values() for why in whys), failed
        print(f"{kills} kills: {emitted} records, {len(set(acked))} acked, {len(failed)} failed "
              f"an attempt, {len(set(failed) - set(acked))} given up")  # fmt: skip
        client.delete(*groups)
        acker.drop()
    client.close()
