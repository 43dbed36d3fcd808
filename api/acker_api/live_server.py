"""The HTTP server that ends streams of events first: it would wait for them otherwise."""

import socket
from collections.abc import Callable
from types import FrameType

import uvicorn


class StreamServer(uvicorn.Server):
    """A server that calls ``end`` as soon as it is told to shut down."""

    def __init__(self, config: uvicorn.Config, end: Callable[[], None]) -> None:
        super().__init__(config)
        self._end = end
        self.passes_over: frozenset[int] = frozenset()
        """Signals that do not end it."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal has come."""
        if sig not in self.passes_over:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let what is under way end."""
        self._end()
        await super().shutdown(sockets)
