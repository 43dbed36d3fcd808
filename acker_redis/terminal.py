r"""Text for people, with the control characters escaped that a terminal would execute.

The scripts refuse C0 controls in source ids, labels and whys, but accept C1 controls (U+0080 to
U+009F). Some terminals interpret U+009B as the start of a command.
"""

import re
from typing import Any, TextIO

_C1 = re.compile("[\x80-\x9f]")
_ALL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    r"""Return the text with its C1 controls written as ``\x80`` to ``\x9f``.

    >>> print(visible("page \x9b2J"))
    page \x9b2J
    """
    return _C1.sub(_hex, text)


def plain(text: str) -> str:
    r"""Return the text with C1 and C0 controls escaped, except tabs and line feeds.

    >>> print(plain("page \x1b[2J"))
    page \x1b[2J
    """
    return _ALL.sub(_hex, text)


def visible_json(text: str) -> str:
    r"""Return JSON with its control characters written as ``\u0080``; all are inside strings.

    >>> print(visible_json('"page \x9b2J"'))
    "page \u009b2J"
    """
    return _ALL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class VisibleStream:
    """A text stream that escapes C1 controls in the output of commands, logs and tables.

    ESC is not escaped, because the colours of tables need it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text with its C1 controls escaped; return the length of ``text``."""
        self._stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _hex(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"
