"""What a worker asks of a queue that gives out each message for a limited time: a lease.

If a message is not removed before its lease ends, the queue delivers it again, to any worker.
"""

from collections.abc import Callable
from typing import Any, Protocol

from acker_redis.trees.message_id import AnyId

Given = tuple[Any, Any]
"""The key of a message in its queue, and what a handler gets."""
Fail = Callable[[Any, Any, Exception], None]


class Reader(Protocol):
    """Gets messages from a queue."""

    read_at: float
    """When the messages that were read last were asked for, on the ``time.monotonic`` clock."""

    def read(self, count: int, block: float, fail: Fail) -> list[Given]:
        """Return up to ``count`` messages; wait ``block`` seconds for the first.

        ``fail(key, body, error)`` is called for a message that no handler must get.
        """


class Queue(Protocol):
    """The other commands of a queue."""

    name: str
    errors: tuple[type[Exception], ...]
    """What the commands raise if the queue refuses or does not answer."""

    def id_of(self, body: Any) -> AnyId:
        """Return the id of a message, which may be malformed, or raise InvalidBatchError."""

    def sent_ms(self, key: Any, body: Any) -> int | None:
        """Return when the queue received a message, by its own clock; None if that is not known."""

    def add(self, children: list[Any]) -> list[Exception | None]:
        """Send messages; return for each why it was refused, or None. Raise without an answer."""

    def owns(self, key: Any, since: float) -> bool:
        """Return whether the worker still has a message whose lease began at a monotonic time."""

    def keep(self, key: Any) -> None:
        """Let the lease of a message begin again."""

    def give_back(self, keys: list[Any]) -> None:
        """Let other workers have these messages at once."""

    def done(self, keys: list[Any]) -> None:
        """Remove messages: they are not delivered again."""

    def leave(self) -> None:
        """Forget the worker, which reads no more."""

    def passes(self, error: Exception) -> bool:
        """Return whether an error may be gone at the next attempt."""
