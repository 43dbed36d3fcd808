"""A RabbitMQ message in process, and what its consumer decides about it. No I/O.

The id of a child is in the row of its parent before the child is published, and the row is sent
after that. So a tree never completes while one of its messages is missing.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from enum import Enum

from acker_redis.errors import ConfigError
from acker_redis.integrations.rabbitmq.headers import Value
from acker_redis.protocol.rows import Row
from acker_redis.protocol.texts import clipped, words
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.processing import Processing


class Decision(Enum):
    """What the broker is told about a delivery."""

    ACK = "ack"
    REJECT = "reject"
    """The broker drops the message, or moves it to the dead-letter exchange of its queue."""
    REQUEUE = "requeue"
    """The broker delivers the message again."""


class Delivery:
    """One delivery, from its handler's call until the broker is told.

    Args:
        tag: The broker's number of the delivery in its channel.
        processing: The message.

    """

    __slots__ = ("decision", "error", "processing", "running", "tag")

    def __init__(self, tag: int, processing: Processing) -> None:
        self.tag = tag
        self.processing = processing
        self.running = True
        """Whether the handler runs: until it returns, it may still raise, or publish."""
        self.decision: Decision | None = None
        self.error: BaseException | str | None = None
        """Why the message must fail: the first error of the handler, or of a message it published.
        """

    @property
    def tracked(self) -> bool:
        """Whether the message has an id."""
        return any(self.processing.inputs)

    def emit(self, copied: bool, queues: Sequence[str], child: str | None, edge: str) -> Value:
        """Return the ids of a message that is published next.

        Raises:
            ConfigError: The message may be ``copied``, and ``queues`` does not name the copies.
            ClosedError: The message in process is settled.
            InvalidBatchError: ``child`` was used for another message.

        """
        if isinstance(queues, str):
            raise ConfigError(f"queues is a list of names, not {queues!r}")
        if not self.tracked:
            return MessageId()
        if copied and not queues:
            raise ConfigError(
                "an exchange, or a header CC or BCC, may put the message into several queues: name "
                "these with queues=[..], because each copy needs an id"
            )
        if not copied:
            return self.processing.emit(key=child, edge=edge)
        return {
            queue: self.processing.emit(key=child and f"{child} in {queue}", edge=edge)
            for queue in dict.fromkeys(queues)
        }

    def failed(self, error: BaseException | str) -> None:
        """Note that the message must fail; the first error counts."""
        if self.error is None:
            self.error = error

    def decide(self, decision: Decision) -> None:
        """Note what the broker is told; the first decision counts."""
        self.decision = self.decision or decision

    def rows(self) -> list[Row]:
        """Close the message, and return the rows to send; none if it is delivered again."""
        if self.error is not None:
            return [] if self.processing.has_failed else self.processing.failed(self.error)
        if not self.processing.open:
            return []
        rows = self.processing.acked()
        if self.decision is not Decision.REQUEUE:
            return rows
        (ids,) = self.processing.inputs
        if all(row.delta == ids[row.anchor] for row in rows):
            return []  # no children
        # No row announces them. The next delivery may publish none, and its ack would be false.
        return self.processing.failed("requeued after it had published messages")


current: ContextVar[Delivery | None] = ContextVar("acker_rabbitmq_delivery", default=None)
"""The message in process."""


def unpublished(exchange: str, routing_key: str, error: BaseException | str) -> str:
    """Return why a message failed that the broker did not take, with the name of its queue.

    >>> unpublished("", "priced", "NO_ROUTE")
    'not published to priced: NO_ROUTE'
    """
    place = f"{routing_key} of {exchange}" if exchange else routing_key
    return clipped(f"not published to {place}: {error if isinstance(error, str) else words(error)}")
