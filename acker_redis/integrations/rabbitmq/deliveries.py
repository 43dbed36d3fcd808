"""A RabbitMQ message in process: what its consumer decides about it, and its children. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from acker_redis.errors import ConfigError
from acker_redis.integrations.core.work import Work
from acker_redis.integrations.rabbitmq.headers import Value
from acker_redis.protocol.texts import clipped, words
from acker_redis.trees.message_id import MessageId


class Decision(Enum):
    """What the broker is told about a delivery."""

    ACK = "ack"
    REJECT = "reject"
    """The broker drops the message, or moves it to the dead-letter exchange of its queue."""
    REQUEUE = "requeue"
    """The broker delivers the message again."""


@dataclass(slots=True, eq=False)
class Delivery:
    """One delivery, from its handler's call until the broker is told."""

    tag: int
    """The broker's number of the delivery in its channel."""
    running: bool = True
    """Whether the handler runs: until it returns, it may still raise, or publish."""
    decision: Decision | None = None
    """What the broker is told: the first decision counts."""


def emit(
    work: Work[Delivery], copied: bool, queues: Sequence[str], child: str | None, edge: str
) -> Value:
    """Return the ids of a message that is published next.

    Raises:
        ConfigError: The message may be ``copied``, and ``queues`` does not name the copies.
        ClosedError: The message in process is settled.
        InvalidBatchError: ``child`` was used for another message.

    """
    if isinstance(queues, str):
        raise ConfigError(f"queues is a list of names, not {queues!r}")
    if not work.tracked:
        return MessageId()
    if copied and not queues:
        raise ConfigError(
            "an exchange, or a header CC or BCC, may put the message into several queues: name "
            "these with queues=[..], because each copy needs an id"
        )
    if not copied:
        return work.emit(child, edge)
    return {
        queue: work.emit(child and f"{child} in {queue}", edge) for queue in dict.fromkeys(queues)
    }


def unpublished(exchange: str, routing_key: str, error: BaseException | str) -> str:
    """Return why a message failed that the broker did not take, with the name of its queue.

    >>> unpublished("", "priced", "NO_ROUTE")
    'not published to priced: NO_ROUTE'
    """
    place = f"{routing_key} of {exchange}" if exchange else routing_key
    return clipped(f"not published to {place}: {error if isinstance(error, str) else words(error)}")
