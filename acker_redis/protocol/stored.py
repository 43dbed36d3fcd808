"""Numbers and names that the scripts keep in Redis, read with bounds. No I/O.

A user with the rights of a namespace may write anything into its keys, by mistake or on purpose. So
no reader loops over, adds up or shows a value that these functions have not checked.
"""

import re

from acker_redis.errors import SchemaError

MAX_COUNT = 10**15
"""Maximum of a counter: a million trees a second reach it in 31 years. HINCRBY and the numbers of
Lua hold a little more, so that a counter within its bounds stops no script."""
MAX_MS = 10**14
"""Maximum of a time in ms since 1970: the year 5138, which any calendar can show."""

# From lua/spec.json, by python -m proof.spec
MAX_SHARDS = 1024
"""Maximum number of shards of a namespace."""
MAX_FIELDS = 10_000
"""Maximum number of fields of a shard's ``meta``: a thousand sources have four each, the rest are
some hundred. ``status.lua`` has the same limit."""

_COUNT = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


def count(text: str, low: int = 0, high: int = MAX_COUNT) -> int:
    """Return a whole number as the scripts write it.

    Raises:
        ValueError: The text is another number, or none.

    Examples:
        >>> count("17", 2, 16)
        Traceback (most recent call last):
        ValueError: not a number from 2 to 16: '17'

    """
    if not _COUNT.fullmatch(text) or not low <= int(text) <= high:
        raise ValueError(f"not a number from {low} to {high}: {text[:40]!r}")
    return int(text)


def counted(text: str) -> int:
    """Return a number of a statistic; 0 for another text, as the scripts count it.

    >>> counted("17"), counted("many")
    (17, 0)
    """
    return int(text) if _COUNT.fullmatch(text) and int(text) < 2**63 else 0


def shards_of(value: bytes | str | int, where: str) -> int:
    """Return a number of shards, a power of two from 1 to 1024.

    Raises:
        SchemaError: The value is none; the message names the key ``where``.

    Examples:
        >>> shards_of(b"4", "acker:{orders:0}:meta")
        4

    """
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    try:
        shards = count(text, 1, MAX_SHARDS)
    except ValueError:
        shards = 0
    if not shards or shards & (shards - 1):
        raise SchemaError(
            f"{where} has been tampered with: shards is a power of two from 1 to {MAX_SHARDS}, "
            f"not {text[:40]!r}"
        )
    return shards
