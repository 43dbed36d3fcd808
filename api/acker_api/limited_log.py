"""Rate-limited log lines, for events that any client can cause: one line counts many events."""

import logging
import time
from collections.abc import Callable
from typing import Any

from acker_redis.operate import Event

log = logging.getLogger("acker_api")

EVERY = 10.0
"""Seconds between two lines of the same event."""


class LimitedLog:
    """A rate-limited logger: one warning per event name in ten seconds.

    The first event is logged at once. ``times`` in a line counts the events since the line before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}
        self._times: dict[str, int] = {}

    def warn(self, event: str, **fields: Any) -> None:
        """Count an event, and log it if a line is due."""
        now = self._clock()
        self._times[event] = self._times.get(event, 0) + 1
        if now >= self._due.get(event, now):
            self._due[event] = now + EVERY
            log.warning(Event(event, times=self._times.pop(event), **fields))
