"""A command in a pseudo-terminal, and the screen that a person would see."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pyte

from tests.waiting import LIMIT

SETTINGS = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}
"""Variables by which the terminal of a developer would change what a command prints."""


def environment(**env: str) -> dict[str, str]:
    """Return the environment of a command, without the settings of this terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return {**kept, "TERM": "xterm-256color", **env}


class Terminal:
    """A terminal of some columns and 24 rows, in which a command runs."""

    rows = 24

    def __init__(self, command: Sequence[str], columns: int, env: Mapping[str, str]) -> None:
        self.columns = columns
        self.raw = b""
        """All bytes that the command wrote."""
        self.screen = pyte.HistoryScreen(columns, self.rows, history=1000)
        # Shows which lines are too long: here they are not wrapped.
        self._wide = pyte.HistoryScreen(4 * columns, self.rows, history=1000)
        self._streams = [pyte.ByteStream(self.screen), pyte.ByteStream(self._wide)]
        self._master, slave = pty.openpty()
        size = struct.pack("HHHH", self.rows, columns, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(**env),
            start_new_session=True,
            # Ctrl-C comes from the controlling terminal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def lines(self) -> list[str]:
        """Return all lines, those that have left the screen included."""
        return _lines(self.screen)

    def text(self) -> str:
        """Return all lines as a text."""
        return "\n".join(self.lines())

    def overlong(self) -> list[str]:
        """Return the lines that are longer than the terminal is wide."""
        return [line for line in _lines(self._wide) if len(line) > self.columns]

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def until(self, condition: Callable[[str], object]) -> None:
        """Read until the text meets the condition; fail if the command ends before."""
        while not condition(self.text()):
            assert self._read(), f"the command has ended:\n{self.text()}"

    def end(self) -> int:
        """Read until the command ends, and return its exit code."""
        while self._read():
            pass
        return self.process.wait(LIMIT)

    def close(self) -> None:
        """End the command, if it runs."""
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        deadline = time.monotonic() + LIMIT
        while not select.select([self._master], [], [], 1.0)[0]:
            assert time.monotonic() < deadline, f"the command says nothing:\n{self.text()}"
        data = b""
        with contextlib.suppress(OSError):  # on Linux the end of a terminal is an error
            data = os.read(self._master, 65_536)
        self.raw += data
        for stream in self._streams:
            stream.feed(data)
        return bool(data)


@contextlib.contextmanager
def terminal(command: Sequence[str], columns: int = 80, **env: str) -> Iterator[Terminal]:
    """Run a command in a terminal, and end it in any case."""
    shown = Terminal(command, columns, env)
    try:
        yield shown
    finally:
        shown.close()


def gone(processes: list[psutil.Process], scratch: Path) -> bool:
    """Wait until the processes have ended; return whether they have, and left no file."""
    _, alive = psutil.wait_procs(processes, timeout=LIMIT)
    return not alive and not list(scratch.iterdir())


def _lines(screen: pyte.HistoryScreen) -> list[str]:
    left = ["".join(row[n].data for n in range(screen.columns)) for row in screen.history.top]
    return [line.rstrip() for line in (*left, *screen.display)]
