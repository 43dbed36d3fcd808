"""An entry of a stream in process, and the entries that its handler adds. No I/O.

The id of a child is in the row of its parent before the child is added to a stream. The row is sent
after the children were added. So a tree never completes while one of its entries is missing.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from acker_redis.errors import ClosedError, ConfigError, InvalidBatchError
from acker_redis.integrations.core.handlers import check_done
from acker_redis.integrations.streams.entries import Command, Fields, with_id
from acker_redis.protocol.rows import Row
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.processing import Ids, Processing


class Work:
    """One entry that a handler processes.

    Args:
        owner: The worker, whose client adds the children.
        key: The key of the entry in its stream, such as ``b"1700000000000-0"``.
        fields: Its fields, as redis-py returns them.
        processing: The message that the entry is.
        since: When this worker received the entry, on the ``time.monotonic`` clock.

    """

    __slots__ = (
        "_outbox", "doubtful", "dropped", "error", "fields", "key", "open", "owner", "processing",
        "since", "told",
    )  # fmt: skip

    def __init__(
        self, owner: object, key: Any, fields: Fields, processing: Processing, since: float
    ) -> None:
        self.owner = owner
        self.key = key
        self.fields = fields
        self.processing = processing
        self.since = since
        self.open = True
        """Whether a function of the application runs, and may add entries."""
        self.error: BaseException | None = None
        """Why the message must fail."""
        self.told = False
        """Whether the application is told of the failure: what it adds then is not tracked."""
        self.dropped = False
        """Whether the entry is a duplicate, to be removed without a row."""
        self.doubtful = False
        """Whether children may be missing in their streams: the entry must be delivered again."""
        self._outbox: list[Command] = []

    @property
    def tracked(self) -> bool:
        """Whether the entry has an id."""
        return any(self.processing.inputs)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function of the application, with this entry in process."""
        token = current.set(self)
        self.open = True
        try:
            check_done(function, function(*args))
        finally:
            self.open = False
            current.reset(token)

    def put(self, command: Command, child: str | None, edge: str) -> int:
        """Add a child to those that are sent next; return how many these are.

        Raises:
            ClosedError: The handler has returned.
            InvalidBatchError: ``child`` was used for another child.

        """
        if not self.open:
            raise ClosedError("this entry is processed: its handler has returned")
        ids = MessageId() if self.told else self.processing.emit(key=child, edge=edge)
        self._outbox.append(with_id(command, ids))
        return len(self._outbox)

    def take(self) -> list[Command]:
        """Return the children to send, each once."""
        taken, self._outbox = self._outbox, []
        return taken

    def failed(self, error: BaseException) -> None:
        """Note that the message must fail; the first error counts."""
        if self.error is None:
            self.error = error

    def rows(self) -> list[Row]:
        """Close the message, and return the rows to send."""
        if self.error is not None:
            has_failed = self.processing.has_failed
            return [] if has_failed else self.processing.failed(self.error)
        if self.dropped or not self.processing.open:
            return []
        return self.processing.acked()


current: ContextVar[Work | None] = ContextVar("acker_stream_entry", default=None)
"""The entry in process."""


def begun(owner: object, key: Any, fields: Fields, ids: Ids, since: float) -> Work:
    """Return the state of an entry to process; with a malformed id it must fail.

    Args:
        owner: The worker.
        key: The key of the entry.
        fields: Its fields.
        ids: Makes the ids of its children.
        since: When the worker received it, on the ``time.monotonic`` clock.

    """
    wrong: Exception | None = None
    try:
        message = MessageId.from_headers(fields)
    except InvalidBatchError as error:
        message, wrong = MessageId(), error
    work = Work(owner, key, fields, Processing(message, ids=ids), since)
    work.error = wrong
    return work


def in_process(owner: object) -> Work:
    """Return the entry in process in this context.

    Raises:
        ConfigError: There is none, or it is another worker's.

    """
    work = current.get()
    if work is None or work.owner is not owner:
        raise ConfigError(
            "an entry must be in process: call this in a handler of this worker (in another "
            "thread: in a copy of its context), use a StreamSender for first messages, and "
            "redis-py for entries that are not tracked"
        )
    return work
