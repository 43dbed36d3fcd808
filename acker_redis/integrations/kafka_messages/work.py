"""A Kafka message in process, and the messages that its handler has produced. No I/O.

A message is *settled*, acked or failed, when its handler has returned and Kafka has reported the
delivery of every message that the handler produced. So a tree never completes while one of its
messages may still be refused: the id of a child is in the row of its parent before the child is
produced, and the row is sent only after the last report.
"""

from collections import deque
from threading import Lock
from typing import Any

from acker_redis.errors import ClosedError
from acker_redis.protocol.rows import Row
from acker_redis.trees.frontier import Frontier
from acker_redis.trees.message_id import HEADER, MessageId
from acker_redis.trees.processing import Processing

Headers = dict[str, Any] | list[tuple[str, Any]]

_LOCK = Lock()
"""Guards the counts of all works; nothing waits while it is held."""


class Work:
    """One message that a handler processes."""

    __slots__ = (
        "_returned", "_waiting", "done", "error", "failed", "frontier", "message", "processing",
        "producers",
    )  # fmt: skip

    def __init__(
        self,
        message: Any,
        processing: Processing,
        frontier: Frontier,
        done: "deque[Work]",
        producers: set[Any],
    ) -> None:
        self.message = message
        """The message of the client library."""
        self.processing = processing
        self.frontier = frontier
        """The frontier of the partition, as of the assignment in which the message was read."""
        self.producers = producers
        """The producers that the consumer serves for reports; see the integration."""
        self.done = done
        """Receives the work when it can be settled."""
        self.error: BaseException | None = None
        """Why the message must fail: the first error of the handler or of a delivery."""
        self.failed = False
        """Whether the failure was sent, and the application has been told."""
        self._returned = False
        self._waiting = 0
        """Messages without a report of delivery."""

    def emit(self, child: str | None, edge: str) -> MessageId:
        """Return the id of a message that is produced next; after a failure, of an unanchored one.

        Raises:
            ClosedError: The message is settled.
            InvalidBatchError: ``child`` was used for another message of this work.

        """
        with _LOCK:
            if self._returned and not self._waiting:
                raise ClosedError("this Kafka message is settled: its handler has returned")
            ids = MessageId() if self.failed else self.processing.emit(key=child, edge=edge)
            self._waiting += 1
        return ids

    def report(self, error: BaseException | None = None) -> None:
        """Note that Kafka has taken a message that was emitted, or has refused it."""
        with _LOCK:
            self._waiting -= 1
            if self.error is None:
                self.error = error
            if self._returned and not self._waiting:
                self.done.append(self)

    def returned(self, error: BaseException | None = None) -> None:
        """Note that the handler has returned, or raised an error."""
        with _LOCK:
            self._returned = True
            if self.error is None:
                self.error = error
            if not self._waiting:
                self.done.append(self)

    def acked(self) -> list[Row]:
        """Return the rows of a message that has not failed; none if the handler has settled it."""
        return self.processing.acked() if self.processing.open else []

    def refused(self, error: BaseException) -> list[Row]:
        """Return the rows of a message that has failed; none if the handler has failed it."""
        return [] if self.processing.has_failed else self.processing.failed(error)

    def reopened(self) -> None:
        """Allow the function that handles failures to produce messages."""
        self._returned = False
        self.failed, self.error = True, None


def with_id(headers: Headers | None, ids: MessageId) -> Headers | None:
    """Return Kafka headers with the id of a message, which replaces an id that they may have.

    >>> with_id({"trace": b"x", "Acker-Tuple": b"1:2"}, MessageId({7: 40}))
    [('trace', b'x'), ('acker-tuple', b'7:40')]
    >>> with_id([("acker-tuple", b"1:2")], MessageId())
    []
    """
    ours = [(HEADER, str(ids).encode())] if ids else []
    if not headers:
        return ours or None
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [*((name, value) for name, value in pairs if name.lower() != HEADER), *ours]
