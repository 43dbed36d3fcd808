"""The guard of an embedded server: a process that starts the server and ends it with its owner.

It runs as ``python -I -S guard.py <owner's pid> <command as JSON>`` and imports only the standard
library, nothing of this package. In the command the words ``{port}`` and ``{dir}`` are replaced by
a free port on 127.0.0.1 and by a new directory, mode 0700.

**Design.** The owner may be killed, so it cannot clean up itself. The guard leads a separate
session, which the terminal's Ctrl-C does not reach. Only the guard creates and removes the
directory. It checks every POLL seconds, and ends the server in three cases: a byte arrives on its
stdin (the owner released it), its stdin ends (the owner died), or its parent is no longer the owner
(the owner died, but a forked child of the owner still holds the pipe). If the guard itself is
killed, the kernel kills the server on Linux, and the owner's stop() removes the directory.

The guard reports once, as a line of JSON on stdout: ``{"port", "pid", "directory"}``, or
``{"error", "log"}`` with the last lines that the server wrote. Its exit status is 0 if the owner
released it or died, or after SIGTERM, 1 if the server did not start or ended by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

POLL = 0.5  # seconds
START_LIMIT = 30.0  # seconds until a server must answer
TERM_LIMIT = 5.0  # seconds from SIGTERM to SIGKILL
REMOVE_LIMIT = 10.0  # seconds to retry while other processes write into the directory
ATTEMPTS = 5  # attempts with another port, if another process binds the port first
LOG_LINES = 20
LOG_NAME = "redis.log"
HELLO = b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n"
PR_SET_PDEATHSIG = 1


class StartError(Exception):
    """Raised when the server does not start."""


class Owner:
    """The process that owns this guard."""

    def __init__(self, pid: int, pipe: int) -> None:
        self._pid = pid
        self._pipe = pipe
        self._dismissed = False

    def dismiss(self) -> None:
        """Behave as if the owner had ended."""
        self._dismissed = True

    def gone(self, wait: float) -> bool:
        """Return whether the owner released the guard or ended; wait up to ``wait`` seconds."""
        told, _, _ = select.select([self._pipe], [], [], wait)
        return self._dismissed or bool(told) or os.getppid() != self._pid


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def die_with_parent() -> Callable[[], None] | None:
    """Return a function that makes the kernel kill a new child with this process (Linux only)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    guard = os.getpid()

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)

    return tie


def why_not_ready(server: subprocess.Popen[bytes], port: int) -> str:
    """Return why the server is not ready; "" if it answers, and no other process on its port."""
    reply = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(HELLO)
            while not (found := re.search(rb"process_id:(\d+)\r", reply)):
                data = connection.recv(65536)
                if not data or reply.startswith(b"-NOAUTH"):
                    return f"PING and INFO got {reply[:80]!r}"
                reply += data
    except OSError as error:
        return str(error)
    if int(found[1]) != server.pid:
        return f"process {found[1].decode()} answers on port {port}, not {server.pid}"
    return "" if reply.startswith(b"+PONG") else f"PING got {reply[:80]!r}"


def came_up(server: subprocess.Popen[bytes], port: int, owner: Owner) -> bool:
    """Wait until the server is ready; return False if it or the owner ended.

    Raises StartError after START_LIMIT seconds.
    """
    deadline = time.monotonic() + START_LIMIT
    while server.poll() is None and not owner.gone(0.02):
        why = why_not_ready(server, port)
        if not why:
            return True
        if time.monotonic() > deadline:
            raise StartError(f"it was not ready within {START_LIMIT:.0f} seconds: {why}")
    return False


def start(
    command: list[str],
    directory: str,
    owner: Owner,
    pick_port: Callable[[], int] = free_port,
) -> tuple[subprocess.Popen[bytes], int] | None:
    """Start the server and wait until it is ready; return it and its port.

    Return None if the owner ended. If another process took the port first, another port is tried.
    Raises StartError.
    """
    log = Path(directory, LOG_NAME)
    for _ in range(ATTEMPTS):
        port = pick_port()
        words = {"{port}": str(port), "{dir}": directory}
        with log.open("wb") as output:
            try:
                server = subprocess.Popen(  # noqa: S603
                    [words.get(word, word) for word in command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    preexec_fn=die_with_parent(),
                )
            except OSError as error:
                raise StartError(str(error)) from error
        ready = False
        try:
            ready = came_up(server, port, owner)
        finally:
            if not ready:
                end(server)
        if ready:
            return server, port
        if owner.gone(0):
            return None
        if b" in use" not in log.read_bytes():
            raise StartError(f"it ended by itself, with exit status {server.returncode}")
    raise StartError(f"other processes took {ATTEMPTS} free ports in a row")


def end(server: subprocess.Popen[bytes]) -> None:
    """End the server with SIGTERM, and with SIGKILL after TERM_LIMIT seconds."""
    server.terminate()
    try:
        server.wait(TERM_LIMIT)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def remove(directory: str) -> None:
    """Remove the directory; retry while other processes still write into it."""
    deadline = time.monotonic() + REMOVE_LIMIT
    while True:
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.lexists(directory) or time.monotonic() > deadline:
            return
        time.sleep(0.1)


def last_lines(directory: str) -> list[str]:
    """Return the last lines of the server's log."""
    try:
        text = Path(directory, LOG_NAME).read_text(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-LOG_LINES:]


def report(fields: dict[str, object]) -> None:
    """Write the line that the owner waits for, and release its pipe."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(fields).encode() + b"\n")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os.close(quiet)


def main(owner_pid: int, command: list[str]) -> int:
    """Guard one server; return the exit status."""
    owner = Owner(owner_pid, pipe=0)
    # Handlers instead of SIG_IGN, because the server would inherit SIG_IGN.
    signal.signal(signal.SIGTERM, lambda *_: owner.dismiss())
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    directory = tempfile.mkdtemp(prefix="acker-redis-")
    try:
        try:
            running = start(command, directory, owner)
        except StartError as error:
            report({"error": str(error), "log": last_lines(directory)})
            return 1
        if running is None:
            return 0
        server, port = running
        try:
            report({"port": port, "pid": server.pid, "directory": directory})
            while server.poll() is None:
                if owner.gone(POLL):
                    return 0
            return 1
        finally:
            end(server)
    finally:
        remove(directory)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), json.loads(sys.argv[2])))
