"""Timeouts of connections: for requests that do not arrive, and answers that are not read.

Without them, clients without a token could hold connections, and the memory of unread answers.
uvicorn closes only connections that are idle between two requests, and its close waits until the
client has read everything.

An unread answer waits in two buffers. The buffer of the kernel is bounded by ``SEND_BUFFER``. The
kernel drops it after ``TCP_USER_TIMEOUT`` (Linux), even if the service has closed the connection.
The rest is in the transport. As soon as the kernel accepts no more, the client has
``WRITE_WITHIN`` seconds for each ``PROGRESS`` bytes. Otherwise the connection is reset.
"""

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.utils import get_remote_addr

from acker_api.auth.crowd import Crowd
from acker_api.limited_log import LimitedLog

HEAD_WITHIN = 10.0
"""Seconds for the head of a request, from the connect or from its first byte."""
WRITE_WITHIN = 30.0
"""Seconds in which a client must read ``PROGRESS`` bytes of an answer, or the rest of it."""
PROGRESS = 65536
"""Bytes of an answer: a client that is slower than 2 KB per second is disconnected."""
SEND_BUFFER = 131072
"""Bytes of an answer that the kernel buffers for one connection; Linux doubles it."""


def limit_writes(listener: socket.socket) -> None:
    """Bound the kernel's buffer of unread answers, for all connections of a listener."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = max(1, int(WRITE_WITHIN * 1000))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


class PatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's HTTP protocol, with timeouts and a limit on open connections.

    A server makes a subclass with its own ``crowd`` and ``limited_log``.
    """

    crowd: Crowd
    limited_log: LimitedLog
    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _entered = False
    _client: tuple[str, int] | None = None

    def connection_made(self, transport: Any) -> None:
        """Accept a client, or close the connection if there are too many."""
        self._client = get_remote_addr(transport)
        self._entered = self.crowd.enter(self._client)
        if not self._entered:
            transport.abort()
            return
        super().connection_made(transport)
        # asyncio calls pause_writing() as soon as the kernel does not accept all of an answer.
        transport.set_write_buffer_limits(high=0)
        self._look()

    def data_received(self, data: bytes) -> None:
        """Process a part of a request."""
        super().data_received(data)
        self._look()

    def pause_writing(self) -> None:
        """Start the timeout: the kernel accepts no more of an answer."""
        super().pause_writing()
        if not self._stuck:
            self._watch()

    def resume_writing(self) -> None:
        """Stop the timeout: the kernel has accepted the rest."""
        super().resume_writing()
        self._stop_watching()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after a client that has disconnected."""
        if not self._entered:
            return
        self.crowd.leave(self._client)
        if self._late:
            self._late.cancel()
        self._stop_watching()
        super().connection_lost(exc)

    @property
    def _waits(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _look(self) -> None:
        if not self._waits and self._late:
            self._late.cancel()
            self._late = None
        elif self._waits and not self._late:
            self._late = asyncio.get_running_loop().call_later(HEAD_WITHIN, self._end)

    def _end(self) -> None:
        self._late = None
        if self._waits and not self.transport.is_closing():
            self.transport.close()

    def _watch(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stuck = asyncio.get_running_loop().call_later(WRITE_WITHIN, self._judge, left)

    def _stop_watching(self) -> None:
        if self._stuck:
            self._stuck.cancel()
            self._stuck = None

    def _judge(self, before: int) -> None:
        """Reset the connection unless enough was read since ``before`` bytes were left."""
        self._stuck = None
        left = self.transport.get_write_buffer_size()
        if left <= before - PROGRESS:
            self._watch()
            return
        self.limited_log.warn("answer_not_read", client=self._client[0] if self._client else "")
        # Discard the kernel's buffer as well: after close() alone the kernel would still send it.
        if found := self.transport.get_extra_info("socket"):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
