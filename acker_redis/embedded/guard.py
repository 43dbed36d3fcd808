"""The guard of an embedded server: a process that starts the server and ends it with its owner.

It runs as ``python -I -S guard.py <owner's pid> <command as JSON>`` and imports only the standard
library, nothing of this package. In the command the word ``{dir}`` is replaced by a new directory,
mode 0700, and the word for the address of the server by a new address: ``{socket}`` by the path of
a Unix socket in that directory, ``{port}`` by a free port on 127.0.0.1.

**Access.** Only the owner's user can enter the directory, so only that user and root reach the
socket. Each local user reaches a port, so a server on a port demands a random password. The server
reads the password from its stdin, for which the command has the argument ``-``: every user can read
the arguments of a process. The owner reads it from the report.

**Design.** The owner may be killed, so it cannot clean up itself. The guard leads a separate
session, which the terminal's Ctrl-C does not reach. Only the guard creates and removes the
directory. It checks every POLL seconds, and ends the server in three cases: a byte arrives on its
stdin (the owner released it), its stdin ends (the owner died), or its parent is no longer the owner
(the owner died, but a forked child of the owner still holds the pipe). If the guard itself is
killed, the kernel kills the server on Linux, and the owner's stop() removes the directory.

The guard reports once, as a line of JSON on stdout: ``{"address", "pid", "directory"}``, or
``{"error", "log"}`` with the last lines that the server wrote. The address is
``{"socket": <path>}`` or ``{"port", "password"}``. Its exit status is 0 if the owner
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
SOCKET_NAME = "redis.sock"
SOCKET_LIMIT = 103  # bytes of a socket's path on macOS; 107 on Linux. Servers cut a longer one
HELLO = b"PING\r\nINFO server\r\n"
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


class Address:
    """Where a server listens: a Unix socket, or a port of 127.0.0.1 with a password."""

    def __init__(self, socket: str = "", port: int = 0) -> None:
        self.socket = socket
        self.port = port
        self.password = os.urandom(32).hex() if port else ""

    @property
    def words(self) -> dict[str, str]:
        """The words of the command that stand for this address."""
        return {"{socket}": self.socket, "{port}": str(self.port)}

    @property
    def settings(self) -> bytes:
        """The settings that the server reads from its stdin."""
        return f"requirepass {self.password}\n".encode() if self.password else b""

    def connect(self) -> socket.socket:
        """Return a connection with a timeout of one second."""
        if self.port:
            return socket.create_connection(("127.0.0.1", self.port), timeout=1)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(1)
            connection.connect(self.socket)
        except OSError:
            connection.close()
            raise
        return connection

    def to_dict(self) -> dict[str, object]:
        """Return it as the report has it."""
        if self.socket:
            return {"socket": self.socket}
        return {"port": self.port, "password": self.password}


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


def why_not_ready(server: subprocess.Popen[bytes], address: Address) -> str:
    """Return why the server is not ready; "" if it answers, and no other process at its address."""
    login = f"AUTH {address.password}\r\n".encode() if address.password else b""
    wanted = (b"+OK\r\n" if login else b"") + b"+PONG\r\n"
    reply = b""
    try:
        with address.connect() as connection:
            connection.sendall(login + HELLO)
            while not (found := re.search(rb"process_id:(\d+)\r", reply)):
                data = connection.recv(65536)
                if not data or b"-NOAUTH" in reply:
                    return f"AUTH, PING and INFO got {reply[:80]!r}"
                reply += data
    except OSError as error:
        return str(error)
    if int(found[1]) != server.pid:
        return f"process {found[1].decode()} answers on port {address.port}, not {server.pid}"
    return "" if reply.startswith(wanted) else f"AUTH and PING got {reply[:80]!r}"


def came_up(server: subprocess.Popen[bytes], address: Address, owner: Owner) -> bool:
    """Wait until the server is ready; return False if it or the owner ended.

    Raises StartError after START_LIMIT seconds.
    """
    deadline = time.monotonic() + START_LIMIT
    while server.poll() is None and not owner.gone(0.02):
        why = why_not_ready(server, address)
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
) -> tuple[subprocess.Popen[bytes], Address] | None:
    """Start the server and wait until it is ready; return it and its address.

    Return None if the owner ended. If another process took the port first, another port is tried.
    Raises StartError.
    """
    log = Path(directory, LOG_NAME)
    for _ in range(ATTEMPTS):
        if "{port}" in command:
            address = Address(port=pick_port())
        else:
            address = Address(str(Path(directory, SOCKET_NAME)))
        words = {"{dir}": directory, **address.words}
        with log.open("wb") as output:
            try:
                server = subprocess.Popen(  # noqa: S603
                    [words.get(word, word) for word in command],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    preexec_fn=die_with_parent(),
                )
            except OSError as error:
                raise StartError(str(error)) from error
        ready = False
        try:
            assert server.stdin  # noqa: S101 (for the type checker)
            with contextlib.suppress(BrokenPipeError), server.stdin as pipe:
                pipe.write(address.settings)
            ready = came_up(server, address, owner)
        finally:
            if not ready:
                end(server)
        if ready:
            return server, address
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


def new_directory() -> str:
    """Return a new directory, mode 0700, in which the path of a socket is not too long."""
    directory = tempfile.mkdtemp(prefix="acker-redis-")
    if len(os.fsencode(Path(directory, SOCKET_NAME))) > SOCKET_LIMIT:
        Path(directory).rmdir()
        directory = tempfile.mkdtemp(prefix="acker-redis-", dir="/tmp")
    return directory


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
    directory = new_directory()
    try:
        try:
            running = start(command, directory, owner)
        except StartError as error:
            report({"error": str(error), "log": last_lines(directory)})
            return 1
        if running is None:
            return 0
        server, address = running
        try:
            report({"address": address.to_dict(), "pid": server.pid, "directory": directory})
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
