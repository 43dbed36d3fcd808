"""A producer in gunicorn, created before its workers are forked: reloads, and a graceful end."""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol.ids import new_anchor
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker, missing
from tests.producer.rig import InThread
from tests.support import tick, total, verdicts
from tests.waiting import LIMIT, wait_until

LOADED = 1
"""Anchor of the tree that the application tracks when it is loaded."""
WORKERS: dict[str, list[str]] = {"sync": [], "gthread": ["--threads", "4"]}
REQUESTS = 150
"""Requests per thread."""


class Gunicorn:
    """Two workers that serve one port."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.process = process
        self.answered: dict[int, str] = {}
        """The anchor of each answered request, and the worker that answered it."""
        self.refused: set[int] = set()
        """Anchors of requests without an answer: their rows may have been added or not."""
        self._url = f"http://127.0.0.1:{port}/"

    def ask(self) -> bool:
        anchor = new_anchor()
        self.refused.add(anchor)
        try:
            with urllib.request.urlopen(f"{self._url}{anchor}", timeout=LIMIT) as reply:
                self.answered[anchor] = reply.read().decode()
        except (OSError, urllib.error.URLError):
            return False
        self.refused.discard(anchor)
        return True

    @property
    def who(self) -> set[str]:
        return set(self.answered.values())


@pytest.fixture
def direct(make_any_acker: MakeAcker) -> Acker:
    return make_any_acker(shards=2)


@pytest.fixture(params=WORKERS)
def gunicorn(
    request: pytest.FixtureRequest, direct: Acker, any_server: EmbeddedRedis, tmp_path: Path
) -> Iterator[Gunicorn]:
    if importlib.util.find_spec("gunicorn") is None:
        missing("gunicorn")
    log = tmp_path / "log"
    with log.open("wb") as to, socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gunicorn", "--preload", "--workers", "2"),
                *("--worker-class", request.param, *WORKERS[request.param]),
                *("--bind", f"fd://{listener.fileno()}", "--no-control-socket"),
                # A slow machine must not make gunicorn kill a worker.
                *("--timeout", "0", "--graceful-timeout", "3600"),
                "tests.producer.wsgi:application",
            ],
            env={
                **os.environ,
                "ACKER_TEST_URL": any_server.url,
                "ACKER_TEST_NAMESPACE": direct.namespace,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
            },
            pass_fds=[listener.fileno()],
            stdout=to,
            stderr=to,
        )
        running = Gunicorn(process, listener.getsockname()[1])
        listener.close()
        try:
            wait_until(lambda: process.poll() is not None or running.ask(), "an answer", 0.05)
            assert process.poll() is None, log.read_text()
            yield running
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


def check(gunicorn: Gunicorn, direct: Acker) -> None:
    """Check that each answered request is acked once, and the arbiter's tree has its verdict."""
    assert gunicorn.process.wait(LIMIT) == 0
    tick(direct, 3)
    found = [(v[2], v[1]) for v in verdicts(direct)]
    anchors = [anchor for anchor, _ in found]
    assert len(set(anchors)) == len(anchors)
    assert dict(found)[LOADED] == "expired"
    acked = {anchor for anchor, reason in found if reason == "completed"}
    assert set(gunicorn.answered) <= acked
    assert set(anchors) <= set(gunicorn.answered) | gunicorn.refused | {LOADED}
    counted = total(direct)
    assert counted["repeated"] == counted["conflict"] == 0


def test_answered_requests_are_acked_after_a_graceful_end(
    gunicorn: Gunicorn, direct: Acker
) -> None:
    def ask() -> None:
        for _ in range(REQUESTS):
            assert gunicorn.ask()

    threads = [InThread(ask) for _ in range(4)]
    for thread in threads:
        thread.join()
    assert total(direct)["tracked"] < len(gunicorn.answered), "some rows wait for a minute"
    gunicorn.process.send_signal(signal.SIGTERM)
    check(gunicorn, direct)
    assert len(gunicorn.answered) > 4 * REQUESTS


def test_replaced_workers_lose_no_answered_request(gunicorn: Gunicorn, direct: Acker) -> None:
    enough = threading.Event()

    def ask() -> None:
        while not enough.is_set():
            gunicorn.ask()

    threads = [InThread(ask) for _ in range(4)]
    wait_until(lambda: len(gunicorn.answered) > 100, "answers")
    for _ in range(2):
        before = gunicorn.who
        gunicorn.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(gunicorn.who - before) >= 2, "two new workers")  # noqa: B023
    gunicorn.process.send_signal(signal.SIGTERM)
    gunicorn.process.wait(LIMIT)
    enough.set()
    for thread in threads:
        thread.join()
    check(gunicorn, direct)
