"""Sends commands to the masters of a cluster, for asyncio.

redis-py's client of a cluster holds up all its callers while one master hangs: after a call without
a reply it reads the slots again before the next command of any task, and asks its default node for
the list of commands. If that is the node that hangs, no command succeeds, and the connections to
the other nodes are closed. So calls of one key go to the node itself. The client gets only those
that a node refuses because another one may serve the slot.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Sequence
from typing import Any

from redis.asyncio.cluster import PipelineCommand

from acker_redis.transport.clients import node_of
from acker_redis.transport.errors import FAILED, is_redirection


class Nodes:
    """The masters of a cluster, as a client of redis-py knows them."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._manager = client.nodes_manager
        self._refresh: asyncio.Task[None] | None = None

    async def of(self, key: Any) -> Any:
        """Return the master of a key; None if no node serves it."""
        if not self._manager.slots_cache:
            await self._manager.initialize()
        return node_of(self._client, key)

    async def execute(self, key: Any, *args: Any) -> Any:
        """Send a command to the master of a key, and return the reply."""
        node = await self.of(key)
        if node is not None:
            try:
                return await node.execute_command(*args)
            except FAILED as error:
                if not is_redirection(error):
                    self.refresh(node)
                    raise
        return await self._client.execute_command(*args)

    async def pipeline(self, node: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands to a node in one pipeline; return the replies, with errors in place."""
        sent = [PipelineCommand(number, *command) for number, command in enumerate(commands)]
        try:
            if await node.execute_pipeline(sent):
                self.refresh(node)
        except FAILED:
            self.refresh(node)
            raise
        return [each.result for each in sent]

    def refresh(self, failed: Any) -> None:
        """Read the slots again in the background: a replica may have been promoted."""
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.create_task(self._read_slots(failed), name="acker-slots")

    async def close(self) -> None:
        """Cancel the task in the background."""
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.wait([self._refresh])

    async def _read_slots(self, failed: Any) -> None:
        read = self._manager.initialize
        options = {}
        if "last_failed_node_name" in inspect.signature(read).parameters:
            options = {"last_failed_node_name": failed.name}  # ask that one last
        with contextlib.suppress(*FAILED):
            await read(**options)
