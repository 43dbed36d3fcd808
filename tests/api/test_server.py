"""The service as a process of its own: starts, serves, ends; and refuses what is not safe."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from acker_api import ApiSettings, serve
from acker_api.__main__ import main
from acker_api.server import in_background
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError
from acker_redis.settings import Settings
from tests.api.service import TOKEN, api
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.waiting import LIMIT

PATIENT = {"TIMEOUT": 60, "API_ANSWER_WITHIN": 60, "API_SCRAPE_WITHIN": 60}
"""Settings for a machine that stalls."""


def _environment(**settings: object) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("ACKER_REDIS_")}
    return plain | {f"ACKER_REDIS_{name}": str(value) for name, value in settings.items()}


@contextmanager
def running(**settings: object) -> Iterator[tuple[subprocess.Popen[str], int, list[str]]]:
    """A service on a free port: process, port, and what it has logged until it listened."""
    with subprocess.Popen(
        [sys.executable, "-m", "acker_api"],
        env=_environment(**{**PATIENT, "API_PORT": 0, **settings}),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        try:
            logged = []
            for line in process.stderr:
                logged.append(line)
                if found := re.search(r"serving url=\S*http://127\.0\.0\.1:(\d+)", line):
                    break
            else:
                pytest.fail("".join(logged))
            yield process, int(found[1]), logged
        finally:
            process.kill()


def get_at(port: int, path: str, **headers: str) -> http.client.HTTPResponse:
    # The listener is there before its line is logged: a request waits until it is served.
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    line.request("GET", path, headers=headers)
    return line.getresponse()


def test_it_serves_and_ends(any_server: EmbeddedRedis, make_any_acker: MakeAcker) -> None:
    make_any_acker()
    # This server takes any password; nobody is to hear of it all the same.
    url = any_server.url.replace("redis://", "redis://default:a-password@")
    with running(URL=url, API_TOKEN=TOKEN, LOG_LEVEL="debug") as (process, port, logged):
        assert get_at(port, "/livez").status == 200
        assert get_at(port, V1).status == 401
        answer = get_at(port, f"{V1}?token=in-the-query", Authorization=f"Bearer {TOKEN}")
        assert answer.status == 200
        assert not answer.headers["server"]
        assert answer.headers["content-security-policy"]
        assert get_at(port, V1, Host="evil.example").status == 421
        process.terminate()
        out, err = process.communicate(timeout=LIMIT)
    everything = "".join(logged) + err
    assert process.returncode == 0, everything
    assert "ended by=SIGTERM" in err
    assert f"path={V1} status=200" in err
    assert out == ""
    for secret in (TOKEN, "a-password", "in-the-query"):
        assert secret not in everything


def test_it_starts_without_a_redis_and_ends_by_ctrl_c() -> None:
    with running(URL="redis://127.0.0.1:1/0") as (process, port, _):
        assert get_at(port, "/readyz").status == 503
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0


def test_as_a_process_it_refuses_what_is_not_safe() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "acker_api"],
        env=_environment(API_HOST="0.0.0.0", API_PORT=0),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("acker-api: 0.0.0.0 can be reached from other machines")
    assert "ACKER_REDIS_API_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("API_PORT", "hunter2", "ACKER_REDIS_API_PORT"),
        ("API_TOKEN", "hunter2", "ACKER_REDIS_API_TOKEN is 16 or more"),
        ("URL", "http://hunter2", "cannot use the URL"),
        ("TIMEOUT", "hunter2", "ACKER_REDIS_TIMEOUT"),
    ],
)
def test_what_cannot_work_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    words: str,
) -> None:
    monkeypatch.setattr("acker_redis.logs.set_up", lambda *_: None)
    monkeypatch.setenv(f"ACKER_REDIS_{name}", value)
    assert main() == 1
    written = capsys.readouterr().err
    assert written.startswith("acker-api: ")
    assert words in written
    assert written.count("\n") == 1


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}"):
            serve(Settings(), ApiSettings(port=port))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ConfigError, match="cannot listen"):
        serve(Settings(), api(host="192.0.2.1", token=TOKEN))
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("limit", "half", "answer"),
    [
        ("patience.HEAD_WITHIN", b"", b""),
        ("patience.HEAD_WITHIN", b"GET /livez HTTP/1.1\r\nHo", b""),
        (
            "gate.BODY_WITHIN",
            b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
            b"HTTP/1.1 408 ",
        ),
    ],
)
def test_nobody_takes_a_connection_with_half_a_request(
    monkeypatch: pytest.MonkeyPatch, limit: str, half: bytes, answer: bytes
) -> None:
    """Else strangers could take them all."""
    for each in ("patience.HEAD_WITHIN", "gate.BODY_WITHIN"):
        monkeypatch.setattr(f"acker_api.{each}", 0.1 if each == limit else LIMIT)
    settings = Settings.read(url="redis://127.0.0.1:1/0")
    with in_background(settings, api(port=0, token=TOKEN)) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as line:
            try:
                line.sendall(half)
                got = line.recv(64)
            except ConnectionError:
                got = b""  # it was closed before all was sent
            assert got.startswith(answer)
            assert bool(got) is bool(answer)
        monkeypatch.setattr("acker_api.patience.HEAD_WITHIN", LIMIT)
        assert get_at(port, "/livez").status == 200
