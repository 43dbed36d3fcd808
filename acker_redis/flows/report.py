"""A source reports its windows, for operators. No I/O: see ``steps.py``.

Nothing depends on a report. So it is sent beside the steps of the source: a call that fails or
hangs delays no step, and ends none. It is not repeated: the next report is newer.
"""

import logging
import time
from collections.abc import Iterable

from acker_redis.errors import AckerError, NamespaceNotFoundError, RedisUnavailableError
from acker_redis.flows.steps import Begin, Begun, Flow, Run
from acker_redis.protocol import commands
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.reports import SourceEdge, told

log = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two reports, at least."""
AGAIN = 10.0
"""Seconds after which a report is sent again although nothing has changed."""
REFUSED = 60.0
"""Seconds after a call that failed, or one that 64 other programs left no place."""


class Reporter:
    """Sends the reports of one source."""

    def __init__(self, namespace: str, program: str) -> None:
        self._keys, self._program = ShardKeys(namespace, 0), program
        self._next = self._said_at = 0.0
        """When to look at the figures again; when they were sent."""
        self._said: tuple[object, ...] = ()
        self._running: Begun | None = None
        self._warned = False

    def is_due(self, now: float) -> bool:
        """Return whether to look at the figures again."""
        return now >= self._next

    def report(self, edges: Iterable[SourceEdge], now: float) -> Flow[None]:
        """Report the edges, if there is something to say; it waits for nothing."""
        self._next, windows = now + EVERY, told(edges)
        say = tuple((e.edge, e.window, e.in_flight, e.waiting, e.down_for is None) for e in windows)
        if say == self._said and (not say or now < self._said_at + AGAIN):
            return
        # One that nothing runs any more, because its event loop closed, is given up.
        if self._running and not self._running.done() and now < self._said_at + REFUSED:
            return
        self._said, self._said_at = say, now
        self._running = yield Begin(self._send(windows))

    def _send(self, windows: tuple[SourceEdge, ...]) -> Flow[None]:
        try:
            if (yield Run(commands.report(self._keys, self._program, windows))):
                return
        except AckerError as error:
            passing = isinstance(error, RedisUnavailableError | NamespaceNotFoundError)
            if not (passing or self._warned):
                self._warned = True
                log.warning("source %s cannot report its windows: %s", self._program, error)
        self._next = time.monotonic() + REFUSED
