"""Count the words of documents with three services, while one of their workers is killed."""

import argparse
import contextlib
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import redis

from acker_redis import Acker, AckerConfig, Backoff, Frontier, Record, Rotator, Source
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.streams import StreamSender

WORKERS = "split", "count", "count", "count", "join"
INPUT = [text.encode() for _, text in sorted(topics.items())]
"""The chapters of Python's own help, one document a line."""
TRAP, BROKEN = 20, 33
INPUT[BROKEN] = b"\xff\xfe"
"""The line whose worker hangs and is killed, and the line that is not valid UTF-8."""

interrupts: list[int] = []
"""Each Ctrl-C. If it raised at once, a process that was just started might not be known yet."""


def check() -> None:
    """Raise KeyboardInterrupt after Ctrl-C."""
    if interrupts:
        raise KeyboardInterrupt


@contextlib.contextmanager
def services(url: str, namespace: str) -> Iterator[dict[int, subprocess.Popen[bytes]]]:
    """Start the services in separate processes, yield them by process id, and end them."""
    program = str(Path(__file__).with_name("worker.py"))
    started: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for service in WORKERS:
            command = [sys.executable, program, service, url, namespace]
            # A new session: Ctrl-C reaches only this program, which ends the workers.
            worker = subprocess.Popen(command, start_new_session=True)  # noqa: S603
            started[worker.pid] = worker
            check()
        yield started
    finally:
        for worker in started.values():
            worker.terminate()
        for worker in started.values():
            worker.wait()


class Progress:
    """The progress over the lines of the input, as a frontier."""

    def __init__(self) -> None:
        self.frontier = Frontier()
        self.done: set[int] = set()

    def ack(self, record: Record) -> None:
        """Complete a line whose pages were all counted."""
        line, held_back_at = int(record.source_id), self.frontier.position
        self.done.add(line)
        position = self.frontier.complete(line)
        if line == TRAP:
            print(f"line {line} is complete: position {held_back_at} -> {position}")

    def fail(self, record: Record, reason: str, why: str) -> None:
        """Record a failed attempt."""
        self.frontier.fail(int(record.source_id), f"{reason}: {why}")
        print(f"line {record.source_id}, attempt {record.attempt} {reason}: {why}")

    def park(self, record: Record, reason: str, why: str) -> None:
        """Quarantine a line whose last attempt failed, so that the frontier may pass it."""
        self.frontier.quarantine(int(record.source_id))


def run(url: str) -> bool:
    """Count all documents; return whether every line of the input is accounted for."""
    name, progress = f"words-{secrets.token_hex(4)}", Progress()
    print(f"{len(INPUT)} documents, {len(WORKERS)} workers", flush=True)
    client = redis.Redis.from_url(url)
    client.sadd(f"{name}:traps", TRAP)
    with Acker.from_url(url, name) as acker:
        acker.create(AckerConfig(tick_ms=10_000))
        with services(url, name) as workers, Rotator([acker]):
            source = Source(
                acker,
                "input",
                StreamSender(acker, client, f"{name}:documents"),
                on_ack=progress.ack,
                on_fail=progress.fail,
                dead_letter=progress.park,
                attempts=2,
                backoff=Backoff(0.2),
                max_pending=30,
            )
            for line, text in enumerate(INPUT):
                check()
                source.emit(str(line), {"line": line, "text": text})
            while not source.join(timeout=0.05):
                check()
                trapped: Any = client.lpop(f"{name}:trapped")
                if trapped:
                    print(f"killing a worker that holds a page of line {TRAP}")
                    os.kill(int(trapped), signal.SIGKILL)
                    workers[int(trapped)].wait()
        totals = {
            int(line): json.loads(words) for line, words in client.hgetall(f"{name}:totals").items()
        }
    client.delete(*client.scan_iter(f"{name}:*"))
    print(f"position {progress.frontier.position} of {len(INPUT)}")
    for line in sorted(totals, key=lambda line: -sum(totals[line].values()))[:3]:
        print(f"line {line} has {sum(totals[line].values())} words")
    expected = {
        line: Counter(text.decode().split()) for line, text in enumerate(INPUT) if line != BROKEN
    }
    parked = [given_up.offset for given_up in progress.frontier.quarantined()]
    return totals == expected and progress.done == expected.keys() and parked == [BROKEN]


def main() -> int:
    """Run the example and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", metavar="URL", help="default: an embedded server")
    url = parser.parse_args().redis
    logging.getLogger("acker_redis").setLevel(logging.ERROR)
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    with contextlib.nullcontext() if url else EmbeddedRedis() as own:
        right = run(own.url if own else url)
    print("Every document is accounted for." if right else "Some document is NOT accounted for.")
    return not right


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
