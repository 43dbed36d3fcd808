"""The command line, run in this process as its entry point runs it."""

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
"""The environment of a command, for a machine that stalls."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


class Shell:
    """Runs commands on one server."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self.url = server.url

    def __call__(self, *args: str, stdin: str | bytes = b"", tty: bool = False) -> Ran:
        """Run a command; the URL is added."""
        return run(*args, "--url", self.url, stdin=stdin, tty=tty)


@contextlib.contextmanager
def as_it_was() -> Iterator[None]:
    """A command is a process of its own: its log and its signals are not for those behind it."""
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
    """A stream that a person reads."""

    def isatty(self) -> bool:
        """It is one."""
        return True


command_of = functools.cache(typer.main.get_command)
"""The commands, made once: that takes longer than most of them run."""


def run(*args: str, stdin: str | bytes = b"", tty: bool = False) -> Ran:
    """Run a command; whatever it raises beyond an exit is the test's failure."""
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
