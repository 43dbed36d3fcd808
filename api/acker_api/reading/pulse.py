"""Early detection of a Redis that hangs, for clients that poll.

Without it, a client would be notified only after the pause between two polls and the timeout of an
answer. So while clients poll, the service sends heartbeats to Redis in between. As soon as a
heartbeat is overdue, a poll waits only a moment more.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from acker_api.reading.timeouts import too_late

T = TypeVar("T")

SIGNS = 0.25
"""Pause between two heartbeats, as a part of the timeout of an answer."""
LATE = 0.6
"""Part of that timeout after which a heartbeat is overdue."""
LOOKS = 6
"""Turns of the event loop for that time: a process without CPU time must not blame Redis."""
YET = 0.1
"""Part of that timeout in which a poll may still be answered."""
ON = 10.0
"""Seconds for which heartbeats continue after a poll."""


class Pulse:
    """Heartbeats of one Redis, in one event loop; ``ping`` sends one, ``within`` is the timeout."""

    def __init__(self, ping: Callable[[], Awaitable[Any]], within: float) -> None:
        self._ping, self._within = ping, within
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._late = asyncio.Event()

    async def read(self, read: Awaitable[T]) -> T:
        """Return the result of a read. Raise RedisUnavailableError once Redis is known to hang."""
        self._go_on()
        reading, late = asyncio.ensure_future(read), asyncio.ensure_future(self._late.wait())
        try:
            await asyncio.wait({reading, late}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait({reading}, timeout=YET * self._within)
            if not reading.done():
                raise too_late(LATE * self._within)
            return reading.result()
        finally:
            late.cancel()
            reading.cancel()
            await asyncio.wait({reading})

    async def close(self) -> None:
        """Stop the heartbeats."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _go_on(self) -> None:
        self._until = time.monotonic() + ON
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="acker-pulse")

    async def _run(self) -> None:
        try:
            while time.monotonic() < self._until:
                await asyncio.sleep(SIGNS * self._within)
                await self._sign()
        finally:
            self._late.clear()

    async def _sign(self) -> None:
        sign = asyncio.ensure_future(self._ping())
        try:
            for _ in range(LOOKS):
                if sign.done():
                    break
                await asyncio.wait({sign}, timeout=LATE * self._within / LOOKS)
            if not sign.done():
                self._late.set()
            await sign
        except RedisTimeoutError:
            return  # Redis hangs, or still does
        except RedisError:
            pass  # Redis is unavailable or busy, and reports it to reads as well
        finally:
            sign.cancel()
        self._late.clear()
