"""Around every request: the Host header, security headers, errors nobody expected, access log.

Plain ASGI, so that a stream of events passes through as it comes.
"""

import logging
import time
from collections.abc import Mapping
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from acker_api.auth.hosts import Hosts
from acker_api.auth.limits import Limiter, address_of
from acker_api.paths import PROBES
from acker_api.problems import INTERNAL, Problem, too_many
from acker_redis.logs import Event

log = logging.getLogger("acker_api")
access_log = logging.getLogger("acker_api.access")

CSP = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PAGE_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
"""For pages: what they load is served from here, and nothing is written into them."""
HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CSP,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_FOREIGN = Problem(
    421,
    "unknown-host",
    "The service does not go by this name",
    "ask for 127.0.0.1 or localhost, or add the name to ACKER_REDIS_API_ALLOWED_HOSTS",
)


LONGEST = 300
"""Characters of a path in a log."""


def shown(path: str) -> str:
    r"""A path, or a method, as it stands in a log: quoted, and cut off where it is long.

    >>> shown("/a b"), len(shown("/" + "\xfc" * 60_000))
    ('/a%20b', 301)
    """
    quoted = quote(path[:LONGEST], errors="replace")
    return quoted if len(quoted) <= LONGEST and len(path) <= LONGEST else f"{quoted[:LONGEST]}…"


class Guard:
    """The outermost layer of the app."""

    def __init__(self, app: ASGIApp, hosts: Hosts, requests: Limiter) -> None:
        self._app, self._hosts, self._requests = app, hosts, requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.monotonic(), 0
        path: str = scope["path"]

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if (
                    headers.get("content-type", "").startswith("text/html")
                    and headers["Content-Security-Policy"] == CSP
                ):  # the dashboard has a stricter one of its own
                    headers["Content-Security-Policy"] = PAGE_CSP
            await send(message)

        try:
            if self._hosts.allow(Headers(scope=scope).get("host", "")):
                await self._app(scope, receive, guarded)
            else:
                # Not from the requests of the address: a page elsewhere may send these.
                wait = self._requests.wait(f"foreign {address_of(scope.get('client'))}")
                problem = too_many(wait) if wait else _FOREIGN
                await problem.response()(scope, receive, guarded)
        except Exception:
            log.exception(Event("bug", method=shown(scope["method"]), path=shown(path)))
            if status:  # it has begun to answer: all that can be said now is that it broke off
                raise
            await INTERNAL.response()(scope, receive, guarded)
        finally:
            _log(scope, status, 1000 * (time.monotonic() - begun))


def _log(scope: Scope, status: int, ms: float) -> None:
    path, client = scope["path"], scope.get("client")
    # Probes are logged only when they fail.
    level = logging.DEBUG if path in PROBES and status < 400 else logging.INFO
    # Never the query or a header: a token may be in them.
    who = scope.get("state", {}).get("who")
    event = Event(
        "request",
        client=client[0] if client else "",
        who=who.name if who else "",
        method=shown(scope["method"]),
        path=shown(path),
        status=status,
        ms=round(ms, 1),
    )
    access_log.log(level, event)
