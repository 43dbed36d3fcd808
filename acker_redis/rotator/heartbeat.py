"""A heartbeat file, which a rotator touches while it works, for a container's health check.

The check answers one question: does the program hang? Then a restart helps. It does not report that
Redis is unreachable or refuses a namespace: the log does, and a restart would not help.
"""

import time
from pathlib import Path

STALE_AFTER = 30.0
"""Seconds without a touch after which the rotator counts as hanging."""


def beat(path: Path) -> None:
    """Touch the file."""
    path.touch()


def check(path: Path, stale_after: float = STALE_AFTER) -> str | None:
    """Return the problem, in a sentence; None if the file was touched recently.

    >>> check(Path("/no/such/file"))
    '/no/such/file is missing: no rotator writes this heartbeat file'
    """
    try:
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return f"{path} is missing: no rotator writes this heartbeat file"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if age > stale_after:
        return f"{path} was last touched {age:.0f} s ago: the rotator hangs, or has ended"
    return None
