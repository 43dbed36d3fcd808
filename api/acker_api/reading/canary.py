"""A tree of the service's own that goes the whole way, so that ``/readyz`` knows of writes too.

Its namespace is not in the list of all: nobody shows it or rotates it, each round trip ticks and
drains it. Any number of services may fly there at once: a tree is known by its anchor, and each
takes its own verdict. What one that died has left expires, and its verdict is taken by the next
that comes by, once it is old. If the namespace is gone, after a FLUSHALL say, it is made anew.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from acker_api.reading.reader import RETRY_FOR, Reader
from acker_redis.batching.batch import Batch
from acker_redis.errors import (
    AckerError,
    BacklogError,
    NamespaceNotFoundError,
    RedisRefusedError,
    RedisUnavailableError,
    SchemaError,
)
from acker_redis.flows.drain import ShardRotation
from acker_redis.flows.steps import AskAll, Flow, Pauses, Run
from acker_redis.protocol import commands
from acker_redis.protocol.config import SCHEMA, AckerConfig
from acker_redis.protocol.ids import new_anchor, new_tuple_id
from acker_redis.protocol.keys import RESERVED, ShardKeys
from acker_redis.protocol.outcome import Entry, parse_entry
from acker_redis.transport.errors import code_of, is_denied

NAME = f"{RESERVED}{SCHEMA}"
"""Its namespace; versions of another schema have another."""
TASK = "canary"
SOURCE_ID = "canary"
CONFIG = AckerConfig(
    buckets=2, tick_ms=10_000, high_water=10_000, outcomes_limit=10_000, publish=False
)
ATTEMPTS = 3
"""Trees of one round trip at most: the first may find no namespace, or lose it on its way."""
DENIED_FOR = 600.0
"""Seconds for which a right that is missing is not asked for again: each refusal is in Redis's log
of ACLs."""
ABANDONED_MS = 120_000
"""After so long nobody waits for a verdict any more."""
READ = 100
"""Entries that are read from either end: so many services may fly at the same moment."""
TICK_CALLS = 3
"""Calls that tick and drain in one round trip; what is left is for the next."""
DRAINED = 100
"""Records of trees that were left behind, a round trip."""

State = Literal["ok", "failed", "denied", "off"]


@dataclass(frozen=True)
class Flight:
    """What came of a round trip."""

    state: State
    """``denied``: the service's user in Redis may not; ``off``: it is not to."""
    why: str = ""
    """What is wrong, for people."""
    public: str = ""
    """The same, for strangers too; '' if it may be told to nobody but who may see details."""


class _LostError(AckerError):
    """Raised when a tree was acked, and its verdict is not there."""


class Canary:
    """Flies when it is asked to, in one event loop; ``within`` is in seconds."""

    def __init__(
        self, reader: Reader, within: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._acker = reader.acker(NAME)
        self._keys = ShardKeys(NAME, 0)
        self._within, self._clock = within, clock
        self._flying: asyncio.Task[Flight] | None = None
        self._denied: tuple[float, Flight] | None = None

    async def fly(self) -> Flight:
        """One round trip. It raises nothing, and takes no longer than it may.

        One that is still on its way is waited for, and no other begun: calls that Redis did not
        answer would pile up.
        """
        if self._denied and self._clock() < self._denied[0]:
            return self._denied[1]
        if self._flying is None or self._flying.done():
            self._flying = asyncio.create_task(self._fly(), name="acker-canary")
        await asyncio.wait({self._flying}, timeout=self._within)
        if self._flying.done():
            return self._flying.result()
        return _failed(f"there was no verdict within {self._within:g} s")

    async def close(self) -> None:
        """End what is under way."""
        if self._flying:
            self._flying.cancel()
            await asyncio.wait({self._flying})

    async def _fly(self) -> Flight:
        try:
            await self._round_trip()
        except RedisRefusedError as error:
            if not is_denied(error):
                return _failed_by(error)
            denied = Flight("denied", str(error))
            self._denied = self._clock() + DENIED_FOR, denied
            return denied
        except AckerError as error:
            return _failed_by(error)
        return Flight("ok")

    async def _round_trip(self) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._once()
            except NamespaceNotFoundError:
                if attempt == ATTEMPTS:
                    raise
                # Not acker.create(), which would put it into the list.
                await self._again(Run(commands.create(self._keys, CONFIG)))
            except _LostError:
                # It may have gone with the namespace while another service made that anew.
                if attempt == ATTEMPTS:
                    raise
            except BacklogError:
                # So many were left behind that no tree is tracked: none would ever be taken.
                if attempt == ATTEMPTS:
                    raise
                oldest, _ = await self._read()
                await self._take([entry.id for entry in oldest])

    async def _once(self) -> None:
        # What is only needed at the end is asked for first: who lacks a right leaves nothing.
        await self._read()
        await self._tick()
        anchor, first = new_anchor(), new_tuple_id()
        track, ack = Batch(TASK), Batch()
        track.track(anchor, SOURCE_ID, [first])
        await self._acker.apply(track)
        ack.ack(anchor, first)
        await self._acker.apply(ack)
        oldest, newest = await self._read()
        mine = [entry for entry in newest if _tells(entry, anchor)]
        if not mine:
            raise _LostError("a tree was tracked and acked, and no verdict says so")
        stale = [each.id for each in oldest if mine[0].at_ms - each.at_ms > ABANDONED_MS]
        await self._take(list(dict.fromkeys([mine[0].id, *stale])))

    async def _take(self, ids: list[str]) -> None:
        await self._again(Run(commands.take(self._keys, TASK, ids[: commands.MAX_TAKE])))

    async def _tick(self) -> None:
        rotation = ShardRotation(self._keys, DRAINED)
        for _ in range(TICK_CALLS):
            step = rotation.reply(await self._again(Run(rotation.call())), time.monotonic())
            if not step.more:
                return

    async def _read(self) -> tuple[list[Entry], list[Entry]]:
        """Verdicts that wait: the oldest of them, and the newest."""
        stream = self._keys.outcomes(TASK)
        reads = (
            ("XRANGE", stream, "-", "+", "COUNT", READ),
            ("XREVRANGE", stream, "+", "-", "COUNT", READ),
        )
        replies = await self._again(AskAll(reads))
        try:
            oldest, newest = (
                [parse_entry(0, id_, fields) for id_, fields in reply] for reply in replies
            )
        except (ValueError, LookupError, TypeError) as error:
            raise SchemaError(f"{stream} has been tampered with") from error
        return oldest, newest

    async def _again(self, step: Run | AskAll) -> Any:
        """The result of what may be done twice: a connection that had died is no matter."""
        return await self._acker.connection.drive(_again(step, time.monotonic() + RETRY_FOR))


def _again(step: Run | AskAll, deadline: float) -> Flow[Any]:
    pauses = Pauses()
    while True:
        try:
            return (yield step)
        except RedisUnavailableError as error:
            yield from pauses.after(error, deadline)


def _tells(entry: Entry, anchor: int) -> bool:
    return any(each.anchor == anchor and each.verdict == "ack" for each in entry.outcomes)


_PREFIX = ShardKeys(NAME, 0).prefix
_KNOWN = {
    "READONLY": "it is a read-only replica, or a failover is under way; let the URL name the "
    "master, or its sentinels",
    "OOM": "it is at maxmemory, and takes no trees; raise it, or lower high_water",
    "MISCONF": "it cannot save its data to disk, and refuses writes (MISCONF); see its log",
    "NOREPLICAS": "it has fewer replicas than min-replicas-to-write says, and refuses writes",
}
"""What the code of Redis's reply means."""


def _failed_by(error: AckerError) -> Flight:
    words = str(error)
    code = code_of(error)
    if code in _KNOWN:
        return _failed(_KNOWN[code])
    if isinstance(error, RedisUnavailableError | _LostError):
        return Flight("failed", words, "a round trip did not come to its end")
    tampered = isinstance(error, SchemaError) or code == "WRONGTYPE"
    fix = f"; remove its keys, {_PREFIX}:*, and it is made anew" if tampered else ""
    return Flight("failed", words + fix)


def _failed(words: str) -> Flight:
    return Flight("failed", words, words)
