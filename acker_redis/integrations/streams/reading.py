"""Reads entries of a consumer group: new ones, and those that dead workers have left.

**Poison.** The group counts deliveries. New entries are read in batches, so a crash counts for
each entry of a batch. Therefore an entry that is taken over is processed alone: from the second
delivery on, a crash counts for this entry only.
"""

import logging
import time

import redis

from acker_redis.errors import AckerError
from acker_redis.integrations.core.pace import Pace
from acker_redis.integrations.core.queues import Fail
from acker_redis.integrations.streams.group import Entry, Group, is_missing
from acker_redis.sync.connection import reconnect
from acker_redis.transport.errors import must_leave

log = logging.getLogger(__name__)

TRIES = 10
"""Attempts to take over an entry between two reads of new ones: other workers may be faster."""


class Reading:
    """What one worker reads, and when.

    Args:
        group: The consumer of the group.
        idle: Seconds after which an entry goes to another worker.
        deliveries: Maximum number of deliveries of an entry.

    """

    def __init__(self, group: Group, idle: float, deliveries: int) -> None:
        self._group = group
        self._idle, self._deliveries = idle, deliveries
        self.read_at = 0.0
        """When the entries that were read last were asked for, on the ``time.monotonic`` clock."""
        self._look_at = 0.0
        """When to look again for entries of dead workers, on the same clock."""
        self._pace = Pace()
        """Of new entries."""

    def read(self, count: int, block: float, fail: Fail) -> list[Entry]:
        """Return an entry of a dead worker, or up to ``count`` new ones; wait ``block`` seconds.

        ``fail(key, fields, error)`` is called for an entry that no handler must get.

        Raises:
            redis.RedisError: Redis refuses, or does not answer.
            Exception: What ``fail`` raises.

        """
        self._pace.fit(self.read_at)
        try:
            return self._left(fail) or self._new(min(count, self._pace.fits), block)
        except redis.ResponseError as error:
            if must_leave(error):
                reconnect(self._group.client)
            if not is_missing(error):
                raise
            # Not before: a server at maxmemory refuses it, also if the group exists.
            self._group.create()
            return self.read(count, block, fail)

    def _new(self, count: int, block: float) -> list[Entry]:
        # Before the call: an entry is not idle for longer than this worker believes. Therefore the
        # call is short: entries that come at its end would be late at once.
        self.read_at = time.monotonic()
        try:
            entries = self._group.new(count, int(min(block, self._idle / 4) * 1000) or None)
        except UnicodeDecodeError:
            return []  # _left() gets them one by one, and fails the one that is no text
        self._pace.given = len(entries)
        return entries

    def _left(self, fail: Fail) -> list[Entry]:
        """Take over an entry that a worker has left; if there is none, look again after a while."""
        idle = int(self._idle * 1000)
        for _ in range(TRIES):
            now = time.monotonic()
            if now < self._look_at:
                break
            left = self._group.left(idle)
            if left is None:
                self._look_at = now + self._idle / 2
                break
            wrong: Exception | None = None
            try:
                fields = self._group.claim(left.key, idle)
            except UnicodeDecodeError as error:
                fields, wrong = self._group.undecoded(left.key), error
            if fields is None:
                log.info("%s: entry %s of %s is deleted, or taken by another worker",
                         self._group.name, left.key, left.consumer)  # fmt: skip
                continue
            self.read_at = now
            if left.deliveries >= self._deliveries:
                times = f"delivered {left.deliveries} times, and no worker has settled it"
                wrong = AckerError(times) if wrong is None else wrong
            if wrong is None:
                return [(left.key, fields)]
            fail(left.key, fields, wrong)
        return []
