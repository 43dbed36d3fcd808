r"""Text for people, with the characters escaped that a terminal executes or does not show.

The scripts refuse C0 controls in source ids, labels and whys, but accept the rest of Unicode:

- C1 controls (U+0080 to U+009F): some terminals interpret U+009B as the start of a command.
- Marks of direction, such as U+202E: they change the order in which the rest of a line is shown.
- Characters without width, such as U+200B: two different ids look alike.

Ids in a pipe and in JSON are data. In a pipe they stay as they are; in JSON an escape is the same
text for the program that reads it.

A service without a console may start a program with closed standard streams: Python then sets
``sys.stdin``, ``sys.stdout`` or ``sys.stderr`` to None, and the next file or socket gets the number
of the stream, so what a C library writes to stderr would go to Redis. See complete_streams().
"""

import errno
import io
import os
import re
import sys
from typing import Any, TextIO

HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""For a class of a regular expression: Unicode's Default_Ignorable_Code_Point, its marks of
direction and annotation, and its separators of lines and paragraphs."""

_VISIBLE = re.compile(f"[\x80-\x9f{HIDDEN}]")
_ALL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{HIDDEN}]")


def count_of(number: int, what: str) -> str:
    """Return a number with its noun: ``1 tree``, ``2,000 trees``."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def visible(text: str) -> str:
    r"""Return the text with its C1 controls and hidden characters escaped, as in Python.

    >>> print(visible("page \x9b2J \u202egnp.exe"))
    page \x9b2J \u202egnp.exe
    """
    return _VISIBLE.sub(_escape, text)


def plain(text: str) -> str:
    r"""Return the text as visible() does, with C0 controls escaped, except tabs and line feeds.

    >>> print(plain("page \x1b[2J"))
    page \x1b[2J
    """
    return _ALL.sub(_escape, text)


def visible_json(text: str) -> str:
    r"""Return JSON with these characters written as ``\u0080``; all are inside strings.

    >>> print(visible_json('"page \x9b2J"'))
    "page \u009b2J"
    """
    return _ALL.sub(_escape_json, text)


class VisibleStream:
    """A text stream that escapes the output of commands, logs and tables, as visible() does.

    ESC is not escaped, because the colours of tables need it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, escaped; return the length of ``text``."""
        self._stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def complete_streams() -> None:
    """Replace the standard streams that are closed; call this before the program opens anything.

    Lines for stderr are dropped then. Reading stdin or writing stdout raises OSError: a
    command must not print the ids of messages, or take verdicts, without a reader.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Closed("stdin")))
    if sys.stdout is None:
        # Without a buffer: what could not be written is not written again at exit.
        sys.stdout = io.TextIOWrapper(_Closed("stdout"), write_through=True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 (until the process ends)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _escape_json(found: re.Match[str]) -> str:
    # JSON has no escape for a character above U+FFFF, so it is written as two.
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class _Closed(io.RawIOBase):
    def __init__(self, name: str) -> None:
        self._name = name

    def readable(self) -> bool:
        return self._name == "stdin"

    def writable(self) -> bool:
        return self._name == "stdout"

    def readinto(self, into: object) -> int:
        raise self._error()

    def write(self, data: object) -> int:
        raise self._error()

    def _error(self) -> OSError:
        return OSError(errno.EBADF, "the caller has closed it", self._name)
