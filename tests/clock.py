"""Advance the clock of an event loop, so that a test decides when a deadline passes."""

import asyncio


def skip(seconds: float) -> None:
    """Advance the clock of the running event loop: timers of these seconds are due now."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]
