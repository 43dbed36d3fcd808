"""Arguments of commands, as redis-py gets them: texts and bytes, never numbers.

hiredis converts a number while it packs a command. If the handler of a signal raises at that
moment (Ctrl-C does), hiredis 3.5 continues without the converted number and the process ends with a
segmentation fault. A number that Python has converted before raises the exception instead.
"""

from collections.abc import Sequence

KEYS = "2"
"""The number of keys of each script."""


def as_text(args: Sequence[str | bytes | int]) -> list[str | bytes]:
    """Return the arguments with numbers as text.

    >>> as_text(["SET", b"key", 7])
    ['SET', b'key', '7']
    """
    return [str(arg) if isinstance(arg, int) else arg for arg in args]
