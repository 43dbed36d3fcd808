"""Transports of ``httpx`` whose requests are children of the request in process.

**A request that fails** on its way, at once or while its response is read, fails the tree: the
service may or may not have processed it. So does a request that is cancelled.

**The service answers.** If it has the middleware, it acks or fails the request itself. If not, the
request is done when its response was closed. A status from 500 fails it: it may be that of a proxy
whose service has died. Other statuses are for the application to judge.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx

from acker_redis.integrations.http.work import TRACKED, Work, current, with_phrase
from acker_redis.protocol.texts import clipped, words
from acker_redis.trees.message_id import HEADER, MessageId

EDGE = "acker_edge"
"""The extension of a request that names its edge: ``extensions={"acker_edge": "ship"}``."""


Fails = Callable[[int], bool]


def _is_server_error(status: int) -> bool:
    return status >= 500


class TrackedTransport(httpx.BaseTransport):
    """A transport of ``httpx.Client`` that sets the header ``acker-tuple`` in each request.

    In the handler of a request with an id, each request that it sends gets a child's id. Elsewhere
    requests pass through. A redirect and a repetition are new requests.

    Args:
        transport: The transport that sends; by default an ``httpx.HTTPTransport``.
        edge: The name of the edge on which requests travel; a request's extension ``acker_edge``
            has precedence.
        fails: Returns whether a response with this status fails the request, if it comes from a
            service without the middleware; by default from 500.
        **options: The arguments of ``httpx.HTTPTransport``, such as ``verify`` and ``limits``:
            a client ignores its own if it has a transport.

    Examples:
        >>> import httpx
        >>> from acker_redis.integrations.http import TrackedTransport
        >>> client = httpx.Client(transport=TrackedTransport(edge="ship"))

    """

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        *,
        edge: str = "",
        fails: Fails = _is_server_error,
        **options: Any,
    ) -> None:
        self._transport = httpx.HTTPTransport(**options) if transport is None else transport
        self._edge, self._fails = edge, fails

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, with an id if a request with an id is in process.

        Raises:
            ClosedError: The request in process is settled.
            httpx.TransportError: As the transport that sends.

        """
        work = current.get()
        if work is None:
            return self._transport.handle_request(request)
        sent = _Sent(work, request, self._edge)
        try:
            response = self._transport.handle_request(request)
        except BaseException as error:
            sent.failed(error)
            raise
        sent.answered(response, self._fails)
        response.stream = _Body(response.stream, sent)  # type: ignore[arg-type]
        return response

    def close(self) -> None:
        """Close the transport that sends."""
        self._transport.close()


class TrackedAsyncTransport(httpx.AsyncBaseTransport):
    """A transport of ``httpx.AsyncClient``; see :class:`TrackedTransport`.

    Args:
        transport: The transport that sends; by default an ``httpx.AsyncHTTPTransport``.
        edge: The name of the edge on which requests travel.
        fails: As in :class:`TrackedTransport`.
        **options: The arguments of ``httpx.AsyncHTTPTransport``.

    """

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        edge: str = "",
        fails: Fails = _is_server_error,
        **options: Any,
    ) -> None:
        own = httpx.AsyncHTTPTransport(**options) if transport is None else transport
        self._transport = own
        self._edge, self._fails = edge, fails

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; see :meth:`TrackedTransport.handle_request`."""
        work = current.get()
        if work is None:
            return await self._transport.handle_async_request(request)
        sent = _Sent(work, request, self._edge)
        try:
            response = await self._transport.handle_async_request(request)
        except BaseException as error:
            sent.failed(error)
            raise
        sent.answered(response, self._fails)
        response.stream = _AsyncBody(response.stream, sent)  # type: ignore[arg-type]
        return response

    async def aclose(self) -> None:
        """Close the transport that sends."""
        await self._transport.aclose()


class _Sent:
    """A request that was sent, as a child of the request in process."""

    def __init__(self, work: Work, request: httpx.Request, edge: str) -> None:
        edge = request.extensions.get(EDGE, edge)
        self._work = work
        self._child: MessageId | None = work.processing.emit(edge=edge)
        self._request = request
        # This replaces an id: a handler may pass all headers of its own request on.
        request.headers[HEADER] = str(self._child)

    def failed(self, error: BaseException | str) -> None:
        self._child = None
        url = self._request.url.copy_with(query=None, username="", password="")
        why = error if isinstance(error, str) else words(error)
        self._work.failed(clipped(f"{self._request.method} {url}: {why}"))

    def answered(self, response: httpx.Response, fails: Fails) -> None:
        if TRACKED in response.headers:
            self._child = None
        elif fails(response.status_code):
            self.failed(with_phrase(response.status_code))

    def closed(self) -> None:
        if self._child is not None:
            self._work.answered(self._child)
            self._child = None


class _Body(httpx.SyncByteStream):
    """The body of a response; an error while it is read fails the request."""

    def __init__(self, stream: httpx.SyncByteStream, sent: _Sent) -> None:
        self._stream, self._sent = stream, sent

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._stream
        except GeneratorExit:
            raise  # the application needs no more of it, and closes it
        except BaseException as error:  # also a cancel, and the timeouts of gevent
            self._sent.failed(error)
            raise

    def close(self) -> None:
        self._stream.close()
        self._sent.closed()


class _AsyncBody(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, sent: _Sent) -> None:
        self._stream, self._sent = stream, sent

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield part
        except GeneratorExit:
            raise  # the application needs no more of it, and closes it
        except BaseException as error:  # also a cancel, and the timeouts of gevent
            self._sent.failed(error)
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()
        self._sent.closed()
