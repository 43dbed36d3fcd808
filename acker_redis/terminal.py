r"""Text for people: what a terminal would take for a command is written as an escape.

Source ids, labels and whys have no C0 controls, but may have C1 controls (U+0080 to U+009F): the
scripts take them. Some terminals take U+009B for the beginning of a command.
"""

import re
from typing import Any, TextIO

_C1 = re.compile("[\x80-\x9f]")
_ALL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    r"""Text with its C1 controls as ``\x80`` to ``\x9f``.

    >>> print(visible("page \x9b2J"))
    page \x9b2J
    """
    return _C1.sub(_hex, text)


def plain(text: str) -> str:
    r"""As :func:`visible`, also of all C0 controls but tabs and ends of lines.

    >>> print(plain("page \x1b[2J"))
    page \x1b[2J
    """
    return _ALL.sub(_hex, text)


def visible_json(text: str) -> str:
    r"""JSON with its C1 controls, and U+007F, as ``\u0080``: they stand inside strings only.

    >>> print(visible_json('"page \x9b2J"'))
    "page \u009b2J"
    """
    return _ALL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class VisibleStream:
    """A text stream that escapes C1 controls of commands, logs and tables.

    ESC goes through, because tables are coloured by it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, escaped."""
        self._stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _hex(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"
