"""Reads the streams of a source's verdicts without a cursor, and takes entries by their ids."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from acker_redis.errors import AckerError
from acker_redis.flows.steps import Pauses, may_retry
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.outcome import Entry, parse_entry
from acker_redis.spark.streams.outcome_offsets import Ids
from acker_redis.sync.client import Acker
from acker_redis.transport.readers import reader_name

PAGE = 16
"""Entries of a shard per request; an entry may have some hundred KiB."""

T = TypeVar("T")
Command = tuple[str | bytes | int, ...]


class OutcomeStreams:
    """The streams of one source, one per shard.

    While Redis does not answer, a call is repeated for the ``retry_for`` seconds of the client.
    Then it raises RedisUnavailableError.
    """

    def __init__(self, acker: Acker, source: str) -> None:
        self._acker = acker
        self._source = source

    def shards(self, refresh: bool = False) -> int:
        """Return the namespace's number of shards, cached unless ``refresh`` is set.

        Raises NamespaceNotFoundError if the namespace does not exist.
        """
        if refresh:
            self._acker.flows.known = None
        return self._patiently(lambda: self._acker.config.shards)

    def edges(self) -> tuple[str, ...]:
        """Return the names of the namespace's edges, cached."""
        return self._patiently(lambda: self._acker.config.edges)

    def announce(self) -> None:
        """Name the connection after its reader, for CLIENT LIST and the doctor.

        A no-op without the right to CLIENT SETNAME, or if the URL sets a name.
        """
        pool = getattr(self._acker.connection.client, "connection_pool", None)
        if pool is not None and pool.connection_kwargs.get("client_name"):
            return
        with suppress(AckerError):
            name = reader_name(self._acker.namespace, self._source, self._acker.ids.salt)
            self._acker.connection.command("CLIENT", "SETNAME", name)

    def last_ids(self) -> dict[int, str]:
        """Return the highest id per shard; shards without entries are left out."""
        shards = range(self.shards())
        asked = [("XREVRANGE", self._key(shard), "+", "-", "COUNT", 1) for shard in shards]
        replies = zip(shards, self._ask(asked), strict=True)
        return {shard: found[0][0].decode() for shard, found in replies if found}

    def new_ids(
        self,
        start: Mapping[int, Ids],
        limit: int,
        until: Mapping[int, str] | None = None,
        between: bool = True,
    ) -> dict[int, Ids]:
        """Return the oldest entries that are not in ``start``, up to ``limit`` per shard.

        ``until`` limits the search to ids up to this one in each shard, and to the shards that it
        contains. Only a failover of Redis can bring new entries between those of ``start``. To find
        them, all of ``start`` must be read again. So the method searches there only if ``between``
        is set and no shard has other new entries.
        """
        shards = range(self.shards()) if until is None else until.keys()

        def search(gaps: Callable[[Ids], list[tuple[str, str]]]) -> dict[int, Ids]:
            searches = []
            for shard in shards:
                known = start.get(shard, ())
                end = (until or {}).get(shard)
                searches.append(_Search(shard, deque(gaps(known)), frozenset(known), limit, end))
            self._search(searches)
            return {one.shard: tuple(one.found) for one in searches if one.found}

        return search(_around) or (search(_between) if between else {})

    def entries(self, shard: int, ids: Ids, edges: tuple[str, ...] = ()) -> Iterator[Entry | None]:
        """Yield entries by their ids, page by page; None for an entry that does not exist."""
        for at in range(0, len(ids), PAGE):
            asked = [("XRANGE", self._key(shard), id_, id_) for id_ in ids[at : at + PAGE]]
            for found in self._ask(asked):
                if found:
                    ((id_, fields),) = found
                    yield parse_entry(shard, id_, fields, edges)
                else:
                    yield None

    def entries_until(self, shard: int, last: str, edges: tuple[str, ...] = ()) -> Iterator[Entry]:
        """Yield the entries from the oldest to the id ``last``, page by page."""
        begin = "-"
        while True:
            asked = ("XRANGE", self._key(shard), begin, last, "COUNT", PAGE)
            (found,) = self._ask([asked])
            for id_, fields in found:
                yield parse_entry(shard, id_, fields, edges)
            if len(found) < PAGE:
                return
            begin = f"({found[-1][0].decode()}"

    def take(self, ids: Mapping[int, Ids]) -> None:
        """Delete entries; ignore entries and shards that do not exist any longer."""
        entries = [Entry(shard, id_, 0, ()) for shard, its in ids.items() for id_ in its]
        if entries:
            self._patiently(lambda: self._acker.outcomes(self._source).take(entries))

    def _search(self, searches: "list[_Search]") -> None:
        while searches := [one for one in searches if one.gaps]:
            asked = [one.command(self._key(one.shard)) for one in searches]
            for one, found in zip(searches, self._ask(asked), strict=True):
                one.add([id_.decode() for id_, _ in found])

    def _ask(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            return []
        return self._patiently(lambda: self._acker.connection.commands(commands))

    def _patiently(self, work: Callable[[], T]) -> T:
        deadline, pauses = time.monotonic() + self._acker.retry_for, Pauses()
        while True:
            try:
                return work()
            except AckerError as error:
                if not may_retry(error):
                    raise
                self._acker.connection.drive(pauses.after(error, deadline))

    def _key(self, shard: int) -> str:
        return ShardKeys(self._acker.namespace, shard).outcomes(self._source)


@dataclass
class _Search:
    """A search for new entries of one shard, gap by gap and page by page."""

    shard: int
    gaps: deque[tuple[str, str]]
    """Ranges still to be searched, as XRANGE takes them."""
    known: frozenset[str]
    limit: int
    end: str | None
    found: list[str] = field(default_factory=list)

    def command(self, key: str) -> Command:
        return ("XRANGE", key, *self.gaps[0], "COUNT", PAGE)

    def add(self, ids: list[str]) -> None:
        for id_ in ids:
            if self.end and place(id_) > place(self.end):
                self.gaps.clear()  # ids and gaps are in order: no later id can be in range
                return
            if id_ not in self.known:
                self.found.append(id_)
            if len(self.found) == self.limit:
                self.gaps.clear()
                return
        _, stop = self.gaps.popleft()
        if len(ids) == PAGE:
            self.gaps.appendleft((f"({ids[-1]}", stop))


def place(id_: str) -> tuple[int, int]:
    """Return the position of an id in its stream, for comparison."""
    ms, _, number = id_.partition("-")
    return int(ms), int(number)


def _around(known: Ids) -> list[tuple[str, str]]:
    return [("-", f"({known[0]}"), (f"({known[-1]}", "+")] if known else [("-", "+")]


def _between(known: Ids) -> list[tuple[str, str]]:
    return [(f"({known[0]}", f"({known[-1]}")] if len(known) > 1 else []
