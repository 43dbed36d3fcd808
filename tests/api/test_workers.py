"""Several processes with one socket: they end together, and are restarted one by one."""

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from acker_api.http.services import Services
from acker_api.serving.workers import PAUSES, WELL_AFTER, Workers
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError
from acker_redis.ops.settings import Settings
from tests.api.service import TOKEN, api, bearer
from tests.api.test_namespaces import V1
from tests.api.test_server import get_at, running
from tests.conftest import MakeAcker
from tests.waiting import LIMIT

LOGIN = "/api/v1/session"


def _workers(process: subprocess.Popen[str], count: int) -> list[int]:
    """Return the pids of the next workers that are started."""
    assert process.stderr
    found: list[int] = []
    while len(found) < count:
        line = process.stderr.readline()
        assert line, "the service has ended"
        found += map(int, re.findall(r"worker_started pid=(\d+)", line))
    return found


def test_workers_share_socket_and_sessions_and_end_together(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    path = f"{V1}/{make_any_acker().namespace}"
    # A long timeout for requests at shutdown: streams must not wait for it.
    settings = {"API_WORKERS": 3, "API_TOKEN": TOKEN, "API_STOP_WITHIN": 100}
    with running(URL=any_server.url, **settings) as (process, port, _):
        pids = _workers(process, 3)
        assert len({*pids, process.pid}) == 4
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        line.request("POST", LOGIN, f'{{"token":"{TOKEN}"}}', {"Content-Type": "application/json"})
        cookie = line.getresponse().headers["set-cookie"].partition(";")[0]
        for _ in range(9):
            assert get_at(port, path, Cookie=cookie).status == 200
        os.kill(pids[1], signal.SIGKILL)
        (new,) = _workers(process, 1)
        assert new not in pids
        assert get_at(port, path, Cookie=cookie).status == 200
        # Ctrl-C reaches all of them, also a worker that has not logged its start yet.
        streams = [get_at(port, f"{path}/events", **bearer(TOKEN)) for _ in range(4)]
        for pid in (pids[0], pids[2], new):
            os.kill(pid, signal.SIGINT)
        process.send_signal(signal.SIGINT)
        for stream in streams:
            assert stream.read().startswith(b"event: hello")
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    assert "ended by=SIGINT" in err
    assert "worker_killed" not in err
    with pytest.raises(ConnectionRefusedError):
        get_at(port, "/livez")


SCRIPT = """
import os, signal, socket, time
from acker_api.serving.workers import Workers

class NeverStarts:
    should_exit = started = False
    def run(self, sockets):
        pass

class NeverEnds(NeverStarts):
    def run(self, sockets):
        self.started = True
        os.kill(os.getppid(), signal.SIGTERM)
        while True:
            signal.pause()

heard, told = os.pipe()

class Serves(NeverStarts):
    def run(self, sockets):
        self.started = True
        os.write(told, b"begun ")
        while not self.should_exit:
            time.sleep(0.005)
        os.write(told, b"ended ")

def listen():
    return socket.create_server(("127.0.0.1", 0))

for server in (NeverStarts(), NeverEnds()):
    print(Workers(server, listen(), 2, within=-2.9).run(), flush=True)  # a tenth of a second
parent = os.fork()
if parent == 0:
    Workers(Serves(), listen(), 2, within=100).run()
os.close(told)
for _ in range(2):
    print(os.read(heard, 6).decode(), flush=True)
os.kill(parent, signal.SIGKILL)
while word := os.read(heard, 6):  # until no writer is left
    print(word.decode(), flush=True)
"""


def test_workers_end_in_all_failure_cases() -> None:
    """A worker that cannot begin, one that does not end, and one whose parent was killed."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, timeout=LIMIT)
    assert done.stdout.decode().split() == ["1", "0", *["begun"] * 2, *["ended"] * 2], done.stderr
    assert done.returncode == 0


class _Ended:
    """A process that has ended."""

    pid, exitcode = 7, -9

    def is_alive(self) -> bool:
        return False

    def join(self) -> None:
        pass


def test_crashing_worker_is_restarted_with_back_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    # For this module only: other threads read the clock, too.
    clock = SimpleNamespace(**{**vars(time), "monotonic": lambda: now[0]})
    monkeypatch.setattr("acker_api.serving.workers.time", clock)
    workers = Workers(None, None, 1, 0)  # type: ignore[arg-type]
    (place,) = workers._places
    pauses = []
    for lived in (0.1, 0.1, 0.1, 3.0, 3.0, 3.0, 3.0, WELL_AFTER, 0.1):
        place.process, place.started = _Ended(), now[0]
        now[0] += lived
        workers._reap()
        pauses.append(round(place.due - now[0], 3))
    assert pauses == [0, 0.5, 1, 2, 4, 8, PAUSES[1], 0, 0.5]


def test_rate_limits_are_divided_among_workers() -> None:
    def shares(**fields: int) -> tuple[int, int]:
        services = Services.of(Settings(), api(**fields))
        return services.requests._most, services.logins._most

    assert shares(rate_limit=3000) == (3000, 10)
    assert shares(rate_limit=3001, workers=4) == (751, 3)
    assert shares(rate_limit=0, workers=4) == (0, 3)


def test_workers_require_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acker_api.serving.workers.threading.main_thread", lambda: None)
    with pytest.raises(ConfigError, match="main thread"):
        Workers(None, None, 2, 0)  # type: ignore[arg-type]
