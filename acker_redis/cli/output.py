"""Output on stdout and stderr, and exit codes."""

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
    """Exit codes of the commands; docs/reference/cli.md has the same table."""

    OK = 0
    FAILED = 1
    """An error, printed as one sentence on stderr; or the requested object was not found."""
    USAGE = 2
    """The command line is invalid; for the doctor: errors were found."""
    REJECTED = 3
    """Redis nacked a tree when it was tracked: the source must not emit its messages."""
    INTERRUPTED = 130
    """Ctrl-C."""


def escape_controls() -> None:
    """Escape C1 control characters on stderr, and on stdout if it is a terminal.

    In a pipe ids stay unchanged, because the next program needs their exact bytes.
    """
    sys.stderr = cast(TextIO, VisibleStream(sys.stderr))
    if sys.stdout.isatty():
        sys.stdout = cast(TextIO, VisibleStream(sys.stdout))


def say(text: str = "") -> None:
    """Print a line on stdout and flush it: the reader of a pipe waits for it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say_json(value: Any, pretty: bool | None = None) -> None:
    """Print JSON on stdout: indented for a terminal, in one line for a program."""
    nice = sys.stdout.isatty() if pretty is None else pretty
    say(visible_json(json.dumps(value, indent=2 if nice else None, ensure_ascii=False)))


def warn(text: str) -> None:
    """Print a line on stderr."""
    typer.echo(plain(f"acker-redis: {text}"), err=True)


def confirm(question: str) -> None:
    """Ask on stderr, so that stdout stays readable by programs; exit unless the answer is yes."""
    typer.echo(plain(f"{question} [y/N] "), nl=False, err=True)
    try:
        answer = sys.stdin.readline()
    except OSError:  # stdin is closed
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        warn(
            "nothing was changed"
            if answer
            else "no answer on stdin, nothing was changed; add --yes"
        )
        raise typer.Exit(Exit.FAILED)


def end_cleanly() -> None:
    """Let SIGTERM and SIGHUP end the command like Ctrl-C, so that its cleanup runs."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, leave)
