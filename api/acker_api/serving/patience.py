"""Connections end when a client sends no whole request in time, or does not read its answer.

Otherwise strangers could hold connections, and the memory of unread answers, before they show any
token. uvicorn closes only connections that are idle between two requests, and closing waits until
the client has read everything.

An answer waits in two places. What the kernel holds is bounded by ``SEND_BUFFER``, and the kernel
gives it up by ``TCP_USER_TIMEOUT`` (Linux), also when the service has closed the connection. The
rest is in the transport: from the moment that the kernel takes no more, the client has
``WRITE_WITHIN`` seconds for each ``PROGRESS`` bytes. The connection is reset then.
"""

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.utils import get_remote_addr

from acker_api.auth.crowd import Crowd
from acker_api.seldom import Seldom

HEAD_WITHIN = 10.0
"""Seconds for the head of a request, from when one connects or has sent the first of it."""
WRITE_WITHIN = 30.0
"""Seconds in which a client reads ``PROGRESS`` bytes of an answer, or the rest of it."""
PROGRESS = 65536
"""Bytes of an answer: a slower client than 2 KB a second is cut off."""
SEND_BUFFER = 131072
"""Bytes of an answer that the kernel holds for one connection; Linux doubles it."""


def limit_writes(listener: socket.socket) -> None:
    """Bound what the kernel holds of unread answers, for all connections of a listener."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = max(1, int(WRITE_WITHIN * 1000))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


class PatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's HTTP, with limits to how long it waits, and to how many connections are open.

    A server makes a subclass with a ``crowd`` and ``seldom`` of its own.
    """

    crowd: Crowd
    seldom: Seldom
    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _entered = False
    _client: tuple[str, int] | None = None

    def connection_made(self, transport: Any) -> None:
        """A client connects."""
        self._client = get_remote_addr(transport)
        self._entered = self.crowd.enter(self._client)
        if not self._entered:
            transport.abort()
            return
        super().connection_made(transport)
        # pause_writing() is called as soon as the kernel does not take all of an answer.
        transport.set_write_buffer_limits(high=0)
        self._look()

    def data_received(self, data: bytes) -> None:
        """Some of a request has come."""
        super().data_received(data)
        self._look()

    def pause_writing(self) -> None:
        """The kernel takes no more of an answer."""
        super().pause_writing()
        if not self._stuck:
            self._watch()

    def resume_writing(self) -> None:
        """The kernel has taken the rest of it."""
        super().resume_writing()
        self._stop_watching()

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone."""
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
        """Reset the connection unless the client has read enough since there were ``before``."""
        self._stuck = None
        left = self.transport.get_write_buffer_size()
        if left <= before - PROGRESS:
            self._watch()
            return
        self.seldom.warn("answer_not_read", client=self._client[0] if self._client else "")
        # What the kernel holds goes at once, too: close() alone would leave it to be sent.
        if found := self.transport.get_extra_info("socket"):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
