"""Objects that work in one event loop at a time, and begin again in the next one.

A program may create a client once, at the top of a module, and call ``asyncio.run()`` several
times: for each task of a queue, each invocation of a function, each test. Connections, locks and
tasks belong to the loop that made them. redis-py would keep the connections of the loop that has
ended, and its next call would raise ``Event loop is closed``.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from acker_redis.errors import ConfigError

_LOCKS = ("_lock", "_usage_lock", "_single_conn_lock", "_initialize_lock")
"""Attributes of redis-py's objects that may be locks of asyncio."""


class LoopBound:
    """Base of the objects that have state of an event loop."""

    _used_in: asyncio.AbstractEventLoop | None = None
    """The loop that has used this object last."""

    def _begin(self) -> None:
        """Drop the state of a loop that has ended."""
        raise NotImplementedError

    def _enter(self) -> None:
        """Note that the running loop uses this object; begin again if it is another one.

        Raises:
            ConfigError: The loop that has used it before is not closed.

        """
        loop = asyncio.get_running_loop()
        if loop is self._used_in:
            return
        if self._used_in is not None:
            if not self._used_in.is_closed():
                kind = type(self).__name__
                raise ConfigError(
                    f"this {kind} was used in another event loop, which is not closed: create one "
                    "in each loop, or close the other loop first"
                )
            self._begin()
        self._used_in = loop


def forget_connections(client: Any) -> None:
    """Let an asyncio client of redis-py use new connections, after the loop of the old ones ended.

    It cannot close these in the way of asyncio; but the server sees that they are shut down.
    """
    for holder in _holders(client):
        for name in _LOCKS:
            if isinstance(getattr(holder, name, None), asyncio.Lock):
                setattr(holder, name, asyncio.Lock())
        if isinstance(getattr(holder, "_condition", None), asyncio.Condition):
            holder._condition = asyncio.Condition()  # of a blocking pool
        for connection in _connections(holder):
            _shut_down(connection)
        if getattr(holder, "connection", None) is not None:
            holder.connection = None
        if hasattr(holder, "_free"):  # a node of a cluster
            holder._connections.clear()
            holder._free.clear()
        elif hasattr(holder, "_available_connections"):
            holder.reset()


def _holders(client: Any) -> Iterator[Any]:
    """Yield a client, its pool and its nodes, and those of its sentinels."""
    yield client
    pool = getattr(client, "connection_pool", None)
    if pool is not None:
        yield pool
        for sentinel in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
            yield from _holders(sentinel)
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None:
        yield nodes
        known = [*nodes.nodes_cache.values(), *nodes.startup_nodes.values()]
        yield from {id(node): node for node in known}.values()


def _connections(holder: Any) -> list[Any]:
    if hasattr(holder, "_free"):
        return list(holder._connections)
    single = getattr(holder, "connection", None)  # with single_connection_client=True
    idle, used = "_available_connections", "_in_use_connections"
    found = [*getattr(holder, idle, ()), *getattr(holder, used, ())]
    return [*found, single] if single is not None else found


def _shut_down(connection: Any) -> None:
    writer = getattr(connection, "_writer", None)
    connection._reader = connection._writer = None
    if writer is not None:
        with contextlib.suppress(OSError, RuntimeError):
            writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
