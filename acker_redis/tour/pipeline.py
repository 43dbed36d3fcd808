"""The program that the tour shows: a source ``shop`` and two bolts, ``price`` and ``ship``.

All run in one thread, message by message, so that the tour can stop after each. Everything that
concerns the acker is the public API: a ``Source``, a ``Bolt``, a ``Producer``.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from acker_redis.sync.bolt import Bolt
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from acker_redis.sync.source import Source
from acker_redis.tour.book import Book, Message
from acker_redis.tour.orders import LOST, PRICES, UNKNOWN_ADDRESS, Order
from acker_redis.trees.record import Backoff, Record

SOURCE = "shop"
ATTEMPTS = 2
BACKOFF = Backoff(first=0.3, most=0.3)
PATIENCE = 24 * 3600.0
"""Seconds that the source waits for a verdict: a reader may stop the tour and come back."""

How = Literal["emitted", "acked", "repeated", "failed", "lost"]


@dataclass(frozen=True, slots=True)
class Done:
    """The work of a bolt on one message."""

    message: Message
    how: How
    emitted: tuple[Message, ...] = ()
    """Messages that it caused."""


class Pipeline:
    """The source, the queue and the bolts.

    ``book`` is notified of every message and verdict. Use it by ``with``, which closes the
    producer.
    """

    def __init__(self, acker: Acker, book: Book) -> None:
        self.queue = deque[Message]()
        """Messages on their way to a bolt."""
        self.shipped = list[tuple[str, str]]()
        """Order and item of each parcel that left the house."""
        self.dead_letters = list[str]()
        """Ids of the orders that the source has given up."""
        self._book = book
        self._lost = {LOST}
        self._producer = Producer(acker, linger=0)
        self._bolt = Bolt(self._producer)
        self._bolts: dict[str, Callable[[Message], Done]] = {"price": self.price, "ship": self.ship}
        self.source = Source(
            acker,
            SOURCE,
            self._send,
            on_ack=lambda record: book.end(record, "ack", "completed", ""),
            on_fail=lambda record, reason, why: book.end(record, "nack", reason, why),
            dead_letter=lambda record, reason, why: self.dead_letters.append(record.source_id),
            attempts=ATTEMPTS,
            backoff=BACKOFF,
            timeout=PATIENCE,
        )

    def _send(self, record: Record, ids: Any) -> None:
        """Send the first message of an order; Redis tracks the order already."""
        order: Order = record.value
        message = Message("price", order, "price", ids[0])
        self._book.begin(record, message)
        self.queue.append(message)

    def process(self) -> Done:
        """Give the next message to its bolt, and wait until Redis has applied the bolt's rows."""
        message = self.queue.popleft()
        done = self._bolts[message.to](message)
        self._producer.flush()
        self._book.processed(message, done.emitted, finished=done.how not in ("failed", "lost"))
        return done

    def price(self, message: Message) -> Done:
        """Look up the price of each item, and emit a message for each: the bolt ``price``."""
        order = message.order
        emitted = list[Message]()
        with self._bolt.process(message.id) as handle:
            for item in order.items:
                emitted.append(Message("ship", order, item, handle.emit(), PRICES[item]))
        self.queue.extend(emitted)
        return Done(message, "emitted", tuple(emitted))

    def ship(self, message: Message) -> Done:
        """Send a parcel with the item: the bolt ``ship``. It is idempotent."""
        order, item = message.order, message.name
        if (order.id, item) in self._lost:
            self._lost.discard((order.id, item))
            return Done(message, "lost")
        with self._bolt.process(message.id) as handle:
            if order.address == UNKNOWN_ADDRESS:
                handle.fail("no such address")
                return Done(message, "failed")
            if (order.id, item) in self.shipped:
                return Done(message, "repeated")
            self.shipped.append((order.id, item))
        return Done(message, "acked")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._producer.close()
