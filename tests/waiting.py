"""Wait for a condition, in a thread or on an event loop. All tests wait with this module.

The limit ends a test that hangs. It is far longer than any wait takes, so that no test fails on a
slow machine.
"""

import asyncio
import time
from collections.abc import Callable

LIMIT = 150.0
"""Seconds until a wait fails."""


def wait_until(
    condition: Callable[[], object], what: str = "the condition", pause: float = 0.005
) -> None:
    """Return as soon as the condition holds; fail with ``what`` after LIMIT seconds."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"not within {LIMIT:.0f} s: {what}"
        time.sleep(pause)


async def wait_until_async(
    condition: Callable[[], object], what: str = "the condition", pause: float = 0.005
) -> None:
    """Wait as ``wait_until`` does, without blocking the event loop."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"not within {LIMIT:.0f} s: {what}"
        await asyncio.sleep(pause)
