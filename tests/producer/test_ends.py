"""How a program may end without a close()."""

import os
import signal
import subprocess
import sys

import pytest

from acker_redis.embedded import EmbeddedRedis
from acker_redis.sync.client import Acker
from tests.conftest import MakeAcker
from tests.support import row, tick, total, track, verdicts
from tests.waiting import LIMIT

PROGRAM = """
import os, signal, sys, threading
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer

_, url, namespace, first, last = sys.argv
producer = Producer(Acker.from_url(url, namespace, timeout=100), "t", linger=60)
for anchor in range(int(first), int(last)):
    producer.ack(anchor, 40)
"""
KEPT = {
    "the end of the program": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise RuntimeError('not caught')", 1),
    "a signal that is handled": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nsignal.pause()",
        5,
    ),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT)\nsignal.pause()", -signal.SIGINT),
    "sys.exit of a fork": (
        "if os.fork():\n    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "producer.ack(int(last), 40)\nsys.exit(7)",
        7,
    ),
}
LOST = {
    "os._exit": ("os._exit(0)", 0),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "a signal that is not handled": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
}
COUNT = 20


@pytest.fixture
def direct(make_any_acker: MakeAcker) -> Acker:
    acker = make_any_acker()
    for anchor in range(1, COUNT + 2):
        track(acker, anchor, 40)
    return acker


def run(server: EmbeddedRedis, direct: Acker, end: str) -> subprocess.CompletedProcess[str]:
    arguments = (server.url, direct.namespace, "1", str(COUNT + 1))
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + end, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )


@pytest.mark.parametrize("how", KEPT)
def test_rows_are_sent_at_a_normal_exit(any_server: EmbeddedRedis, direct: Acker, how: str) -> None:
    end, code = KEPT[how]
    done = run(any_server, direct, end)
    assert done.returncode == code, done.stderr
    # A fork sends its own rows; unsent rows of its parent ended with the parent.
    assert total(direct)["acked"] == (1 if "fork" in how else COUNT)
    assert total(direct)["repeated"] == 0


@pytest.mark.parametrize("how", LOST)
def test_rows_lost_at_an_abrupt_exit_expire(
    any_server: EmbeddedRedis, direct: Acker, how: str
) -> None:
    end, code = LOST[how]
    assert run(any_server, direct, end).returncode == code
    row(direct, 1, 40)
    tick(direct, 3)
    found = {v[2]: v[1] for v in verdicts(direct)}
    assert found == {1: "completed"} | dict.fromkeys(range(2, COUNT + 2), "expired")


def test_rows_that_cannot_be_sent_at_exit_are_logged(
    any_server: EmbeddedRedis, direct: Acker
) -> None:
    """The namespace is deleted by then; the program ends normally all the same."""
    end = "producer.acker.connection.client.flushall()"
    done = run(any_server, direct, end)
    assert done.returncode == 0
    assert f"{COUNT} rows were given up, their trees expire" in done.stderr
    assert "rows had no reply when the program ended" in done.stderr
