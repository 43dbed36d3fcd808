"""Checks before any route: the caller, its rate, the origin of the request, and its size.

A browser reports the origin of each request. A change must come from a page of this service; other
programs report no origin, and must send their token.
"""

import asyncio
import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from acker_api.auth.limits import address_of
from acker_api.auth.tokens import Who
from acker_api.http.services import Services
from acker_api.paths import PROBES, SESSION, STATIC
from acker_api.problems import Problem, too_many, unauthorized

BODY_WITHIN = 10.0
"""Timeout of the body of a request, in seconds."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing."""


class Gate:
    """Puts the caller into the scope, as ``state["who"]``: None if it is unknown."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app, self._services = app, services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why it is refused."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        who = self._services.identity.of(headers)
        scope.setdefault("state", {})["who"] = who
        try:
            if problem := await self._refusal(scope, headers, who):
                raise problem
            if scope["method"] not in SAFE:
                receive = await read_whole(headers, receive, self._services.settings.max_body)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _refusal(self, scope: Scope, headers: Headers, who: Who | None) -> Problem | None:
        path, method = scope["path"], scope["method"]
        address = address_of(scope.get("client"))
        if self._services.identity.shows_token(headers):
            name = self._services.identity.name_of_token(headers)
            if wait := self._services.failures.wait(address, name):
                return too_many(wait)
        if path in PROBES:
            return None
        client = f"token {who.name}" if who and who.name else ""
        if not who or self._services.identity.tokens.open:
            client = f"address {address}"
        # A page loads many files at once, which must not use up the requests of its caller.
        file = method in SAFE and path.startswith(STATIC)
        limiter = self._services.files if file else self._services.requests
        if wait := limiter.wait(client):
            return too_many(wait)
        if method in SAFE:
            return None
        if refused := cross_site(
            headers,
            bool(who and who.by_cookie),
            self._services.identity.by_https(scope.get("scheme", ""), headers),
        ):
            await self._services.audit.refused(who, "cross_site", "", f"{method} {path}", refused)
            return refused
        # Here and not in the route, because the body is read before the route is called.
        return None if who or path == SESSION else unauthorized()


async def read_whole(headers: Headers, receive: Receive, most: int) -> Receive:
    """Read the body, and return a callable that replays it; a Problem if it is too large."""
    told, chunks, size, more = headers.get("content-length", ""), [], 0, True
    if told.isdigit() and int(told[:20]) > most:
        raise too_large(most)
    end = asyncio.get_running_loop().time() + BODY_WITHIN
    while more:
        try:
            async with asyncio.timeout_at(end):
                message = await receive()
        except TimeoutError:
            raise Problem(
                408,
                "too-slow",
                "Request Timeout",
                f"the body did not arrive within {BODY_WITHIN:g} s; send it faster",
            ) from None
        if message["type"] != "http.request":
            raise Problem(400, "broken-off", "Bad Request", "the client closed it before its end")
        chunks.append(message.get("body", b""))
        size, more = size + len(chunks[-1]), message.get("more_body", False)
        if size > most:
            raise too_large(most)
    whole: list[Message] = [{"type": "http.request", "body": b"".join(chunks)}]

    async def replay() -> Message:
        return whole.pop() if whole else await receive()

    return replay


def too_large(most: int) -> Problem:
    """Return the problem of a body with more bytes than allowed."""
    return Problem(413, "body-too-large", "Content Too Large", f"the limit is {most} bytes")


def cross_site(headers: Headers, compulsory: bool, https: bool = False) -> Problem | None:
    """Return why a change is refused: a page of another origin may have sent it; None if allowed.

    ``compulsory``: a browser has sent a cookie with it, so the origin must be known. Browsers that
    send no ``Sec-Fetch-Site`` send an ``Origin`` with every method but GET.

    ``https``: the browser is known to have come by https. Then a page that was loaded by http is
    another origin, because others on the network may have changed it. Otherwise a proxy may have
    terminated TLS, and only the scheme of the page says how the browser came.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        ours = site == "same-origin"
    elif origin is not None:
        scheme = origin.partition("://")[0].lower()
        ours = scheme in (("https",) if https else ("https", "http")) and (
            bool(host := _authority(origin))
            and host == _authority(f"{scheme}://{headers.get('host', '')}")
        )
    else:
        ours = not compulsory
    if ours:
        return None
    return Problem(
        403,
        "cross-site",
        "Forbidden",
        "the request comes from a page of another origin, which may change nothing; a program must "
        "send its token as Authorization: Bearer TOKEN, and no cookie, Origin or Sec-Fetch-Site",
    )


_ORIGIN = re.compile(
    r"https?://(\[[0-9a-f:.]+\]|[^\[\]:@/?#\\\s]+)(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE
)


def _authority(url: str) -> tuple[str, int] | None:
    """Return host and port of an origin; None for ``null`` and for an invalid origin."""
    if not _ORIGIN.fullmatch(url):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and port else None
