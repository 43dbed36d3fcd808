"""Reads of Redis, each bounded in time and in the number of concurrent calls.

One pool of connections serves all namespaces. Reads are not fenced and may run twice, so a read
that met a dead connection is retried for a moment. An unavailable Redis is reported soon.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from redis.exceptions import NoPermissionError

from acker_api.reading.expired import ExpiredByEdge
from acker_api.reading.kept import Kept
from acker_api.reading.moved import Moved
from acker_api.reading.scans import SHARE, Scanning
from acker_api.reading.servers import Servers
from acker_api.reading.timeouts import too_late, within
from acker_redis import OldestTree, Status, Waits
from acker_redis.aio import AsyncAcker
from acker_redis.errors import AckerError, SchemaError
from acker_redis.operate import (
    FAILED,
    AsyncConnection,
    Call,
    Event,
    Flow,
    Growth,
    Point,
    ask_until,
    is_too_large,
    kept_by,
    read_base,
    read_names,
    read_untaken,
    read_waits,
    waiting_readers,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_FOR = 0.2
"""Seconds for which a read is retried."""
SCAN_WITHIN = 4.0
"""Seconds in which a scan must end, beyond the timeout of other reads."""
CALLS = 16
"""Maximum of concurrent scripts, and so of connections: a namespace may have 1024 shards."""
SIDE_BY_SIDE = 4
"""Namespaces that are read concurrently: one without an answer delays three others at most."""
READERS_KEPT = 10.0
"""Seconds for which the list of Spark's readers is cached."""
HELD_FOR = 60.0
"""Seconds for which surveys leave out a namespace with a reply that is too large: Redis builds the
whole reply before it notices that the connection is closed."""
UNREAD = (AckerError, ValueError, LookupError, TypeError)
"""Errors of a part of the state, for example a missing right or a damaged tree: the rest of the
state is still returned."""
SAMPLE = 200
"""Trees of a namespace with edges that a survey reads: of 4 shards at most, with a call for each
bucket that has some."""


@dataclass(frozen=True)
class ReadStatus:
    """A namespace, as it was read."""

    status: Status
    oldest_ms: int | None = None
    """Age of the oldest pending tree in ms, 0 if none is pending; None if it is unknown."""
    waits: Waits | None = None
    """On which edges a sample of the trees waits; None without edges, or if it is unknown."""
    untaken: Mapping[str, int] | None = None
    """Age of the oldest untaken verdict in ms, by source, of those that wait for a minute or more;
    None if it is unknown."""
    base: Point | None = None
    """The point of the history of some 15 minutes ago; None if there is none, or it is unknown."""

    @property
    def recent(self) -> Growth | None:
        """The growth of the verdicts since ``base``; None if it is unknown."""
        return Growth.since(self.base, self.status) if self.base else None


See = Callable[[Status], Awaitable[ReadStatus]]
"""Reads more of a namespace than its status; raises AckerError only."""


@dataclass(frozen=True)
class Survey:
    """The state of all namespaces; each was read separately."""

    found: dict[str, ReadStatus | AckerError] = field(default_factory=dict)
    """By name, sorted; an error for a namespace that could not be read."""
    error: AckerError | None = None
    """Why not even the names could be read; ``found`` then has the names known before."""
    script_seconds: float | None = None
    """Seconds that Redis has spent on scripts, of all its users; None where INFO is refused."""
    seconds: float = 0.0
    """Duration of the survey."""
    dataset: str | None = ""
    """Fingerprint of the data that was read, which changes with a failover or a restart of Redis;
    '' if it is unknown, None if it changed during the survey."""


class Reader:
    """Reads the namespaces of one Redis, in one event loop."""

    def __init__(
        self, client: Any, answer_within: float, scrape_within: float, share: float = SHARE
    ) -> None:
        self._client = client
        self._connection = _Gated(client)
        self._scanning = Scanning(self._connection, share, answer_within)
        self.scan_within = answer_within / 2
        """Seconds after which a scan stops, and returns the records that it has read."""
        self.moved = self._connection.moved
        """Detects that the master was demoted."""
        self.expired = ExpiredByEdge()
        """Fed by each reading of a state: also by probes and scrapes, so it begins with the
        service."""
        self._answer_within, self._scrape_within = answer_within, scrape_within
        self._known: list[str] = []
        self._held: dict[str, tuple[float, SchemaError]] = {}
        """Namespaces with a reply that is too large, and until when they are not read again."""
        self._may_list = True
        self._servers = Servers(client)
        self._readers = Kept(self._list_readers, READERS_KEPT)

    def acker(self, namespace: str, retry_for: float | None = None) -> AsyncAcker:
        """Return a client of a namespace on the shared pool; do not close it.

        ``retry_for`` is RETRY_FOR unless given. Raise ConfigError for an invalid name.
        """
        retry_for = RETRY_FOR if retry_for is None else retry_for
        acker = AsyncAcker(self._client, namespace, retry_for=retry_for)
        acker.connection = self._connection
        return acker

    def scanner(self, namespace: str, retry_for: float | None = None) -> AsyncAcker:
        """Return such a client for reads of many records, which leave Redis to other clients."""
        acker = self.acker(namespace, retry_for)
        acker.connection = self._scanning
        return acker

    async def scan(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a scan; it has longer than other reads, because it rests."""
        self.moved.look()
        return await within(self._answer_within + SCAN_WITHIN, read)

    async def scan_flow(self, flow: Flow[T]) -> T:
        """Return the result of a flow that reads many records, likewise."""
        return await self.scan(lambda: self._scanning.drive(flow))

    async def read(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a read. Raise RedisUnavailableError if it takes too long."""
        self.moved.look()
        return await within(self._answer_within, read)

    async def drive(self, flow: Flow[T]) -> T:
        """Return the result of a flow that only reads, likewise."""
        return await self.read(lambda: self._connection.drive(flow))

    async def ask(self, *args: str | bytes | int) -> Any:
        """Return the reply to a command that changes nothing, likewise; it may be sent again."""
        return await self.drive(ask_until(args, time.monotonic() + RETRY_FOR))

    async def command(self, *args: str | bytes | int) -> Any:
        """Return the reply to a command that is sent once, likewise."""
        return await self.read(lambda: self._connection.command(*args))

    async def whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work to its end, even if the caller is cancelled, or the service ends."""
        return await self._connection.whole(work)

    async def names(self) -> list[str]:
        """Return all names, sorted. Raise RedisUnavailableError if no answer came in time."""
        flow = read_names(time.monotonic() + RETRY_FOR)
        seconds = min(self._answer_within, self._scrape_within)
        self._known = await within(seconds, lambda: self._connection.drive(flow))
        return self._known

    async def status(self, namespace: str) -> Status:
        """Return the state of a namespace, in time; raises as ``AsyncAcker.status``."""
        acker = self.acker(namespace)
        status = await self.read(acker.status)
        self.expired.note(status)
        return status

    async def oldest(self, namespace: str) -> OldestTree | None:
        """Return ``AsyncAcker.oldest``; None if nothing is pending, or the tree is unknown."""
        acker = self.acker(namespace)
        try:
            return await self.read(acker.oldest)
        except UNREAD as error:
            _check_size(error)
            return None

    async def untaken(self, status: Status) -> dict[str, int] | None:
        """Return the age of the oldest untaken verdict in ms, by source; None if it is unknown.

        Sources whose verdicts have waited for less than a minute are not included, nor those whose
        verdicts a Spark query keeps.
        """
        try:
            found = await self.drive(read_untaken(status))
        except UNREAD as error:
            _check_size(error)
            return None
        if found:
            kept = kept_by(await self._readers.get(), status)
            found = {name: ms for name, ms in found.items() if name not in kept}
        return found

    async def base(self, status: Status) -> Point | None:
        """Return the point of the history of some 15 minutes ago; None if it is unknown."""
        try:
            return await self.drive(read_base(status))
        except UNREAD as error:
            _check_size(error)
            return None

    async def untaken_of(self, status: Status) -> ReadStatus:
        """Return a namespace with all for its judgement but the oldest tree.

        Raise SchemaError if a reply is too large, and nothing else.
        """
        return ReadStatus(status, untaken=await self.untaken(status), base=await self.base(status))

    async def aged(self, status: Status) -> ReadStatus:
        """Return a namespace with all for its judgement; raises as :meth:`untaken_of`."""
        oldest_ms = await _oldest_ms(self.acker(status.namespace), status)
        return replace(await self.untaken_of(status), oldest_ms=oldest_ms)

    async def all_of(self, status: Status) -> ReadStatus:
        """Return a namespace with everything that metrics have; raises as :meth:`untaken_of`."""
        acker = self.acker(status.namespace)
        oldest_ms, waits = await _oldest_ms(acker, status), await _waits(acker, status)
        return ReadStatus(status, oldest_ms, waits, await self.untaken(status))

    async def survey(self, see: See | None = None, scripts: bool = False) -> Survey:
        """Return the state of all namespaces. Raises nothing: the result has the errors.

        ``see`` reads more of each namespace; ``scripts`` also reads the time of scripts, and which
        data it is.
        """
        begun = time.monotonic()
        self.moved.look()
        try:
            names, error = await self.names(), None
        except AckerError as failed:
            names, error = self._known, failed
        found: dict[str, ReadStatus | AckerError] = {
            name: too_late(self._scrape_within) for name in names
        }
        spent: list[float | None] = [None]
        dataset: str | None = ""
        self._held = {name: held for name, held in self._held.items() if name in found}
        if error:
            found = dict.fromkeys(names, error)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._scrape_within):
                    before = await self._servers.dataset() if scripts else ""
                    await self._read(found, see)
                    if scripts:
                        spent.append(await self._servers.script_seconds())
                        # After a failover in between it is unknown which data was read.
                        dataset = before if before == await self._servers.dataset() else None
        return Survey(found, error, spent[-1], time.monotonic() - begun, dataset)

    async def ping(self) -> None:
        """Send a heartbeat, except to a cluster; the errors are those of redis-py.

        On a cluster, a node that hangs does not affect the data of other nodes.
        """
        if not hasattr(self._client, "get_random_node"):
            await self._client.ping()

    async def close(self) -> None:
        """Close the connections."""
        await self.moved.close()
        await self._readers.close()
        await self._connection.close()

    async def _read(self, found: dict[str, ReadStatus | AckerError], see: See | None) -> None:
        turns = asyncio.Semaphore(SIDE_BY_SIDE)

        async def read(name: str) -> None:
            async with turns:
                try:
                    found[name] = await within(self._answer_within, lambda: self._see(name, see))
                except AckerError as error:
                    found[name] = error
                except Exception as error:
                    # With any content of the keys of one namespace, the others are read.
                    log.exception(Event("cannot_read", namespace=name))
                    found[name] = SchemaError(f"{name} cannot be read: {error!s:.160}")

        await asyncio.gather(*map(read, found))

    async def _see(self, namespace: str, see: See | None) -> ReadStatus:
        if (held := self._held.get(namespace)) and time.monotonic() < held[0]:
            raise held[1]
        try:
            status = await self.acker(namespace).status()
            self.expired.note(status)
            return await see(status) if see else ReadStatus(status)
        except SchemaError as error:
            if is_too_large(error):
                self._held[namespace] = (time.monotonic() + HELD_FOR, error)
            raise

    async def _list_readers(self) -> frozenset[str]:
        """Return the names of the connections of Spark queries that read verdicts now."""
        masters = getattr(self._client, "get_primaries", None)
        if not self._may_list:
            return frozenset()
        try:
            if not masters:
                return waiting_readers(await self._client.client_list())
            lists = await asyncio.gather(
                *(node.execute_command("CLIENT LIST") for node in masters())
            )
            return frozenset().union(*map(waiting_readers, lists))
        except NoPermissionError:
            self._may_list = False  # a retry each time would be in Redis's log of ACLs
            return frozenset()
        except FAILED:
            return frozenset()


class _Gated(AsyncConnection):
    """A connection that limits the number of concurrent scripts."""

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


def _check_size(error: Exception) -> None:
    """Raise the error of a reply that is too large: it is one of the whole namespace."""
    if is_too_large(error):
        raise error


async def _oldest_ms(acker: AsyncAcker, status: Status) -> int | None:
    if not (status.pending or status.expiring):
        return 0
    try:
        oldest = await acker.oldest()
    except UNREAD as error:
        _check_size(error)
        return None
    return oldest.tree.age_ms if oldest else 0


async def _waits(acker: AsyncAcker, status: Status) -> Waits | None:
    if not status.config.edges:
        return None
    if not status.pending:
        return Waits(0, 0, ())
    try:
        return await acker.connection.drive(read_waits(acker.flows, status, SAMPLE))
    except UNREAD as error:
        _check_size(error)
        return None
