"""HTTP: an ASGI middleware and transports of ``httpx`` that pass the id on as a header.

``pip install 'acker-redis[http]'`` for the transports; ``requests.py``, the middleware, needs no
library. ``transports.py`` sends requests, ``work.py`` is the state of one request in process.
"""

from acker_redis.integrations.http.requests import TrackedRequests, current_handle
from acker_redis.integrations.http.transports import TrackedAsyncTransport, TrackedTransport

__all__ = ["TrackedAsyncTransport", "TrackedRequests", "TrackedTransport", "current_handle"]
