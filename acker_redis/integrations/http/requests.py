"""An ASGI middleware that acks a request when it is processed, and fails it otherwise.

**Order of events**: the id is read from the header; the application runs, and sends its response
and what follows it, such as Starlette's background tasks; then the row goes into the buffer of the
producer. A process that dies before the row is sent leaves a tree that expires.
A proxy that retries is a second delivery: see :mod:`acker_redis.integrations.core`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from acker_redis.aio.bolt import AsyncCurrent, AsyncHandle
from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.producer import AsyncProducer
from acker_redis.arguments import check_is
from acker_redis.errors import AckerError, ConfigError, InvalidBatchError
from acker_redis.integrations.core.work import Work, current
from acker_redis.integrations.http.work import REFUSED, TRACKED, Request, with_phrase
from acker_redis.protocol.texts import clipped
from acker_redis.trees.message_id import MessageId

log = logging.getLogger(__name__)

MAX_TREES = 100
"""Trees that a request may belong to by default: Redis takes some 7 microseconds for each."""
LINGER = 0.05
"""Seconds that a row waits for others: a batch for each request would cost a tenth of a request."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_MARK = (TRACKED.encode(), b"yes")
_SEEN = "acker_redis.tracked"
"""The key of a scope that has passed a middleware: a mounted application may have another."""
_BODY = {f"http.response.{kind}" for kind in ("body", "pathsend", "zerocopysend")}
_CUT = "its response ended early: the client has gone, or the application has"


class TrackedRequests:
    """An ASGI middleware that acks or fails the requests that have an id.

    It works with FastAPI, Starlette, and other ASGI frameworks. A request with the header
    ``acker-tuple`` is acked when the application has returned, its background tasks included. It
    fails if the application raises, with the words of the exception; if the client disconnects and
    the application is cancelled, or its response ends early; and if the status of the response is
    an error. Requests without the header pass through. A malformed header, or one with more than
    ``max_trees`` ids, is answered with status 400.

    Requests that the application sends with a :class:`TrackedAsyncTransport` or a
    :class:`TrackedTransport` are children. It must await their responses before it returns.

    The rows are sent in the background, and those that are left when the server sends the lifespan
    event ``shutdown``. A server without lifespan events loses them, and their trees expire.

    Args:
        app: The application.
        acker: The client of the namespace.
        fails: Returns whether a response with this status fails the request; by default from 400.
        max_trees: Maximum number of trees that a request belongs to.

    Raises:
        ConfigError: ``acker`` is no AsyncAcker, or ``max_trees`` no positive number.

    Examples:
        >>> from acker_redis.integrations.http import TrackedRequests
        >>> async def app(scope, receive, send):
        ...     await send({"type": "http.response.start", "status": 204})
        ...     await send({"type": "http.response.body"})
        >>> tracked = TrackedRequests(app, AsyncAcker.from_url(url, "orders"))

    """

    def __init__(
        self,
        app: App,
        acker: AsyncAcker,
        *,
        fails: Callable[[int], bool] = lambda s: s >= 400,
        max_trees: int = MAX_TREES,
    ) -> None:
        check_is(acker, AsyncAcker, "TrackedRequests")
        if type(max_trees) is not int or max_trees < 1:
            raise ConfigError(f"max_trees is a whole number of at least 1, not {max_trees!r}")
        self.app = app
        self.acker = acker
        self._fails, self._max_trees = fails, max_trees
        self._sink: AsyncProducer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI defines it."""
        if scope["type"] == "lifespan":
            self._sink = None  # perhaps the application starts again: that of before is closed
            await self.app(scope, receive, self._closing(send))
            return
        ids = MessageId()
        if scope["type"] == "http" and _SEEN not in scope:
            try:
                ids = MessageId.from_headers(scope["headers"])
            except InvalidBatchError as error:
                await _refuse(send, str(error))
                return
            if len(ids) > self._max_trees:
                most = f"a request belongs to at most {self._max_trees} trees, not {len(ids)}"
                await _refuse(send, f"{most}; max_trees of TrackedRequests is the limit")
                return
        if ids:
            scope[_SEEN] = True
            await self._process(ids, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _process(self, ids: MessageId, scope: Message, receive: Receive, send: Send) -> None:
        await self.acker.fresh_ids()
        work = Work(Request(self._producer()), ids, lambda: self.acker.flows.ids)
        status, ended = 0, False

        async def answer(message: Message) -> None:
            nonlocal status, ended
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), _MARK]}
            await send(message)
            if message["type"] in _BODY:
                ended = not message.get("more_body", False)

        try:
            with work:
                await self.app(scope, receive, answer)
            if not status or self._fails(status):
                work.failed(_why(scope, status))
            elif not ended:
                work.failed(clipped(f"{scope['method']} {scope['path']}: {_CUT}"))
        except BaseException as error:
            work.failed(error)
            raise
        finally:
            work.returned()
            await self._settle(work)

    async def _settle(self, work: Work[Request]) -> None:
        try:
            # A failure must not wait: the task may be cancelled.
            await self._producer().add(work.rows(), wait=work.error is None)
        except AckerError as error:
            log.warning("a request is neither acked nor failed, its tree expires: %s", error)

    def _producer(self) -> AsyncProducer:
        """Return the producer of this start of the application, in the running event loop."""
        loop = asyncio.get_running_loop()
        if self._sink is None or self._loop is not loop:
            self._sink, self._loop = AsyncProducer(self.acker, linger=LINGER), loop
        return self._sink

    def _closing(self, send: Send) -> Send:
        """Return a ``send`` that closes the producer when the application has shut down.

        It may start again, as in tests, perhaps in another event loop. So the connections of this
        loop are closed, too.
        """

        async def sending(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown."):
                try:
                    if self._sink is not None and self._loop is asyncio.get_running_loop():
                        await self._sink.close()
                except AckerError as error:
                    log.warning("rows had no reply when the server ended: %s", error)
                await self.acker.close()
            await send(message)

        return sending


def current_handle() -> AsyncHandle:
    """Return the handle of the request in process, for ``await .reset_timeout()`` or ``.fail()``.

    Raises:
        ConfigError: No request with an id is in process in this context.

    """
    work = current(Request)
    if work is None:
        raise ConfigError("current_handle() is for the handler of a request with an id")
    return AsyncCurrent(work.processing, work.message.sink)


def _why(scope: Message, status: int) -> str:
    if not status:
        return clipped(f"{scope['method']} {scope['path']}: no response")
    return clipped(f"{scope['method']} {scope['path']}: {with_phrase(status)}")


async def _refuse(send: Send, why: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (_MARK[0], REFUSED.encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": f"Bad request: {why}".encode()})
