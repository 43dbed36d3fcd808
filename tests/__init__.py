"""Tests. A client that a test makes waits for a reply as long as a test waits for anything.

So a machine that stops for some seconds loses no reply. A test of lost replies sets its own
``timeout``, or loses the reply by closing the connection.
"""

from tests import tracing  # noqa: F401, I001  registers itself before the package does

from acker_redis.aio import AsyncAcker
from acker_redis.sync.client import Acker
from tests.waiting import LIMIT

DEFAULT_TIMEOUTS = {
    kind: kind.from_url.__func__.__kwdefaults__["timeout"]  # type: ignore[attr-defined]
    for kind in (Acker, AsyncAcker)
}
"""What a user gets, in seconds."""

for _kind in (Acker, AsyncAcker):
    _kind.from_url.__func__.__kwdefaults__["timeout"] = LIMIT  # type: ignore[attr-defined]
