"""Notices that the master was demoted, for a service whose calls only read.

A write to a demoted master is refused, and the refusal makes the client connect again
(:meth:`acker_redis.aio.connection.AsyncConnection.leave`). Reads and subscriptions go on there,
with data as old as the replica's. So while the service reads, it asks one connection for its role
every five seconds. HELLO tells it, and every role may send HELLO.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import NoPermissionError

from acker_redis.transport.errors import FAILED

EVERY = 5.0
"""Seconds between two looks."""


class Moved:
    """Looks at one Redis, in one event loop; ``leave`` drops the connections that are idle."""

    def __init__(self, client: Any, leave: Callable[[], Awaitable[None]]) -> None:
        self._client, self._leave = client, leave
        self.listens: Callable[[], None] = _nothing
        """Called when new connections reach another master than the one that was left."""
        self._suspect = False
        # A cluster's nodes answer MOVED; a subscription is on any of them.
        self._next = float("inf") if hasattr(client, "get_random_node") else _soon()
        self._task: asyncio.Task[None] | None = None

    def suspect(self) -> None:
        """A server has refused a call as a demoted master does: look with the next read."""
        self._suspect = True
        self._next = min(self._next, time.monotonic())

    def look(self) -> None:
        """Look, if it is time to; the caller does not wait."""
        if time.monotonic() >= self._next and (self._task is None or self._task.done()):
            self._next = _soon()
            self._task = asyncio.create_task(self._look(), name="acker-moved")

    async def close(self) -> None:
        """End what is under way."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _look(self) -> None:
        try:
            is_master = not self._suspect and await self._is_master()
            if not is_master:
                # Also after a refusal: a connection that was in use then has been given back since.
                self._suspect = True
                await self._leave()
                is_master = await self._is_master()
        except NoPermissionError:
            self._next = float("inf")  # asked again, each look would be in Redis's log of ACLs
        except FAILED:
            return  # who reads is told so
        else:
            # A URL that names a replica, or a name that has yet to move: the subscription stays.
            if self._suspect and is_master:
                self._suspect = False
                self.listens()

    async def _is_master(self) -> bool:
        reply = await self._client.execute_command("HELLO")
        fields = (
            reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
        )
        return fields.get(b"role") == b"master"


def _soon() -> float:
    return time.monotonic() + EVERY


def _nothing() -> None:
    pass
