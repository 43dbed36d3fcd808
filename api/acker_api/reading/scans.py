"""Scans, which read many records: one at a time, and none takes Redis away from the producers.

Redis has one thread. A scan that sends call after call, or several side by side, would make every
producer wait. So clients take turns, one answer each, and a scan rests between its calls.
"""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from acker_api.problems import Problem, too_many
from acker_api.reading.timeouts import within
from acker_redis.operate import AsyncConnection, Call

T = TypeVar("T")

SHARE = 0.25
"""Part of the time in which scans may keep Redis busy: of all clients and all worker processes."""
MAX_REST = 0.02
"""Maximum seconds of a rest after a call. A call keeps Redis busy for up to 5 ms: a longer one
waited for the network, or for other clients."""
WAITING = 8
"""Maximum number of scans of one client that wait for their turn."""
WAIT = 3.0
"""Seconds after which a scan that had no turn is refused: sooner than the dashboard gives up."""


class Turns:
    """Lets one scan run at a time. Clients take turns, however many scans each of them has."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._busy = False

    @asynccontextmanager
    async def of(self, client: str) -> AsyncIterator[None]:
        """Wait for the turn of a client. Raise Problem (429) if it takes too long."""
        if self._busy:
            await self._wait(client)
        self._busy = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, client: str) -> None:
        if len(self._waiting.get(client, ())) >= WAITING:
            raise busy()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            async with asyncio.timeout(WAIT):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            else:
                self._remove(client, turn)
            if isinstance(error, TimeoutError):
                raise busy() from None
            raise

    def _pass_on(self) -> None:
        """Give the turn to the client that has waited since its last one for the longest time."""
        self._busy = bool(self._waiting)
        if self._busy:
            client, queue = next(iter(self._waiting.items()))
            turn = queue[0]
            self._remove(client, turn)
            if client in self._waiting:
                self._waiting.move_to_end(client)
            turn.set_result(None)

    def _remove(self, client: str, turn: "asyncio.Future[None]") -> None:
        queue = self._waiting[client]
        queue.remove(turn)
        if not queue:
            del self._waiting[client]


def busy() -> Problem:
    """Return the problem of a scan that had no turn."""
    problem = too_many(math.ceil(WAIT))
    problem.detail = "other scans of records are in progress; retry, with fewer at the same time"
    return problem


class Scanning(AsyncConnection):
    """A connection for scans: reads of many records are made one by one, with rests in between.

    ``share`` is the part of the time in which they may keep Redis busy, and ``answer_within`` the
    timeout of each read in seconds. Everything is sent on ``connection``.
    """

    def __init__(self, connection: AsyncConnection, share: float, answer_within: float) -> None:
        super().__init__(connection.client)
        self._connection, self._rests = connection, 1 / share - 1
        self._answer_within = answer_within
        self._one = asyncio.Lock()
        self._due = 0.0

    async def run(self, call: Call) -> Any:
        """Send a call; see :meth:`AsyncConnection.run`."""
        if call.script == "list":
            return await self._rested(lambda: self._connection.run(call))
        return await self._connection.run(call)

    async def command(self, *args: str | bytes | int) -> Any:
        """Send a command; see :meth:`AsyncConnection.command`."""
        return await self._connection.command(*args)

    async def commands(self, commands: Any) -> list[Any]:
        """Send commands; see :meth:`AsyncConnection.commands`."""
        return await self._rested(lambda: self._connection.commands(commands))

    async def _rested(self, ask: Callable[[], Awaitable[T]]) -> T:
        async with self._one:
            await asyncio.sleep(self._due - time.monotonic())
            begun = time.monotonic()
            try:
                return await within(self._answer_within, ask)
            finally:
                now = time.monotonic()
                self._due = now + min(MAX_REST, self._rests * (now - begun))
