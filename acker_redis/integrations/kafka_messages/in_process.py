"""The messages of a Kafka consumer in process, until their offsets may be committed. No I/O."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from acker_redis.integrations.core.failures import OnFailure, to_tell
from acker_redis.integrations.core.work import Work, begun
from acker_redis.integrations.kafka_messages.partitions import Partitions, Place
from acker_redis.trees.frontier import Frontier
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.processing import Ids

SETTLE = 0.01
"""Seconds between two looks at delivery reports while messages are in process."""
IDLE = 0.1
"""Seconds that run() waits for messages, and after which it notices a signal."""
FLUSH = 10.0
"""Seconds for which a revoked partition, or the end, waits for handlers and reports, and a commit
for the acks."""


class Read(NamedTuple):
    """A message that a consumer has read."""

    message: Any
    """The message of the client library."""
    frontier: Frontier
    """The frontier of the partition, as of the assignment in which the message was read."""
    place: Place
    offset: int
    consumer: Any

    def __str__(self) -> str:
        return f"{self.place[0]} [{self.place[1]}] at offset {self.offset}"


class InProcess:
    """The messages that a consumer has begun and not settled.

    Args:
        kind: The class of its messages.
        consumer: The consumer.
        ids: Makes the ids of children.
        on_failure: The function of the application, if there is one.

    """

    def __init__(
        self, kind: type[Read], consumer: Any, ids: Ids, on_failure: OnFailure | None
    ) -> None:
        self.partitions = Partitions()
        self.finished: deque[Work[Read]] = deque()
        """Those that can be settled."""
        self._kind, self._consumer, self._ids = kind, consumer, ids
        self._on_failure = on_failure
        self._works: set[Work[Read]] = set()

    def __len__(self) -> int:
        return len(self._works)

    def begin(
        self, message: Any, place: Place, offset: int, ids_of: Callable[[], MessageId]
    ) -> Work[Read] | None:
        """Return the work of a message; None if it is not to be processed.

        Raises:
            ConfigError: see :meth:`Partition.read`.

        """
        frontier = self.partitions.read(*place, offset)
        if frontier is None:
            return None
        read = self._kind(message, frontier, place, offset, self._consumer)
        work = begun(read, ids_of, self._ids, self.finished.append)
        self._works.add(work)
        return work

    def to_tell(self, work: Work[Read]) -> OnFailure | None:
        """See :func:`acker_redis.integrations.core.failures.to_tell`."""
        try:
            return to_tell(work, self._on_failure, work.message)
        except BaseException:
            self.drop(work)
            raise

    def drop(self, work: Work[Read]) -> None:
        """Forget a message whose offset stays incomplete."""
        self._works.discard(work)

    def complete(self, work: Work[Read]) -> None:
        """Note that a message is settled: the sink has its rows."""
        work.message.frontier.complete(work.message.offset)
        self._works.discard(work)
