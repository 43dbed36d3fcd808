"""Timeouts of reads, and their error."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from acker_redis.errors import RedisUnavailableError

T = TypeVar("T")


async def within(seconds: float, read: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a read. Raise RedisUnavailableError if it takes too long."""
    try:
        async with asyncio.timeout(seconds):
            return await read()
    except TimeoutError:
        raise too_late(seconds) from None


def too_late(seconds: float) -> RedisUnavailableError:
    """Return the error of a call that got no answer in time."""
    return RedisUnavailableError(
        f"Redis did not answer within {seconds:g} s; is it overloaded, or out of reach?"
    )
