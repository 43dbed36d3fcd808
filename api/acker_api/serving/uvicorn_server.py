"""The HTTP server. At shutdown it ends the streams of events first: uvicorn would wait for them.

When descriptors run out, asyncio would log a traceback for each connection that it cannot accept,
thousands per second. This server logs one line in ten seconds, and asyncio retries after a second.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from acker_api.limited_log import LimitedLog

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of accept() after which asyncio waits a second by itself."""

CLOSED = "Invalid file descriptor: -1"
"""What asyncio says of a closed socket."""


class StreamServer(uvicorn.Server):
    """A server that calls ``end`` at the begin of its shutdown."""

    def __init__(
        self, config: uvicorn.Config, end: Callable[[], None], limited_log: LimitedLog | None = None
    ) -> None:
        super().__init__(config)
        self._end, self._limited_log = end, limited_log or LimitedLog()
        self.passes_over: frozenset[int] = frozenset()
        """Signals that do not end the server."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if sig not in self.passes_over:
            super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        asyncio.get_running_loop().set_exception_handler(self.on_loop_error)
        await super().startup(sockets)

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what the event loop reports."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in EXHAUSTED and "socket" in context:
            self._limited_log.warn("cannot_accept", why=error.strerror)
        elif self.should_exit and isinstance(error, ValueError) and CLOSED in str(error):
            pass  # asyncio retries accept() on the socket that the shutdown has closed
        else:
            loop.default_exception_handler(context)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, and let running requests end."""
        self._end()
        await super().shutdown(sockets)
