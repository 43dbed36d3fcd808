"""The tests. A client in a test waits for a reply as long as a test waits for any condition.

So no reply is lost on a machine that stalls for some seconds. A test of lost replies sets its own
``timeout``, or closes the connection.
"""

from tests import tracing  # noqa: F401, I001  registers itself before the package does

from acker_redis.aio import AsyncAcker
from acker_redis.sync.client import Acker
from tests.waiting import LIMIT

DEFAULT_TIMEOUTS = {
    kind: kind.from_url.__func__.__kwdefaults__["timeout"]  # type: ignore[attr-defined]
    for kind in (Acker, AsyncAcker)
}
"""The default timeout of each client outside the tests, in seconds."""

for _kind in (Acker, AsyncAcker):
    _kind.from_url.__func__.__kwdefaults__["timeout"] = LIMIT  # type: ignore[attr-defined]
