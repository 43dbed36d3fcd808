"""Log lines of events that strangers can cause without end: one line for many of them."""

import logging
import time
from collections.abc import Callable
from typing import Any

from acker_redis.logs import Event

log = logging.getLogger("acker_api")

EVERY = 10.0
"""Seconds between two lines of one event."""


class Seldom:
    """Warns of events, of each once every ten seconds; ``times`` says how often it happened.

    The first is logged at once; the next line counts those in between, too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}
        self._times: dict[str, int] = {}

    def warn(self, event: str, **fields: Any) -> None:
        """Count an event, and log it if its time has come."""
        now = self._clock()
        self._times[event] = self._times.get(event, 0) + 1
        if now >= self._due.get(event, now):
            self._due[event] = now + EVERY
            log.warning(Event(event, times=self._times.pop(event), **fields))
