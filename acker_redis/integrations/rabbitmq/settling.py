"""Settles deliveries: their rows go to Redis first, then the broker is told."""

import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pika.exceptions import AMQPError

from acker_redis.batching.batch import Batch
from acker_redis.errors import AckerError, InvalidBatchError
from acker_redis.integrations.core.work import Work
from acker_redis.integrations.rabbitmq.deliveries import Decision, Delivery, unpublished
from acker_redis.integrations.rabbitmq.headers import anchors_of
from acker_redis.protocol.rows import Row, fail_row
from acker_redis.sync.client import Acker

log = logging.getLogger(__name__)

SETTLE = 0.01
"""Seconds after which messages are settled although others have arrived."""
PAUSE = 0.5
"""Seconds for which a channel pauses when Redis did not take its rows."""


class Settling:
    """The decided deliveries of one channel of pika, until Redis and the broker know them.

    Args:
        acker: The client of the namespace.
        channel: The channel of pika.

    """

    def __init__(self, acker: Acker, channel: Any) -> None:
        self._acker = acker
        self._channel = channel
        self._done: list[Work[Delivery]] = []
        self._returned: list[Row] = []
        """The failures of messages that the broker has returned."""
        self._due = False
        """Whether a timer will settle."""
        self._settled_at = 0.0
        self._told = 0
        """Number of deliveries that the broker knows to be settled."""
        self._highest = 0
        """The highest tag of these."""
        channel.add_on_return_callback(self._on_return)

    def add(self, work: Work[Delivery]) -> None:
        """Settle a decided delivery soon, whose handler has returned."""
        if work.message.decision is Decision.REQUEUE:
            work.redeliver()
        self._done.append(work)
        self._settle_soon()

    def settle(self) -> None:
        """Apply the rows of decided deliveries to Redis, then tell the broker.

        Raises:
            pika.exceptions.AMQPError: The connection is lost.

        """
        done, self._done = self._done, []
        rows, self._returned = self._returned, []
        for work in done:
            rows += work.rows()
        doubt = False
        try:
            apply(self._acker, rows)
        except AckerError as error:
            doubt = True
            log.warning("%d deliveries go back into their queues: %s", len(done), error)
        self._settled_at = time.monotonic()
        if not self._channel.is_open:
            return  # the broker delivers them again
        for work in done:
            if doubt and work.tracked:
                work.message.decision = Decision.REQUEUE
        self._tell_all([work.message for work in done])
        if doubt:
            time.sleep(PAUSE)

    def settle_last(self) -> None:
        """Settle, and log a lost connection."""
        try:
            self.settle()
        except AMQPError as error:
            log.warning("messages will be delivered again: %r", error)

    def tell(self, tag: int, decision: Decision | None, multiple: bool = False) -> None:
        """Tell the broker what it shall do with a delivery."""
        if decision is Decision.ACK:
            self._channel.basic_ack(tag, multiple)
        else:
            self._channel.basic_nack(tag, multiple, requeue=decision is Decision.REQUEUE)

    def _settle_soon(self) -> None:
        # A connection that is lost has no timers.
        if time.monotonic() - self._settled_at > SETTLE or not self._channel.is_open:
            self.settle()
        elif not self._due:
            # A timer runs after all messages that have arrived.
            self._due = True
            self._channel.connection.call_later(0, self._on_timer)

    def _on_timer(self) -> None:
        self._due = False
        self.settle()

    def _on_return(self, _: object, method: Any, properties: Any, body: bytes) -> None:
        why = unpublished(method.exchange, method.routing_key, method.reply_text)
        with suppress(InvalidBatchError):  # published by other code, and not tracked
            self._returned += [fail_row(anchor, why) for anchor in anchors_of(properties.headers)]
        self._settle_soon()

    def _tell_all(self, done: list[Delivery]) -> None:
        self._told += len(done)
        self._highest = max([self._highest, *(delivery.tag for delivery in done)])
        acked = all(delivery.decision is Decision.ACK for delivery in done)
        if len(done) > 1 and acked and self._told == self._highest:
            # Tags count from 1, so none up to the highest is open, here or elsewhere.
            self.tell(self._highest, Decision.ACK, multiple=True)
        else:
            for delivery in done:
                self.tell(delivery.tag, delivery.decision)


class Direct:
    """A sink that applies rows at once."""

    def __init__(self, acker: Acker) -> None:
        self._acker = acker

    def add(self, rows: list[Row], wait: bool = True) -> None:
        """Apply the rows."""
        apply(self._acker, rows)


def apply(acker: Acker, rows: Iterable[Row]) -> None:
    """Apply rows in as few batches as hold them."""
    batch = Batch()
    for row in rows:
        if not batch.add(row):
            acker.apply(batch)
            batch = Batch()
            batch.add(row)
    if batch:
        acker.apply(batch)
