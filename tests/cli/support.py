"""Run the command line in this process, through its entry point."""

import contextlib
import functools
import io
import logging
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import typer.main

from acker_redis import cli
from acker_redis.embedded import EmbeddedRedis

PATIENT = {"ACKER_REDIS_TIMEOUT": "60"}
"""Environment of a command that tolerates a machine that stalls."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Ran:
    """Output and exit code of a command."""

    code: int
    out: str
    err: str


class Shell:
    """Runs commands on one server."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self.url = server.url

    def __call__(self, *args: str, stdin: str | bytes = b"", tty: bool = False) -> Ran:
        """Run a command with the URL of the server."""
        return run(*args, "--url", self.url, stdin=stdin, tty=tty)


@contextlib.contextmanager
def as_it_was() -> Iterator[None]:
    """Restore log handlers and signal handlers, as if the command were a separate process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    signals = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for number, handler in signals.items():
            signal.signal(number, handler)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


command_of = functools.cache(typer.main.get_command)
"""Return the command tree, built once: building it takes longer than most commands."""


def run(*args: str, stdin: str | bytes = b"", tty: bool = False) -> Ran:
    """Run a command; any exception except an exit fails the test."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    made = Terminal if tty else io.StringIO
    out, err, code = made(), made(), 0
    with (
        mock.patch.object(sys, "argv", ["acker-redis", *args]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given))),
        mock.patch.object(typer.main, "get_command", command_of),
        mock.patch.dict("os.environ", {"COLUMNS": "200", "TERM": "dumb", **PATIENT}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        as_it_was(),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())
