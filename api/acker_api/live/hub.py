"""The hub of live events: one per process, with one subscription to Redis for all streams."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from acker_api.auth.tokens import Who
from acker_api.live.board import STATE, Listener
from acker_api.live.feed import Feed
from acker_api.live.ring import MAX_BYTES, Ring
from acker_api.live.verdicts import Address
from acker_api.live.watch import ListWatch, NamespaceWatch, Watch
from acker_api.problems import Problem
from acker_api.reading.kept import Kept, KeptEach
from acker_api.reading.overview import Judged
from acker_redis.errors import AckerError, NamespaceNotFoundError
from acker_redis.operate.status import NamespaceStatus

MOST = 1024
"""Maximum number of open streams."""
MAX_EACH = 256
"""Maximum number of open streams per token, or without tokens per address."""
LINGER = 10.0
"""Seconds that a watch continues after its last listener left, which may be reconnecting."""
MEMORY = 32 * MAX_BYTES
"""Bytes of all rings together."""
FIRST = 2.0
"""Seconds that a stream waits for its first state before it begins without one."""
GRACE = 0.3
"""Seconds for a stream to end by itself at shutdown."""


class Hub:
    """The listeners of all streams. Polls begin with the first, and end seconds after the last."""

    def __init__(
        self,
        client: Any,
        statuses: Callable[[str], Awaitable[NamespaceStatus]],
        judge: Callable[[], Awaitable[Judged]],
    ) -> None:
        self._client = client
        # Not cached: a client that asks because Redis has just failed must not get an old state.
        self._statuses = KeptEach(statuses, 0.0)
        self._judge = Kept(judge)
        self._watches: dict[str | None, Watch] = {}
        self._listeners: dict[Listener, str | None] = {}
        self._each: Counter[str] = Counter()
        self._feed: Feed | None = None
        self._timers: dict[str | None, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._over = False

    async def listen(
        self, namespace: str | None, who: Who, client: str, last: str | None = None
    ) -> Listener:
        """Return a listener of a namespace, or of the list of all; end it with :meth:`leave`.

        Streams are counted by ``client``; ``last`` is the id of the last event that it received.
        Raise Problem if there are too many streams, NamespaceNotFoundError if the namespace does
        not exist. If Redis is unavailable, the listener is notified, and again when it is back.
        """
        self._admit(client)
        if timer := self._timers.pop(namespace, None):
            timer.cancel()
        watch = self._watch(namespace)
        ids = namespace is not None and who.sees_ids(namespace)
        listener = Listener(watch, who, client, last, ids)
        # If the last poll found no namespace, it may have been created since.
        again = isinstance(watch.error, NamespaceNotFoundError)
        if again:
            listener.skip(STATE)
        self._listeners[listener] = namespace
        self._each[client] += 1
        try:
            error = await self._begun(watch, again)
        except BaseException:
            self.leave(listener)
            raise
        if isinstance(error, NamespaceNotFoundError):
            self.leave(listener)
            raise error
        return listener

    def leave(self, listener: Listener) -> None:
        """Remove the listener of a stream that has ended; a second call is a no-op."""
        if listener not in self._listeners:
            return
        namespace = self._listeners.pop(listener)
        self._each[listener.client] -= 1
        if not self._each[listener.client]:
            del self._each[listener.client]
        if namespace not in self._listeners.values():
            watch = self._watches.get(namespace)
            if watch is None:
                return
            # Clients do not come back to a namespace that does not exist.
            linger = 0.0 if isinstance(watch.error, NamespaceNotFoundError) else LINGER
            timer = asyncio.get_running_loop().call_later(linger, self._forget, namespace)
            self._timers[namespace] = timer

    def watch_of(self, namespace: str) -> NamespaceWatch | None:
        """Return the watch of a namespace; None if no client has listened to it lately."""
        watch = self._watches.get(namespace)
        return watch if isinstance(watch, NamespaceWatch) else None

    def end(self) -> None:
        """End all streams, and admit no more: the service shuts down."""
        self._over = True
        for listener in list(self._listeners):
            listener.end()
        asyncio.get_running_loop().call_later(GRACE, self._cut)

    async def close(self) -> None:
        """End all streams, watches and the subscription."""
        self._over = True
        for timer in self._timers.values():
            timer.cancel()
        for listener in list(self._listeners):
            listener.end()
        closing = [self._feed.close()] if self._feed else []
        watches, self._watches, self._feed = list(self._watches.values()), {}, None
        await asyncio.gather(*closing, *(watch.close() for watch in watches), *self._ending)
        await self._statuses.close()
        await self._judge.close()

    def heard(self, channel: bytes, message: bytes) -> None:
        """Handle a message of the feed; most are of namespaces without a listener."""
        address = Address.of(channel)
        watch = self._watches.get(address.namespace) if address else None
        if address and isinstance(watch, NamespaceWatch):
            watch.heard(address, message)

    def changed(self) -> None:
        """Handle that the subscription has begun or ended: Redis is back, or unavailable."""
        why = self._feed.why if self._feed else ""
        for watch in self._watches.values():
            if isinstance(watch, NamespaceWatch):
                watch.hears(why)
            watch.poke()

    def listen_again(self) -> None:
        """Subscribe again: the master was demoted, and new connections reach another one."""
        if self._feed:
            self._feed.leave()

    def late(self, error: AckerError) -> None:
        """Handle that Redis does not answer in time."""
        for watch in self._watches.values():
            watch.late(error)

    def _admit(self, client: str) -> None:
        if self._over or len(self._listeners) >= MOST:
            raise Problem(
                503,
                "too-many-streams",
                "Service Unavailable",
                "the service is shutting down"
                if self._over
                else f"{MOST} event streams are open; poll the state",
                headers={"Retry-After": "10"},
            )
        if self._each[client] >= MAX_EACH:
            raise Problem(
                429,
                "too-many-streams",
                "Too Many Requests",
                f"{MAX_EACH} event streams of this client are open; close some, or poll the state",
                headers={"Retry-After": "10"},
            )

    def _watch(self, namespace: str | None) -> Watch:
        if self._feed is None:
            self._feed = Feed(self._client, self)
        watch = self._watches.get(namespace)
        if watch is None:
            ring = Ring(most_bytes=self._room)
            if namespace is None:
                watch = ListWatch(ring, self._judge.get)
            else:
                watch = NamespaceWatch(namespace, ring, self._statuses)
                if self._feed.tried.is_set():
                    watch.hears(self._feed.why)
            self._watches[namespace] = watch
        return watch

    async def _begun(self, watch: Watch, again: bool) -> AckerError | None:
        """Wait for the first state and the subscription: verdicts from then on are received.

        Return the error of the poll, if ``again`` of a new one; None if it takes too long.
        """
        assert self._feed  # noqa: S101 - for mypy
        error = None
        try:
            async with asyncio.timeout(FIRST):
                await watch.polled.wait()
                error = await watch.poll_again() if again else watch.error
                await self._feed.tried.wait()
        except TimeoutError:
            if isinstance(watch, NamespaceWatch):
                watch.hears(self._feed.why)
            watch.begun()
        return error

    def _room(self) -> int:
        return min(MAX_BYTES, MEMORY // max(1, len(self._watches)))

    def _forget(self, namespace: str | None) -> None:
        del self._timers[namespace]
        self._spawn(self._watches.pop(namespace).close())
        if not self._watches and self._feed:
            self._spawn(self._feed.close())
            self._feed = None

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _cut(self) -> None:
        for listener in list(self._listeners):
            if listener.cut:
                listener.cut()
