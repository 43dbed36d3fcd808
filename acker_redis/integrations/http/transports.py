"""Transports of ``httpx`` whose requests are children of the request in process.

**A request that fails** on its way, at once or while its response is read, fails the tree: the
service may or may not have processed it. So does a request that is cancelled.

**The service answers.** If it has the middleware, it acks or fails the request itself. If not, the
request is done when its response was closed. A status from 500 fails it: it may be that of a proxy
whose service has died. Other statuses are for the application to judge.

**Hosts.** Who has an id can ack it. So only the hosts in ``hosts`` get ids, and only they can say
that they have the middleware. All others are services without it. There is no default: with all
hosts, the APIs of others would get ids; with none, a tree would not wait for what a service does
after its response.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import httpx

from acker_redis.integrations.core.work import Work, current
from acker_redis.integrations.http.hosts import Hosts
from acker_redis.integrations.http.work import REFUSED, TRACKED, Request, with_phrase
from acker_redis.protocol.texts import clipped, words
from acker_redis.trees.message_id import HEADER, MessageId

EDGE = "acker_edge"
"""The extension of a request that names its edge: ``extensions={"acker_edge": "ship"}``."""


Fails = Callable[[int], bool]


def _is_server_error(status: int) -> bool:
    return status >= 500


class TrackedTransport(httpx.BaseTransport):
    """A transport of ``httpx.Client`` that sets the header ``acker-tuple`` in each request.

    In the handler of a request with an id, each request that it sends is a child, and has an id if
    its host is one of ``hosts``. Elsewhere requests pass through. A redirect and a repetition are
    new requests.

    Args:
        transport: The transport that sends; by default an ``httpx.HTTPTransport``.
        hosts: The names of the hosts that get ids: those of services with the middleware, and of
            services that pass ids on. ``*.example.com`` stands for all names below
            ``example.com``, and ``*`` for all hosts.
        edge: The name of the edge on which requests travel; a request's extension ``acker_edge``
            has precedence.
        fails: Returns whether a response with this status fails the request, if it comes from a
            service without the middleware; by default from 500.
        **options: The arguments of ``httpx.HTTPTransport``, such as ``verify`` and ``limits``:
            a client ignores its own if it has a transport.

    Raises:
        ConfigError: An item of ``hosts`` is no name of a host.

    Examples:
        >>> import httpx
        >>> from acker_redis.integrations.http import TrackedTransport
        >>> client = httpx.Client(transport=TrackedTransport(hosts=["shipping"], edge="ship"))

    """

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        *,
        hosts: Iterable[str],
        edge: str = "",
        fails: Fails = _is_server_error,
        **options: Any,
    ) -> None:
        self._transport = httpx.HTTPTransport(**options) if transport is None else transport
        self._hosts, self._edge, self._fails = Hosts(hosts), edge, fails

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, with an id if a request with an id is in process.

        Raises:
            ClosedError: The request in process is settled.
            httpx.TransportError: As the transport that sends.

        """
        work = current(Request)
        if work is None:
            return self._transport.handle_request(request)
        sent = _Sent(work, request, self._edge, trusted=request.url in self._hosts)
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
        hosts: As in :class:`TrackedTransport`.
        edge: The name of the edge on which requests travel.
        fails: As in :class:`TrackedTransport`.
        **options: The arguments of ``httpx.AsyncHTTPTransport``.

    Raises:
        ConfigError: An item of ``hosts`` is no name of a host.

    """

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        hosts: Iterable[str],
        edge: str = "",
        fails: Fails = _is_server_error,
        **options: Any,
    ) -> None:
        own = httpx.AsyncHTTPTransport(**options) if transport is None else transport
        self._transport = own
        self._hosts, self._edge, self._fails = Hosts(hosts), edge, fails

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; see :meth:`TrackedTransport.handle_request`."""
        work = current(Request)
        if work is None:
            return await self._transport.handle_async_request(request)
        sent = _Sent(work, request, self._edge, trusted=request.url in self._hosts)
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

    def __init__(
        self, work: Work[Request], request: httpx.Request, edge: str, *, trusted: bool
    ) -> None:
        edge = request.extensions.get(EDGE, edge)
        self._work = work
        self._child: MessageId | None = work.emit(edge=edge)
        self._request = request
        self._trusted = trusted
        # A handler, or a redirect, may pass all headers of its own request on.
        if trusted:
            request.headers[HEADER] = str(self._child)  # in place of all others of this name
        else:
            request.headers.pop(HEADER, None)

    def failed(self, error: BaseException | str) -> None:
        self._child = None
        url = self._request.url.copy_with(query=None, username="", password="")
        why = error if isinstance(error, str) else words(error)
        self._work.failed(clipped(f"{self._request.method} {url}: {why}"))

    def answered(self, response: httpx.Response, fails: Fails) -> None:
        mark = response.headers.get(TRACKED) if self._trusted else None
        if mark == REFUSED:
            self.failed(with_phrase(response.status_code))
        elif mark is not None:
            self._child = None
        elif fails(response.status_code):
            self.failed(with_phrase(response.status_code))
        if response.is_closed:  # a cache, or httpx.MockTransport, has read it
            self.closed()

    def closed(self) -> None:
        if self._child is not None:
            self._work.keep(self._child)
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
