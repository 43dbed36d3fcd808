"""The service as a process: it starts, serves, ends, and refuses unsafe settings."""

import asyncio
import errno
import http.client
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
import uvicorn

from acker_api import ApiSettings, serve
from acker_api.__main__ import main
from acker_api.auth.crowd import Crowd
from acker_api.limited_log import LimitedLog
from acker_api.serving.patience import (
    PROGRESS,
    SEND_BUFFER,
    WRITE_WITHIN,
    PatientProtocol,
    limit_writes,
)
from acker_api.serving.server import in_background
from acker_api.serving.uvicorn_server import StreamServer
from acker_redis.embedded import EmbeddedRedis
from acker_redis.errors import ConfigError
from acker_redis.ops.settings import Settings
from tests.api.service import TOKEN, api
from tests.api.test_namespaces import V1
from tests.conftest import MakeAcker
from tests.waiting import LIMIT, wait_until

PATIENT = {"TIMEOUT": 60, "API_ANSWER_WITHIN": 60, "API_SCRAPE_WITHIN": 60}
"""Settings for a slow machine."""


def _environment(**settings: object) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("ACKER_REDIS_")}
    return plain | {f"ACKER_REDIS_{name}": str(value) for name, value in settings.items()}


@contextmanager
def running(
    under: Sequence[str] = (), **settings: object
) -> Iterator[tuple[subprocess.Popen[str], int, list[str]]]:
    """Yield a service on a free port: process, port, and its log lines until it listened."""
    with subprocess.Popen(
        [*under, sys.executable, "-m", "acker_api"],
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
    # The listener exists before its line is logged: a request waits until it is served.
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    line.request("GET", path, headers=headers)
    return line.getresponse()


def test_service_serves_and_ends_on_sigterm(
    any_server: EmbeddedRedis, make_any_acker: MakeAcker
) -> None:
    make_any_acker()
    # This server accepts any password; it must not be logged nevertheless.
    url = any_server.url.replace("redis://", "redis://default:a-password@")
    with running(URL=url, API_TOKEN=TOKEN, LOG_LEVEL="debug") as (process, port, logged):
        assert get_at(port, "/livez").status == 200
        assert get_at(port, V1).status == 401
        odd = get_at(port, f"{V1}?token=in-the-query", Authorization=f"Bearer {TOKEN}")
        assert odd.status == 422
        assert b"in-the-query" not in odd.read()
        answer = get_at(port, V1, Authorization=f"Bearer {TOKEN}")
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


def test_service_starts_without_redis_and_ends_on_sigint() -> None:
    with running(URL="redis://127.0.0.1:1/0") as (process, port, _):
        assert get_at(port, "/readyz").status == 503
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0


def test_public_address_without_token_ends_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "acker_api"],
        env=_environment(API_HOST="0.0.0.0", API_PORT=0),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("acker-api: other machines can reach 0.0.0.0")
    assert "ACKER_REDIS_API_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("API_PORT", "hunter2", "ACKER_REDIS_API_PORT"),
        ("API_TOKEN", "hunter2", "ACKER_REDIS_API_TOKEN must have 16 or more"),
        ("URL", "http://hunter2", "cannot use the URL"),
        ("TIMEOUT", "hunter2", "ACKER_REDIS_TIMEOUT"),
    ],
)
def test_invalid_setting_is_one_sentence_on_stderr(
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


def test_port_in_use_is_reported() -> None:
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
        ("serving.patience.HEAD_WITHIN", b"", b""),
        ("serving.patience.HEAD_WITHIN", b"GET /livez HTTP/1.1\r\nHo", b""),
        (
            "http.gate.BODY_WITHIN",
            b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
            b"HTTP/1.1 408 ",
        ),
    ],
)
def test_incomplete_request_times_out(
    monkeypatch: pytest.MonkeyPatch, limit: str, half: bytes, answer: bytes
) -> None:
    """Otherwise clients without a token could hold all connections."""
    for each in ("serving.patience.HEAD_WITHIN", "http.gate.BODY_WITHIN"):
        monkeypatch.setattr(f"acker_api.{each}", 0.1 if each == limit else LIMIT)
    settings = Settings.read(url="redis://127.0.0.1:1/0")
    with in_background(settings, api(port=0, token=TOKEN)) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as line:
            try:
                line.sendall(half)
                got = line.recv(64)
            except ConnectionError:
                got = b""  # the connection was closed before everything was sent
            assert got.startswith(answer)
            assert bool(got) is bool(answer)
        monkeypatch.setattr("acker_api.serving.patience.HEAD_WITHIN", LIMIT)
        assert get_at(port, "/livez").status == 200


STATIC = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""The largest file that clients without a token may request."""


def reads_little(port: int) -> socket.socket:
    """Return a client with a small receive buffer, which reads only when the test lets it."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(LIMIT)
    line.connect(("127.0.0.1", port))
    return line


def was_reset(line: socket.socket) -> bool:
    """Return whether the other side resets a connection within LIMIT; nothing is read."""
    poll = select.poll()
    poll.register(line, 0)  # errors are reported in any case
    return bool(poll.poll(LIMIT * 1000))


@pytest.mark.parametrize(
    "ends", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]
)
def test_connection_with_unread_answers_is_reset(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ends: bytes
) -> None:
    """Also if the service itself closes it: the close would wait until everything was read."""
    monkeypatch.setattr("acker_api.serving.patience.WRITE_WITHIN", LIMIT)
    monkeypatch.setattr("acker_api.serving.patience.HEAD_WITHIN", LIMIT)
    settings = Settings.read(url="redis://127.0.0.1:1/0")
    with in_background(settings, api(port=0, token=TOKEN, docs=True)) as url:
        # Not on the listener: the kernel would not notify the client.
        monkeypatch.setattr("acker_api.serving.patience.WRITE_WITHIN", 0.2)
        lines = [reads_little(int(url.rpartition(":")[2])) for _ in range(5)]
        for line in lines:
            line.sendall(STATIC * 20 + ends)
        assert all(was_reset(line) for line in lines)
        for line in lines:
            line.close()
    told = [r.getMessage() for r in caplog.records if "answer_not_read" in r.getMessage()]
    assert len(told) == 1, "one line in ten seconds"


def test_a_slow_reader_gets_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part that it reads restarts its timeout."""
    monkeypatch.setattr("acker_api.serving.patience.WRITE_WITHIN", LIMIT)
    settings = Settings.read(url="redis://127.0.0.1:1/0")
    with in_background(settings, api(port=0, token=TOKEN, docs=True)) as url:
        with reads_little(int(url.rpartition(":")[2])) as line:
            line.sendall(STATIC.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            got = b"".join(iter(lambda: line.recv(4096), b""))
        head, _, body = got.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length
        assert len(body) == int(length[1]) > 10**6


def test_kernel_buffer_is_bounded_in_size_and_time() -> None:
    """Also for a connection that the service has closed."""
    with socket.socket() as listener:
        limit_writes(listener)
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * SEND_BUFFER
        if sys.platform == "linux":
            kept = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert kept == WRITE_WITHIN * 1000


def test_reader_with_enough_progress_is_not_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    class Transport:
        left, aborted = 10 * PROGRESS, False

        def get_write_buffer_size(self) -> int:
            return self.left

        def get_extra_info(self, name: str) -> None:
            return None

        def abort(self) -> None:
            self.aborted = True

    async def run() -> None:
        protocol = object.__new__(PatientProtocol)
        protocol.transport, protocol.limited_log = transport, LimitedLog()
        transport.left -= PROGRESS
        protocol._judge(10 * PROGRESS)
        assert protocol._stuck
        assert not transport.aborted
        protocol._stop_watching()
        transport.left -= PROGRESS - 1
        protocol._judge(9 * PROGRESS)
        assert transport.aborted
        assert not protocol._stuck

    transport = Transport()
    asyncio.run(run())


@pytest.mark.parametrize(
    ("caps", "event"),
    [
        ({"max_connections": 6, "max_connections_of_address": 0}, "connections_full"),
        ({"max_connections": 100, "max_connections_of_address": 6}, "connections_of_address_full"),
    ],
)
def test_connections_are_capped(
    caplog: pytest.LogCaptureFixture, caps: dict[str, int], event: str
) -> None:
    settings = Settings.read(url="redis://127.0.0.1:1/0")
    with in_background(settings, api(port=0, token=TOKEN, **caps)) as url:
        port = int(url.rpartition(":")[2])
        held = [http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT) for _ in range(6)]
        for line in held:
            line.request("GET", "/livez")
            assert line.getresponse().read()
        for _ in range(3):
            one_more = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
            with one_more, suppress(ConnectionError):
                assert one_more.recv(1) == b""
        told = [r.getMessage() for r in caplog.records if "connections_" in r.getMessage()]
        assert len(told) == 1, "one line in ten seconds"
        assert f"{event} " in told[0]
        held.pop().close()

        def is_served() -> bool:
            try:
                return get_at(port, "/livez").status == 200
            except (ConnectionError, http.client.HTTPException):
                return False

        wait_until(is_served)
        for line in held:
            line.close()


def test_address_gets_at_most_half_of_all_connections() -> None:
    crowd = Crowd(10, 100, LimitedLog())
    addresses = [("192.0.2.1", 1)] * 6 + [("192.0.2.2", 1)] * 6
    assert [crowd.enter(each) for each in addresses] == [*([True] * 5), False, *([True] * 5), False]
    assert not crowd.enter(("192.0.2.3", 1))
    crowd.leave(addresses[0])
    assert crowd.enter(("192.0.2.3", 1))
    # Behind a proxy.
    crowd = Crowd(10, 0, LimitedLog())
    assert [crowd.enter(("192.0.2.1", 1)) for _ in range(11)] == [True] * 10 + [False]


def test_exhausted_descriptors_are_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    server = StreamServer(uvicorn.Config("x:y"), lambda: None, LimitedLog(lambda: now[0]))
    loop = asyncio.new_event_loop()
    context = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(errno.EMFILE, "Too many open files"),
        "socket": None,
    }
    for _ in range(1000):
        server.on_loop_error(loop, context)
    assert len(caplog.records) == 1
    now[0] = 10.0
    server.on_loop_error(loop, context)
    assert "cannot_accept times=1000 why=" in caplog.records[1].getMessage()
    server.on_loop_error(loop, {"message": "a bug", "exception": ValueError("words")})
    assert "a bug" in caplog.records[2].getMessage(), "other errors are reported as usual"
    loop.close()


def test_accept_that_is_retried_after_shutdown_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = StreamServer(uvicorn.Config("x:y"), lambda: None)
    loop = asyncio.new_event_loop()
    closed = socket.create_server(("127.0.0.1", 0))
    closed.close()
    with pytest.raises(ValueError, match="descriptor") as raised:
        loop.add_reader(closed, print)
    context = {"message": "Exception in callback", "exception": raised.value}
    server.on_loop_error(loop, context)
    assert len(caplog.records) == 1, "while the server serves, this is a bug"
    server.should_exit = True
    server.on_loop_error(loop, context)
    assert len(caplog.records) == 1
    server.on_loop_error(loop, {"message": "a bug", "exception": ValueError("words")})
    assert len(caplog.records) == 2
    loop.close()


@pytest.mark.full
def test_more_clients_than_descriptors_leave_no_traceback() -> None:
    few = ["sh", "-c", 'ulimit -n 64; exec "$0" "$@"']
    with running(few, URL="redis://127.0.0.1:1/0") as (process, port, _):
        lines = [socket.create_connection(("127.0.0.1", port), timeout=LIMIT) for _ in range(200)]
        for line in lines[:]:
            with suppress(ConnectionError):
                line.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                line.recv(100)
            line.close()
        assert get_at(port, "/livez").status == 200
        process.terminate()
        _, err = process.communicate(timeout=LIMIT)
    assert "Traceback" not in err
    warnings = [line for line in err.splitlines() if "connections_" in line or "accept" in line]
    assert len(warnings) < 20, "the service was full two hundred times"
