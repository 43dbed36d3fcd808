"""Finds messages whose trees have ended, so that a consumer need not process them (``skip_ended``).

**When it is right.** A message may be dropped only where it is not the only copy of its record: a
:class:`Source` or an outbox sends the record again after it has expired. And only in the queue into
which they send. A message that a bolt has sent may be younger than its tree by any time, so its age
says nothing about what the shard remembers.

**Three conditions**, and the message is processed where one of them is in doubt:

1. It is older than the shortest lifetime of a tree.
2. ``alive`` says that none of its anchors is pending. This protects each live tree, also if a
   clock is wrong: a source tracks before it sends.
3. The shard remembers all trees of that age. Otherwise its tree may be lost, and not ended: after a
   failover, FLUSHALL, a drop, a restored snapshot. Then the queue may have the only copy.

**Two clocks.** For 3, the age of the message and the memory of the shard are compared as durations,
each measured by one clock. Where the clock of the queue cannot be read, both must leave
``MAX_SKEW_MS`` to spare. A message counts as sent within a lifetime after its TRACK.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from acker_redis.errors import InvalidBatchError
from acker_redis.flows.alive import ask_alive
from acker_redis.flows.known import KnownNamespace
from acker_redis.flows.steps import Flow
from acker_redis.protocol.alive import MAX_SKEW_MS, Alive
from acker_redis.trees.message_id import AnyId, MessageId

log = logging.getLogger(__name__)

PAUSE = 5.0
"""Seconds after an error in which all messages are processed: a server that hangs delays none."""


class Sent(NamedTuple):
    """A message that was read and not begun."""

    at_ms: int | None
    """When its queue received it, by the clock of the queue; None if that is not known."""
    id_of: Callable[[], AnyId]
    """Returns its id, or raises InvalidBatchError. Called only for an old message."""


class Ended:
    """Finds the messages of ended trees, with one call for each shard of a batch with old messages.

    Args:
        flows: The flows of the namespace.
        clock: Returns the clock of the queue, in ms since 1970, or raises; None if the queue has
            another clock, which differs from that of Redis by ``MAX_SKEW_MS`` at most.

    """

    def __init__(self, flows: KnownNamespace, clock: Callable[[], int] | None = None) -> None:
        self._flows, self._clock = flows, clock
        self._margin = 0 if clock else MAX_SKEW_MS
        self._ask_at = 0.0
        """When to ask again after an error, on the ``time.monotonic`` clock."""

    def find(self, messages: Sequence[Sent]) -> Flow[set[int]]:
        """Return the positions of the messages whose trees have ended; it raises nothing."""
        if time.monotonic() < self._ask_at:
            return set()
        try:
            return (yield from self._find(messages))
        except Exception as error:  # the client of a queue has other errors
            log.warning("messages of ended trees are not skipped for a while: %s", error)
            self._ask_at = time.monotonic() + PAUSE
            return set()

    def _find(self, messages: Sequence[Sent]) -> Flow[set[int]]:
        config = self._flows.known or (yield from self._flows.read_config(patient=False))
        old: dict[int, tuple[int, tuple[int, ...]]] = {}
        # The clock of this computer decides only for which messages the servers are asked.
        limit = time.time() * 1000 - config.fence_ms - self._margin
        for at, (sent_ms, id_of) in enumerate(messages):
            if sent_ms is not None and sent_ms < limit and (anchors := _anchors(id_of)):
                old[at] = sent_ms, anchors
        if not old:
            return set()
        begun = time.monotonic()
        read_ms = self._clock() if self._clock else None
        alive = yield from ask_alive(
            self._flows, [a for _, several in old.values() for a in several]
        )
        took_ms = math.ceil((time.monotonic() - begun) * 1000) + 1

        def has_ended(sent_ms: int, pending: bool, its: Alive) -> bool:
            # Its age when the shard answered lies between these two.
            young = old_ms = its.now_ms - sent_ms
            if read_ms is not None:
                young, old_ms = read_ms - sent_ms, read_ms + took_ms - sent_ms
            young, old_ms = young - self._margin, old_ms + self._margin + config.lifetime_ms
            return not pending and young > config.fence_ms and its.remembers(young, old_ms)

        return {
            at
            for at, (sent_ms, anchors) in old.items()
            if all(has_ended(sent_ms, *alive[anchor]) for anchor in anchors)
        }


def _anchors(id_of: Callable[[], AnyId]) -> tuple[int, ...]:
    try:
        return tuple(MessageId.of(id_of()))
    except InvalidBatchError:
        return ()
