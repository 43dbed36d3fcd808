"""HTTP: an ASGI middleware and transports of ``httpx`` that pass the id on as a header.

The transports need the extra ``http``; ``requests.py``, the middleware, needs no library.
``transports.py`` sends requests, ``hosts.py`` says which get ids, ``work.py`` is the state of one
request in process.
"""

from typing import TYPE_CHECKING, Any

from acker_redis.errors import needs
from acker_redis.integrations.http.requests import TrackedRequests, current_handle

if TYPE_CHECKING:
    from acker_redis.integrations.http.transports import TrackedAsyncTransport, TrackedTransport

__all__ = ["TrackedAsyncTransport", "TrackedRequests", "TrackedTransport", "current_handle"]


def __getattr__(name: str) -> Any:
    """Import a transport on first use: a service that sends no requests needs no httpx."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs("http", name):
        from acker_redis.integrations.http import transports
    return getattr(transports, name)
