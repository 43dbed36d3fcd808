"""The HTTP server that ends streams of events first: it would wait for them otherwise."""

import socket
from collections.abc import Callable

import uvicorn


class StreamServer(uvicorn.Server):
    """A server that calls ``end`` as soon as it is told to shut down."""

    def __init__(self, config: uvicorn.Config, end: Callable[[], None]) -> None:
        super().__init__(config)
        self._end = end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let what is under way end."""
        self._end()
        await super().shutdown(sockets)
