"""Knows of a Redis that hangs before the next who asks, while somebody asks again and again.

Who polls hears of it after the pause between two polls and the time that an answer may take. So
while there are polls Redis is asked for a sign of life in between: once that is overdue, a poll
waits for no more than a moment.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from acker_api.reading.reader import too_late

T = TypeVar("T")

SIGNS = 0.25
"""Between two signs of life, of the time that an answer may take."""
LATE = 0.6
"""After so much of that time a sign is overdue."""
LOOKS = 6
"""In so many turns of the loop: a process that was starved of its processor blames nobody."""
YET = 0.1
"""Of that time, for a poll to be answered all the same."""
ON = 10.0
"""Seconds for which it goes on after a poll."""


class Pulse:
    """Of one Redis, in one event loop; ``ping`` asks it, ``within`` is what an answer may take."""

    def __init__(self, ping: Callable[[], Awaitable[Any]], within: float) -> None:
        self._ping, self._within = ping, within
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._late = asyncio.Event()

    async def read(self, read: Awaitable[T]) -> T:
        """What is read; RedisUnavailableError once it is known that Redis hangs."""
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
        """End it."""
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
            return  # it hangs, or still does
        except RedisError:
            pass  # it is not there, or is busy and says so: so will it to who reads
        finally:
            sign.cancel()
        self._late.clear()
