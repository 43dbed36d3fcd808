"""The outermost middleware: Host header, security headers, unexpected errors, access log.

It is plain ASGI, so that a stream of events passes without buffering.
"""

import logging
import time
from collections.abc import Mapping
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from acker_api.auth.hosts import Hosts
from acker_api.auth.limits import Limiter, address_of
from acker_api.limited_log import LimitedLog
from acker_api.paths import PROBES, STATIC
from acker_api.problems import INTERNAL, Problem, too_many
from acker_redis.operate import Event

log = logging.getLogger("acker_api")
access_log = logging.getLogger("acker_api.access")

CSP = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PAGE_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
"""For pages: they load files of this service only, and inline scripts are refused."""
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
    "Misdirected Request",
    "the service does not accept this host name; use 127.0.0.1 or localhost, or add the name to "
    "ACKER_REDIS_API_ALLOWED_HOSTS",
)


LONGEST = 300
"""Maximum length of a path in a log, in characters."""
REFUSED_LINES = 60
"""Lines per minute and address in the access log for refused requests (4xx); others are counted."""


def shown(path: str) -> str:
    r"""Return a path or a method as the log shows it: quoted, and cut if it is long.

    >>> shown("/a b"), len(shown("/" + "\xfc" * 60_000))
    ('/a%20b', 301)
    """
    quoted = quote(path[:LONGEST], errors="replace")
    return quoted if len(quoted) <= LONGEST and len(path) <= LONGEST else f"{quoted[:LONGEST]}…"


class Guard:
    """The outermost middleware of the app."""

    def __init__(self, app: ASGIApp, hosts: Hosts, requests: Limiter, root_path: str = "") -> None:
        self._app, self._hosts, self._requests = app, hosts, requests
        self._root_path = root_path
        self._lines, self._limited_log = Limiter(REFUSED_LINES), LimitedLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.monotonic(), 0
        path = self._below(scope)
        scope = {**scope, "path": path, "root_path": ""}

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
                ):  # the dashboard sets a stricter one
                    headers["Content-Security-Policy"] = PAGE_CSP
            await send(message)

        try:
            if self._hosts.allow(Headers(scope=scope).get("host", "")):
                await self._app(scope, receive, guarded)
            else:
                # A separate limit: a page of another site can make a browser send these.
                wait = self._requests.wait(f"foreign {address_of(scope.get('client'))}")
                problem = too_many(wait) if wait else _FOREIGN
                await problem.response()(scope, receive, guarded)
        except Exception:
            log.exception(Event("bug", method=shown(scope["method"]), path=shown(path)))
            if status:  # the answer has begun: only a broken connection can report the error
                raise
            await INTERNAL.response()(scope, receive, guarded)
        finally:
            self._log(scope, status, 1000 * (time.monotonic() - begun))

    def _below(self, scope: Scope) -> str:
        """Return the path without that of a proxy, or of the app that mounts this one.

        No path of the service begins with ``root_path``, so the proxy may remove it or not.
        """
        path: str = scope["path"]
        for root in (scope.get("root_path", ""), self._root_path):
            if root and f"{path}/".startswith(f"{root}/"):
                return path.removeprefix(root) or "/"
        return path

    def _log(self, scope: Scope, status: int, ms: float) -> None:
        path, client = scope["path"], scope.get("client")
        if 400 <= status < 500 and self._lines.wait(address_of(client)):
            self._limited_log.warn(
                "requests_refused", client=client[0] if client else "", status=status
            )
            return
        # Probes and files are logged at INFO only if they fail.
        often = status < 400 and (path in PROBES or path.startswith(STATIC))
        # Never log the query or a header: they may contain a token.
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
        access_log.log(logging.DEBUG if often else logging.INFO, event)
