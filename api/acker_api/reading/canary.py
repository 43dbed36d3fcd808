"""The canary of ``/readyz``: a tree of the service itself, which also tests writes.

Its namespace is not in the list of all, so no page shows it and no rotator rotates it: each round
trip ticks and drains it. Any number of services may use it at the same time: a service recognizes
its tree by the anchor, and takes the verdict of its tree. Trees of a killed service expire; the
next service takes their verdicts once they are old. If the namespace is missing, after a FLUSHALL
for example, the next round trip creates it again.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from acker_api.reading.reader import RETRY_FOR, Reader
from acker_redis import AckerConfig, Batch, Entry, new_anchor, new_tuple_id
from acker_redis.errors import (
    AckerError,
    BacklogError,
    NamespaceNotFoundError,
    RedisRefusedError,
    RedisUnavailableError,
    SchemaError,
)
from acker_redis.operate import (
    RESERVED,
    SCHEMA,
    AskAll,
    Flow,
    Pauses,
    Run,
    ShardKeys,
    ShardRotation,
    code_of,
    commands,
    is_denied,
    parse_entry,
)

NAME = f"{RESERVED}{SCHEMA}"
"""The namespace of the canary; each version of the schema has its own."""
SOURCE = "canary"
SOURCE_ID = "canary"
CONFIG = AckerConfig(
    buckets=2, tick_ms=10_000, high_water=10_000, outcomes_limit=10_000, publish=False
)
ATTEMPTS = 3
"""Maximum number of trees of one round trip: the first may find no namespace, or lose it."""
DENIED_FOR = 600.0
"""Seconds until a missing right is tried again, because Redis logs each refusal in its log of
ACLs."""
ABANDONED_MS = 120_000
"""Milliseconds after which no service waits for a verdict any longer."""
READ = 100
"""Entries read from either end: as many services may run a canary at the same moment."""
TICK_CALLS = 3
"""Calls that tick and drain in one round trip; the next round trip continues."""
DRAINED = 100
"""Records of abandoned trees that one round trip drains."""

State = Literal["ok", "failed", "denied", "off"]


@dataclass(frozen=True)
class Flight:
    """The result of a round trip."""

    state: State
    """``denied``: the service's user in Redis may not write; ``off``: it is switched off."""
    why: str = ""
    """The cause of a failure, for callers who may see details."""
    public: str = ""
    """The cause, for all callers; '' if only callers who may see details may know it."""


class _LostError(AckerError):
    """Raised when a tree was acked, and its verdict is missing."""


class Canary:
    """Runs round trips, in one event loop; ``within`` is their timeout in seconds."""

    def __init__(
        self, reader: Reader, within: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._acker = reader.acker(NAME)
        self._keys = ShardKeys(NAME, 0)
        self._within, self._clock = within, clock
        self._flying: asyncio.Task[Flight] | None = None
        self._denied: tuple[float, Flight] | None = None

    async def fly(self) -> Flight:
        """Return the result of one round trip. Raises nothing, and takes ``within`` at most.

        If a round trip is still running, wait for it and begin no other: calls that Redis did not
        answer would pile up.
        """
        if self._denied and self._clock() < self._denied[0]:
            return self._denied[1]
        if self._flying is None or self._flying.done():
            self._flying = asyncio.create_task(self._fly(), name="acker-canary")
        await asyncio.wait({self._flying}, timeout=self._within)
        if self._flying.done():
            return self._flying.result()
        return _failed(f"no verdict within {self._within:g} s")

    async def close(self) -> None:
        """Cancel the running round trip."""
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
                # acker.create() would add the namespace to the list of all.
                await self._again(Run(commands.create(self._keys, CONFIG, commands.new_salt())))
            except _LostError:
                # The tree may have been lost when another service created the namespace again.
                if attempt == ATTEMPTS:
                    raise
            except BacklogError:
                # The backlog of abandoned verdicts is full, so trees are not tracked: take some.
                if attempt == ATTEMPTS:
                    raise
                oldest, _ = await self._read()
                await self._take([entry.id for entry in oldest])

    async def _once(self) -> None:
        # Test first the rights that the end needs: a user without them must leave no tree.
        await self._read()
        await self._tick()
        anchor, first = new_anchor(), new_tuple_id()
        track, ack = Batch(SOURCE), Batch()
        track.track(anchor, SOURCE_ID, [first])
        await self._acker.apply(track)
        ack.ack(anchor, first)
        await self._acker.apply(ack)
        oldest, newest = await self._read()
        mine = [entry for entry in newest if _tells(entry, anchor)]
        if not mine:
            raise _LostError("a tree was tracked and acked, but its verdict is missing")
        stale = [each.id for each in oldest if mine[0].at_ms - each.at_ms > ABANDONED_MS]
        await self._take(list(dict.fromkeys([mine[0].id, *stale])))

    async def _take(self, ids: list[str]) -> None:
        await self._again(Run(commands.take(self._keys, SOURCE, ids[: commands.MAX_TAKE])))

    async def _tick(self) -> None:
        rotation = ShardRotation(self._keys, DRAINED)
        for _ in range(TICK_CALLS):
            step = rotation.reply(await self._again(Run(rotation.call())), time.monotonic())
            if not step.more:
                return

    async def _read(self) -> tuple[list[Entry], list[Entry]]:
        """Return untaken verdicts: the oldest ones, and the newest ones."""
        stream = self._keys.outcomes(SOURCE)
        reads = (
            ("XRANGE", stream, "-", "+", "COUNT", READ),
            ("XREVRANGE", stream, "+", "-", "COUNT", READ),
        )
        replies = await self._again(AskAll(reads))
        oldest, newest = (
            [parse_entry(0, id_, fields) for id_, fields in reply] for reply in replies
        )
        return oldest, newest

    async def _again(self, step: Run | AskAll) -> Any:
        """Run an idempotent step, with retries if its connection was dead; return its result."""
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
    "READONLY": "Redis is a read-only replica, or a failover is in progress; let the URL name the "
    "master, or its sentinels",
    "OOM": "Redis is at maxmemory, and accepts no trees; raise it, or lower high_water",
    "MISCONF": "Redis cannot save its data to disk, and refuses writes (MISCONF); see its log",
    "NOREPLICAS": "Redis has fewer replicas than min-replicas-to-write, and refuses writes",
}
"""The meaning of the error codes of Redis."""


def _failed_by(error: AckerError) -> Flight:
    words = str(error)
    code = code_of(error)
    if code in _KNOWN:
        return _failed(_KNOWN[code])
    if isinstance(error, RedisUnavailableError | _LostError):
        return Flight("failed", words, "a canary tree did not complete")
    tampered = isinstance(error, SchemaError) or code == "WRONGTYPE"
    fix = f"; delete its keys, {_PREFIX}:*, and the service creates it again" if tampered else ""
    return Flight("failed", words + fix)


def _failed(words: str) -> Flight:
    return Flight("failed", words, words)
