"""The one subscription of the process, to the published verdicts of all namespaces.

It subscribes to the same pattern that the ACL rule of a viewer grants, and reconnects by itself.
When no message comes it sends heartbeats, so it detects a Redis that hangs before a client asks.
"""

import asyncio
import logging
import random
import time
from contextlib import suppress
from typing import Any, Protocol

import redis.asyncio as aio
from redis.exceptions import NoPermissionError

from acker_redis.errors import AckerError, RedisRefusedError, RedisUnavailableError
from acker_redis.operate import FAILED, Event, channels, translate

log = logging.getLogger("acker_api")

PATTERN = channels(None)
QUIET = 0.4
"""Seconds without a message until a heartbeat is sent; as many more, and Redis is late."""
SILENCE = 5.0
"""Seconds without a message until the connection is closed."""
PAUSES = (0.1, 2.0)
"""Seconds between attempts to connect: the first pause, and the longest."""
STEADY = 10.0
"""Seconds after which a subscription is steady: it is renewed with the first pause."""
REFUSED_PAUSE = 30.0
"""Seconds until a retry after a missing right."""
AT_ONCE = 50
"""Messages after which other tasks run."""


class Hears(Protocol):
    """The receiver of messages and changes. Its methods must not raise."""

    def heard(self, channel: bytes, message: bytes) -> None:
        """Handle a published message."""

    def changed(self) -> None:
        """Handle that the subscription has begun or ended: see ``why``."""

    def late(self, error: AckerError) -> None:
        """Handle that Redis has not answered for a while; the subscription still exists."""


class Feed:
    """A subscription that receives until it is closed."""

    def __init__(self, client: Any, hears: Hears) -> None:
        self._client, self._hears = client, hears
        self.why = "the subscription has not begun yet"
        """Why no messages are received; '' while they are."""
        self.tried = asyncio.Event()
        """Set after the first attempt to subscribe."""
        self._left, self._begun = False, 0.0
        self._task = asyncio.create_task(self._run(), name="acker-live-feed")

    def leave(self) -> None:
        """Subscribe on a new connection: the server of this one is no longer the master."""
        self._left = True

    async def close(self) -> None:
        """End the subscription, and close its connection."""
        while not self._task.done():  # redis-py may swallow a cancellation
            self._task.cancel()
            await asyncio.wait([self._task], timeout=0.2)

    async def _run(self) -> None:
        pause = PAUSES[0]
        while True:
            try:
                await self._listen()
            except (*FAILED, AckerError, OSError, TimeoutError) as error:
                known = error if isinstance(error, AckerError) else _known(error)
                # A tenant may publish what makes Redis end the subscription again and again: then
                # it must not come back ten times per second, each time with a poll of each watch.
                if not self.why and time.monotonic() - self._begun > STEADY:
                    pause = PAUSES[0]
                if isinstance(known, RedisRefusedError):
                    pause = REFUSED_PAUSE
                self._tell(str(known))
            except Exception:
                log.exception(Event("bug", path="live"))
                self._tell("the subscription failed; the service's log has details")
                pause = PAUSES[1]
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            pause = min(2 * pause, PAUSES[1])

    def _tell(self, why: str) -> None:
        if self.tried.is_set() and self.why == why:
            return
        self.why, self._begun = why, time.monotonic()
        log.log(
            logging.WARNING if why else logging.INFO,
            Event("live_feed", state="down" if why else "up", why=why),
        )
        self.tried.set()
        self._hears.changed()

    async def _listen(self) -> None:
        self._left = False
        client = await self._any_node()
        pubsub = client.pubsub()
        try:
            await pubsub.psubscribe(PATTERN)
            while (message := await _next(pubsub, SILENCE)) is not None:
                if message["type"] == "psubscribe":
                    self._tell("")
                    await self._hear(pubsub)
            raise _silent(SILENCE)
        finally:
            with suppress(*FAILED, OSError):
                await pubsub.aclose()
            if client is not self._client:
                with suppress(*FAILED, OSError):
                    await client.aclose()

    async def _hear(self, pubsub: Any) -> None:
        heard, asked, taken = time.monotonic(), False, 0
        while True:
            message = await _next(pubsub, QUIET)
            if self._left:
                raise RedisUnavailableError("the master was demoted; the subscription reconnects")
            if message is None:
                silent = time.monotonic() - heard
                if silent > SILENCE:
                    raise _silent(SILENCE)
                if asked:
                    self._hears.late(_silent(2 * QUIET))
                else:
                    await pubsub.ping()
                    asked = True
                continue
            heard, asked, taken = time.monotonic(), False, taken + 1
            if message["type"] == "pmessage":
                self._hears.heard(message["channel"], message["data"])
            if not taken % AT_ONCE:
                await asyncio.sleep(0)

    async def _any_node(self) -> Any:
        """Return a client that can subscribe; on a cluster any node, which gets all messages."""
        if not hasattr(self._client, "get_random_node"):
            return self._client
        await self._client.initialize()
        node = self._client.get_random_node()
        return aio.Redis.from_pool(
            aio.ConnectionPool(connection_class=node.connection_class, **node.connection_kwargs)
        )


async def _next(pubsub: Any, seconds: float) -> Any:
    """Return the next message; None if none comes in time."""
    message = await pubsub.get_message(timeout=seconds)
    task = asyncio.current_task()
    if task and task.cancelling():
        # Before Python 3.12 wait_for(), which redis-py uses, may swallow a cancellation.
        raise asyncio.CancelledError
    return message


def _known(error: Exception) -> AckerError:
    if isinstance(error, NoPermissionError):
        return RedisRefusedError(
            "the service's user in Redis may not subscribe to the verdicts; acker-redis acl viewer "
            "prints the rule that allows it"
        )
    if isinstance(error, FAILED):
        return translate(error)
    return RedisUnavailableError(f"Redis did not answer: {error}; is it running and reachable?")


def _silent(seconds: float) -> RedisUnavailableError:
    return RedisUnavailableError(
        f"Redis did not answer within {seconds:g} s; is it overloaded, or out of reach?"
    )
