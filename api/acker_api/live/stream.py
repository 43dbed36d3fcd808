"""A stream of events as a response: it begins at once, and either side can end it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from acker_api.live.board import Streamed
from acker_api.live.wire import HEARTBEAT

BEAT = 15.0
"""Seconds between heartbeats; each also checks that the listener is still authorized."""
STUCK = 30.0
"""Seconds after which a client that reads nothing is disconnected."""


class EventStream(Response):
    """Sends the events of a listener, or of several.

    ``leave`` is called after the stream has ended; ``still`` returns whether it may continue.
    """

    media_type = "text/event-stream"
    charset = "utf-8"

    def __init__(
        self,
        listener: Streamed,
        leave: Callable[[], None],
        still: Callable[[], bool],
    ) -> None:
        self.status_code = 200
        self.background = None
        self._listener, self._leave, self._still = listener, leave, still
        # A proxy must neither cache, nor buffer, nor compress it.
        self.init_headers({"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_gone(receive))
        self._listener.cut = sending.cancel
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leave()
            for task in (sending, gone):
                task.cancel()
            await asyncio.wait({sending, gone})
        if not sending.cancelled() and (error := sending.exception()):
            raise error

    async def _send(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        try:
            await self._events(send)
            async with asyncio.timeout(STUCK):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, OSError):
            return  # the client reads nothing, or has disconnected

    async def _events(self, send: Send) -> None:
        loop, listener = asyncio.get_running_loop(), self._listener
        beat = loop.time() + BEAT
        while not listener.over:
            if loop.time() >= beat:
                beat = loop.time() + BEAT
                if not self._still():
                    return
                await _write(send, HEARTBEAT)
            news = listener.news
            event = listener.take()
            if event is not None:
                await _write(send, event)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout_at(beat):
                    await news.wait()


async def _write(send: Send, data: bytes) -> None:
    async with asyncio.timeout(STUCK):
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
