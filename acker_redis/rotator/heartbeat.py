"""A file that a rotator touches while it does its work, for the health check of a container.

What the check asks is whether the program hangs: it is for those who restart what hangs. That
Redis is away, or refuses a namespace, is told by the log; a restart would not help.
"""

import time
from pathlib import Path

STALE_AFTER = 30.0
"""Seconds after which a file that was not touched means that the rotator hangs."""


def beat(path: Path) -> None:
    """Touch the file."""
    path.touch()


def check(path: Path, stale_after: float = STALE_AFTER) -> str | None:
    """What is wrong, in a sentence; None if the file was touched not long ago.

    >>> check(Path("/no/such/file"))
    '/no/such/file is missing: no rotator has begun its work, or not with this file'
    """
    try:
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return f"{path} is missing: no rotator has begun its work, or not with this file"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if age > stale_after:
        return f"{path} was last touched {age:.0f} s ago: the rotator hangs, or has left"
    return None
