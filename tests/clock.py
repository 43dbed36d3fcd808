"""The clock of an event loop, moved: a deadline passes when the test says so."""

import asyncio


def skip(seconds: float) -> None:
    """Move the clock of the running event loop: what is due within these seconds is due now."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]
