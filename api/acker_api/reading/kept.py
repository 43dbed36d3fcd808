"""Single-flight caches: concurrent callers, and callers soon after, get the same answer."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """A single-flight cache of one value: concurrent callers share one call of ``make``.

    A value is cached for ``seconds``; with 0, only a running call is shared. ``longer`` gets a
    value and the seconds that it took, and returns the seconds to cache it, if more. For ``stale``
    more seconds, callers still get the old value, and the next one is made in the background. An
    error goes to all waiting callers, and is not cached. A caller that stops waiting does not stop
    the others.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[T]],
        seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        stale: float = 0.0,
        longer: Callable[[T, float], float] | None = None,
    ) -> None:
        self._make, self._seconds, self._clock, self._stale = make, seconds, clock, stale
        self._longer = longer
        self._making: asyncio.Task[T] | None = None
        self._value: tuple[float, T] | None = None

    async def get(self) -> T:
        """Return the value."""
        over = self._clock() - self._value[0] if self._value else 0.0
        if self._value and over < 0:
            return self._value[1]
        if self._making is None:
            self._making = asyncio.create_task(self._run())
            self._making.add_done_callback(self._made)
        if self._value and over < self._stale:
            return self._value[1]
        return await asyncio.shield(self._making)

    async def close(self) -> None:
        """Cancel the running call."""
        if self._making:
            self._making.cancel()
            await asyncio.wait([self._making])

    async def _run(self) -> T:
        began = self._clock()
        value = await self._make()
        if self._seconds:
            now = self._clock()
            longer = self._longer(value, now - began) if self._longer else 0.0
            self._value = (now + max(self._seconds, longer), value)
        return value

    def _made(self, task: "asyncio.Task[T]") -> None:
        self._making = None
        if not task.cancelled():
            task.exception()  # retrieve it: perhaps all callers have stopped waiting


class KeptEach(Generic[T]):
    """A :class:`Kept` per name, for the ``most`` names that were requested last."""

    def __init__(
        self,
        make: Callable[[str], Awaitable[T]],
        seconds: float,
        stale: float = 0.0,
        most: int = 1000,
    ) -> None:
        self._make, self._seconds, self._stale, self._most = make, seconds, stale, most
        self._kept: OrderedDict[str, Kept[T]] = OrderedDict()

    async def get(self, name: str) -> T:
        """Return the value of a name."""
        kept = self._kept.pop(name, None)
        if kept is None:
            kept = Kept(lambda: self._make(name), self._seconds, stale=self._stale)
        self._kept[name] = kept
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return await kept.get()

    async def close(self) -> None:
        """Cancel the running calls."""
        for kept in list(self._kept.values()):
            await kept.close()
