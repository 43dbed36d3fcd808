"""What the service reads of Redis: every read is bounded in time and in calls at once.

One pool of connections serves all namespaces. Reads are not fenced and may run twice, so one that
met a dead connection is sent again for a moment; a Redis that is away is told of soon.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redis.exceptions import NoPermissionError

from acker_api.reading.moved import Moved
from acker_redis.aio import AsyncAcker
from acker_redis.aio.connection import AsyncConnection
from acker_redis.errors import AckerError, RedisUnavailableError, SchemaError
from acker_redis.flows.browse import OldestTree
from acker_redis.flows.names import names
from acker_redis.flows.steps import Flow, ask_until
from acker_redis.protocol.commands import Call
from acker_redis.protocol.status import Status
from acker_redis.transport.errors import FAILED

T = TypeVar("T")

RETRY_FOR = 0.2
"""Seconds for which a read is sent again."""
CALLS = 16
"""Scripts at once at most, and so connections: a namespace may have a thousand shards."""
SIDE_BY_SIDE = 4
"""Namespaces that are read at once: one that does not answer keeps three others waiting at most."""


@dataclass(frozen=True)
class Seen:
    """A namespace, as it was read."""

    status: Status
    oldest_ms: int | None = None
    """Age of the oldest tree that is pending, 0 if none is; None if it is not known."""


@dataclass(frozen=True)
class Survey:
    """All namespaces, each read on its own."""

    found: dict[str, Seen | AckerError] = field(default_factory=dict)
    """By name, sorted; an error where a namespace could not be read."""
    error: AckerError | None = None
    """Why not even their names could be read; ``found`` then has the names that were known."""
    script_seconds: float | None = None
    """What Redis has spent on scripts, of all its users; None where INFO is not allowed."""
    seconds: float = 0.0
    """How long the survey took."""


class Reader:
    """Reads namespaces, of one Redis, in one event loop."""

    def __init__(self, client: Any, answer_within: float, scrape_within: float) -> None:
        self._client = client
        self._connection = _Gated(client)
        self.moved = self._connection.moved
        """Notices that the master was demoted."""
        self._answer_within, self._scrape_within = answer_within, scrape_within
        self._known: list[str] = []
        self._may_info = True

    def acker(self, namespace: str, retry_for: float | None = None) -> AsyncAcker:
        """Client of a namespace on the pool of all; it is not to be closed.

        ``retry_for`` is RETRY_FOR unless given. Raises ConfigError if it cannot be a name.
        """
        retry_for = RETRY_FOR if retry_for is None else retry_for
        acker = AsyncAcker(self._client, namespace, retry_for=retry_for)
        acker.connection = self._connection
        return acker

    async def read(self, read: Callable[[], Awaitable[T]]) -> T:
        """What is read, in the time that an answer may take; else RedisUnavailableError."""
        self.moved.look()
        return await _within(self._answer_within, read)

    async def drive(self, flow: Flow[T]) -> T:
        """What a flow that only reads returns, likewise."""
        return await self.read(lambda: self._connection.drive(flow))

    async def ask(self, *args: str | bytes | int) -> Any:
        """The reply to a command that changes nothing, likewise; it may be sent again."""
        return await self.drive(ask_until(args, time.monotonic() + RETRY_FOR))

    async def command(self, *args: str | bytes | int) -> Any:
        """The reply to a command that is sent once, likewise."""
        return await self.read(lambda: self._connection.command(*args))

    async def whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something to its end, also when the caller is cancelled, or the service ends."""
        return await self._connection.whole(work)

    async def names(self) -> list[str]:
        """Names of all namespaces, sorted; RedisUnavailableError if no answer came in time."""
        flow = names(time.monotonic() + RETRY_FOR)
        within = min(self._answer_within, self._scrape_within)
        self._known = await _within(within, lambda: self._connection.drive(flow))
        return self._known

    async def status(self, namespace: str) -> Status:
        """State of a namespace; the errors of ``AsyncAcker.status``, and in time."""
        acker = self.acker(namespace)
        return await self.read(lambda: _state(acker))

    async def oldest(self, namespace: str) -> OldestTree | None:
        """The oldest tree, by ``AsyncAcker.oldest``; None if nothing is pending, or not known."""
        acker = self.acker(namespace)
        try:
            return await self.read(acker.oldest)
        except (AckerError, ValueError, LookupError, TypeError):
            return None  # a right that is missing, say: the rest is told all the same

    async def survey(self, oldest: bool = False, scripts: bool = False) -> Survey:
        """All namespaces. It raises nothing: what could not be read says why in its place.

        ``oldest`` asks for the age of the oldest trees too, ``scripts`` for the time of scripts.
        """
        begun = time.monotonic()
        self.moved.look()
        try:
            names, error = await self.names(), None
        except AckerError as failed:
            names, error = self._known, failed
        found: dict[str, Seen | AckerError] = {
            name: too_late(self._scrape_within) for name in names
        }
        spent: list[float | None] = [None]
        if error:
            found = dict.fromkeys(names, error)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._scrape_within):
                    await self._read(found, oldest)
                    if scripts:
                        spent.append(await self._script_seconds())
        return Survey(found, error, spent[-1], time.monotonic() - begun)

    async def ping(self) -> None:
        """Ask for a sign of life, of a cluster for none; the errors are those of redis-py.

        A node that hangs is no matter to who reads what another has.
        """
        if not hasattr(self._client, "get_random_node"):
            await self._client.ping()

    async def close(self) -> None:
        """Close the connections."""
        await self.moved.close()
        await self._connection.close()

    async def _read(self, found: dict[str, Seen | AckerError], oldest: bool) -> None:
        turns = asyncio.Semaphore(SIDE_BY_SIDE)

        async def read(name: str) -> None:
            async with turns:
                try:
                    found[name] = await _within(
                        self._answer_within, lambda: self._see(name, oldest)
                    )
                except AckerError as error:
                    found[name] = error

        await asyncio.gather(*map(read, found))

    async def _see(self, namespace: str, oldest: bool) -> Seen:
        acker = self.acker(namespace)
        status = await _state(acker)
        return Seen(status, await _oldest_ms(acker, status) if oldest else None)

    async def _script_seconds(self) -> float | None:
        """Of the server, or of all masters of a cluster."""
        masters = getattr(self._client, "get_primaries", None)
        if not self._may_info:
            return None
        try:
            if not masters:
                return _scripts(await self._client.info("commandstats"))
            stats = await asyncio.gather(
                *(node.execute_command("INFO", "commandstats") for node in masters())
            )
            return sum(map(_scripts, stats))
        except NoPermissionError:
            self._may_info = False  # asked again, each scrape would be in Redis's log of ACLs
            return None
        except FAILED:  # a node that is away: a figure less, no more
            return None


class _Gated(AsyncConnection):
    """A connection that has so many scripts under way at most."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._gate = asyncio.Semaphore(CALLS)
        self.moved = Moved(client, super().leave)

    async def leave(self) -> None:
        await super().leave()
        self.moved.suspect()

    async def run(self, call: Call) -> Any:
        async with self._gate:
            return await super().run(call)


async def _state(acker: AsyncAcker) -> Status:
    """State of a namespace; SchemaError also for fields that no script has written."""
    try:
        return await acker.status()
    except (ValueError, LookupError, TypeError) as error:
        raise SchemaError(
            f"the namespace {acker.namespace} has been tampered with: {type(error).__name__} in "
            "its meta; restore it, or drop it and create it anew"
        ) from error


async def _oldest_ms(acker: AsyncAcker, status: Status) -> int | None:
    if not (status.pending or status.expiring):
        return 0
    try:
        oldest = await acker.oldest()
    except (AckerError, ValueError, LookupError, TypeError):
        return None  # a right that is missing, say: the rest is told all the same
    return oldest.tree.age_ms if oldest else 0


async def _within(seconds: float, read: Callable[[], Awaitable[T]]) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await read()
    except TimeoutError:
        raise too_late(seconds) from None


def too_late(seconds: float) -> RedisUnavailableError:
    """No answer came in so many seconds."""
    return RedisUnavailableError(
        f"Redis did not answer within {seconds:g} s; is it overloaded, or out of reach?"
    )


def _scripts(stats: dict[str, Any]) -> float:
    spent = (stats.get(f"cmdstat_{name}", {}).get("usec", 0) for name in ("evalsha", "eval"))
    return float(sum(spent)) / 1e6
