"""Detection of a demoted master, for a service whose calls only read.

A demoted master refuses a write, and the refusal makes the client connect again
(:meth:`acker_redis.aio.connection.AsyncConnection.leave`). Reads and subscriptions continue to
work there, with data as old as the replica's. So while the service reads, it asks one connection
for its role every five seconds. HELLO returns the role, and every role may send HELLO.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import NoPermissionError

from acker_redis.operate import FAILED

EVERY = 5.0
"""Seconds between two checks."""


class Moved:
    """Checks the role of one Redis, in one event loop; ``leave`` drops the idle connections."""

    def __init__(self, client: Any, leave: Callable[[], Awaitable[None]]) -> None:
        self._client, self._leave = client, leave
        self.listens: Callable[[], None] = _nothing
        """Called when new connections reach another master than the one that was left."""
        self._suspect = False
        # A node of a cluster answers MOVED, and a subscription works on any node.
        self._next = float("inf") if hasattr(client, "get_random_node") else _soon()
        self._task: asyncio.Task[None] | None = None

    def suspect(self) -> None:
        """Check with the next read: a server has refused a call as a demoted master does."""
        self._suspect = True
        self._next = min(self._next, time.monotonic())

    def look(self) -> None:
        """Check, if it is due; the caller does not wait."""
        if time.monotonic() >= self._next and (self._task is None or self._task.done()):
            self._next = _soon()
            self._task = asyncio.create_task(self._look(), name="acker-moved")

    async def close(self) -> None:
        """Cancel the running check."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _look(self) -> None:
        try:
            is_master = not self._suspect and await self._is_master()
            if not is_master:
                # Also after a refusal: a connection that was in use then may be idle now.
                self._suspect = True
                await self._leave()
                is_master = await self._is_master()
        except NoPermissionError:
            self._next = float("inf")  # each retry would be in Redis's log of ACLs
        except FAILED:
            return  # the reads report it
        else:
            # If the URL names a replica, or a name that still means one, the subscription stays.
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
