"""Connections on which no request comes to its end are closed: else strangers could take them all.

What uvicorn brings closes those that are idle between two requests, and no others.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_WITHIN = 10.0
"""Seconds for the head of a request, from when one connects or has sent the first of it."""


class PatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's HTTP, with a limit to how long it waits for a request."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Somebody connects."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """Some of a request has come."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone."""
        if self._late:
            self._late.cancel()
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
