"""What goes to stdout and stderr, and exit codes."""

import json
import signal
import sys
import threading
from enum import IntEnum
from types import FrameType
from typing import Any, TextIO, cast

import typer

from acker_redis.terminal import VisibleStream, plain, visible_json


class Exit(IntEnum):
    """What a command ends with; docs/how-to/operate.md has the same table."""

    OK = 0
    FAILED = 1
    """An error, said in one sentence on stderr; or what was asked for is not there."""
    USAGE = 2
    """The command line itself is wrong; of the doctor: something is wrong."""
    REJECTED = 3
    """Redis nacked at once what was to be tracked: do not emit it."""
    INTERRUPTED = 130
    """Ctrl-C."""


def escape_controls() -> None:
    """Have C1 controls escaped on stderr, and on stdout if a person reads it.

    Into a pipe ids go as they are: the next program needs them so.
    """
    sys.stderr = cast(TextIO, VisibleStream(sys.stderr))
    if sys.stdout.isatty():
        sys.stdout = cast(TextIO, VisibleStream(sys.stdout))


def say(text: str = "") -> None:
    """A line on stdout, at once: whoever reads the pipe waits for it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say_json(value: Any, pretty: bool | None = None) -> None:
    """An object on stdout: over several lines for a person, in one for a program."""
    nice = sys.stdout.isatty() if pretty is None else pretty
    say(visible_json(json.dumps(value, indent=2 if nice else None, ensure_ascii=False)))


def warn(text: str) -> None:
    """A line on stderr."""
    typer.echo(plain(f"acker-redis: {text}"), err=True)


def confirm(question: str) -> None:
    """Ask on stderr, so that stdout stays for programs; end the command unless it is a yes."""
    typer.echo(plain(f"{question} [y/N] "), nl=False, err=True)
    answer = sys.stdin.readline()
    if answer.strip().lower() not in ("y", "yes"):
        warn("nothing was changed" if answer else "nobody answers: add --yes; nothing was changed")
        raise typer.Exit(Exit.FAILED)


def end_cleanly() -> None:
    """Let SIGTERM, and the end of the terminal, end the command as Ctrl-C does."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, leave)
