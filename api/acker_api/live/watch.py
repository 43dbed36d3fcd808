"""Boards that follow Redis: one namespace, or the list of all. One poll serves all listeners."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from acker_api.live.board import HELLO, STATE, Board, Listener
from acker_api.live.ring import Ring
from acker_api.live.verdicts import Address, Gathering, tag_of
from acker_api.live.wire import frame, pack
from acker_api.problems import INTERNAL, Problem, of_error
from acker_api.reading.kept import KeptEach
from acker_api.reading.overview import Judged
from acker_redis.errors import AckerError, NamespaceNotFoundError
from acker_redis.operate import Event
from acker_redis.operate.status import NamespaceStatus

log = logging.getLogger("acker_api")

PERIOD = 1.0
"""Seconds between two states."""
AGAIN = 0.1
"""Minimum number of seconds between two polls, also if poked."""
BATCH = 0.1
"""Minimum number of seconds between two events of verdicts."""
RETRY_MS = 2000
"""Milliseconds after which a browser connects again."""


class Watch(ABC, Board):
    """A board that polls until it is closed."""

    def __init__(self, ring: Ring) -> None:
        super().__init__(ring)
        self.error: AckerError | None = None
        """Why the last poll failed."""
        self.polled = asyncio.Event()
        """Set after the first poll."""
        self._poked = asyncio.Event()
        self._asked: list[asyncio.Future[AckerError | None]] = []
        self._well = False
        self._task = asyncio.create_task(self._run(), name="acker-live-watch")

    def poke(self) -> None:
        """Poll now."""
        self._poked.set()

    async def poll_again(self) -> AckerError | None:
        """Poll now; return the error of the first poll that begins after this call, None if none.

        A poll that is running may have read before.
        """
        answer: asyncio.Future[AckerError | None] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self.poke()
        return await answer

    def late(self, error: AckerError) -> None:
        """Report that Redis is late, unless a problem is reported already."""
        if self._well:
            self._problem(of_error(error))

    async def close(self) -> None:
        """Stop polling."""
        self._task.cancel()
        await asyncio.wait([self._task])

    @abstractmethod
    def begun(self) -> None:
        """Send hello: the first poll has ended, or takes too long."""

    @abstractmethod
    async def _poll(self) -> float:
        """Read, and show; return the seconds until the next poll. Raises AckerError."""

    async def _run(self) -> None:
        while True:
            begun, period = time.monotonic(), PERIOD
            asked, self._asked = self._asked, []
            error: AckerError | None = None
            self._poked.clear()
            try:
                period = await self._poll()
                self.error, self._well = None, True
            except AckerError as failed:
                self.error = error = failed
                self._problem(of_error(failed))
            except Exception:
                log.exception(Event("bug", path="live"))
                self._problem(INTERNAL)
            if not self.polled.is_set():
                self.polled.set()
                self.begun()
            for answer in asked:
                if not answer.done():
                    answer.set_result(error)
            await asyncio.sleep(AGAIN)
            rest = period - (time.monotonic() - begun)
            if rest > 0 and not self._poked.is_set():
                try:
                    async with asyncio.timeout(rest):
                        await self._poked.wait()
                except TimeoutError:
                    pass

    def _problem(self, problem: Problem) -> None:
        self._well = False
        self._show(STATE, "problem", pack(problem.body()))

    def _show(self, kind: str, event: str, data: str, **more: Any) -> None:
        encoded = frame(event, data, **more)
        self.show(kind, lambda listener: encoded)


class NamespaceWatch(Watch):
    """A namespace: its state, and its verdicts."""

    def __init__(self, namespace: str, ring: Ring, statuses: KeptEach[NamespaceStatus]) -> None:
        self._namespace, self._statuses = namespace, statuses
        self._edges: tuple[str, ...] = ()
        self._gathering = Gathering()
        self._feed_tag = ""
        """The tag of the namespace; '' before it was read, and while it does not exist."""
        self._flush: asyncio.TimerHandle | None = None
        self._flushed = 0.0
        self._ahead_ms = 0.0
        """Redis's clock minus the clock of this process, in ms."""
        self._begun = time.time()
        self._publishes = True
        self._deaf: str | None = None
        """Why no verdicts are received; '' while they are received, None if unknown yet."""
        self._greeted = ""
        super().__init__(ring)

    @property
    def since_ms(self) -> int:
        """When this watch began, by Redis's clock: earlier verdicts are not in its ring."""
        return round(1000 * self._begun + self._ahead_ms)

    def heard(self, address: Address, message: bytes) -> None:
        """Handle a verdict that was published, unless another namespace of this name did that."""
        if tag_of(message) not in (None, self._feed_tag):
            return
        at_ms = round(1000 * time.time() + self._ahead_ms)
        if self._gathering.add(address, message, at_ms) and self._gathering and not self._flush:
            wait = max(0.0, self._flushed + BATCH - time.monotonic())
            self._flush = asyncio.get_running_loop().call_later(wait, self._tell_gathered)

    def hears(self, why: str) -> None:
        """Set why no verdicts are received; '' while they are."""
        if not why and self._deaf and self.polled.is_set():
            self._gap("the subscription was interrupted")
        self._deaf = why
        if self.polled.is_set():
            self.begun()

    async def close(self) -> None:
        """Stop polling."""
        if self._flush:
            self._flush.cancel()
        await super().close()

    async def _poll(self) -> float:
        try:
            status = await self._statuses.get(self._namespace)
        except NamespaceNotFoundError:
            self._feed_tag = ""
            raise
        self._ahead_ms = status.shards[0].now_ms - 1000 * time.time()
        self._edges = self._gathering.edges = tuple(status.config.edges)
        if self._feed_tag not in ("", status.feed_tag):
            self._gap("the namespace was created again")
        self._feed_tag = status.feed_tag
        if status.config.publish != self._publishes:
            self._publishes = status.config.publish
            if self.polled.is_set():
                self.begun()
        self._show(STATE, "status", status.model_dump_json())
        return PERIOD

    def begun(self) -> None:
        """Send hello, unless its content is the same as before."""
        if self._deaf is None:
            return
        why = self._deaf
        if not self._publishes:
            why = "the namespace has publish=no; GET outcomes has the untaken verdicts"
        data = pack({"live": not why, "why": why, "namespace": self._namespace})
        if data == self._greeted:
            return
        self._greeted = data
        # With an id, so that a client that has received no verdict yet can resume too.
        self.show(HELLO, lambda listener: frame("hello", data, listener.id, RETRY_MS))

    def _gap(self, why: str) -> None:
        text = f"{why}; GET outcomes has the untaken verdicts"
        self.tell("gap", pack({"missed": None, "why": text}))

    def _tell_gathered(self) -> None:
        self._flush, self._flushed = None, time.monotonic()
        gathered, self._gathering = self._gathering, Gathering(self._edges)
        self.tell("outcome", gathered.data(ids=True), gathered.data(ids=False))


class ListWatch(Watch):
    """All namespaces; each listener sees those that it may see."""

    def __init__(self, ring: Ring, judge: Callable[[], Awaitable[Judged]]) -> None:
        self._judge = judge
        super().__init__(ring)

    def begun(self) -> None:
        """Say hello."""
        self._show(HELLO, "hello", pack({"live": True, "why": ""}), retry_ms=RETRY_MS)

    async def _poll(self) -> float:
        judged = await self._judge()
        # Listeners that may see the same namespaces get the same bytes.
        made: dict[Sequence[str] | None, bytes] = {}

        def shown(listener: Listener) -> bytes:
            who = listener.who
            if who.namespaces not in made:
                mine = (row for row in judged.rows if who.sees(row["name"]))
                made[who.namespaces] = frame("namespaces", pack(judged.body(mine)))
            return made[who.namespaces]

        self.show(STATE, shown)
        return judged.every
