"""Arguments of commands for redis-py: only texts and bytes, never numbers.

hiredis converts numbers while it packs a command. If a signal handler raises at that moment, as
Ctrl-C does, hiredis 3.5 continues without the converted number and the process ends with a
segmentation fault. If Python converts the numbers first, the exception is raised normally.
One number is left: redis-py greets each node of a cluster with it, and takes no packer there.
"""

from collections.abc import Sequence
from typing import Any

from redis.connection import HiredisRespSerializer

KEYS = "2"
"""The number of keys of each script."""


def as_text(args: Sequence[str | bytes | int]) -> list[str | bytes]:
    """Return the arguments with all numbers converted to text.

    >>> as_text(["SET", b"key", 7])
    ['SET', b'key', '7']
    """
    return [str(arg) if isinstance(arg, int) else arg for arg in args]


class Packer(HiredisRespSerializer):
    """Packs commands for a connection, also those that redis-py sends itself, as ``HELLO 3``."""

    def pack(self, *args: Any) -> Any:
        """Return the packets to send, as redis-py's own class does."""
        texts: Any = as_text(args)
        return super().pack(*texts)
