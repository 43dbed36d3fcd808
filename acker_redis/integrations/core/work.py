"""A message in process, from its handler's call until its row is sent.

A message is *finished*, and may be acked or failed, when its handler has returned and the transport
has reported on every child that was emitted with ``reported=True``. The id of a child is in the row
of its parent before the child is sent. So a tree never completes while a message is missing.
"""

from collections.abc import Callable
from contextvars import ContextVar
from inspect import isawaitable
from threading import Lock
from typing import Any, Generic, Self, TypeVar

from acker_redis.errors import AckerError, ClosedError, ConfigError, InvalidBatchError
from acker_redis.flows.forks import reset_in_children
from acker_redis.integrations.core.handlers import check_done
from acker_redis.protocol.id_maker import PLAIN
from acker_redis.protocol.rows import Row, ack_row
from acker_redis.trees.message_id import AnyId, MessageId
from acker_redis.trees.processing import Ids, Processing

M = TypeVar("M")


class _Counts:
    """Guards the counts of all works; nothing waits while the lock is held."""

    def __init__(self) -> None:
        self.reset_after_fork()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        self.lock = Lock()  # a thread of the parent may have held the other


_counts = _Counts()
_stack: ContextVar[tuple["Work[Any]", ...]] = ContextVar("acker_works", default=())
"""The messages in process in this context: the handler of the last one runs, or has begun this."""


class Work(Generic[M]):
    """One message that a handler processes. In a ``with`` block it is the one in process.

    Args:
        message: What the transport knows of the message.
        ids: The id of the message, or an open tree or message, whose child is sent.
        makes: Makes the ids of its children.
        then: Called once with the work when it is finished.

    """

    __slots__ = (
        "_again", "_kept", "_left_open", "_returned", "_then", "_waiting", "error", "message",
        "processing", "why",
    )  # fmt: skip

    def __init__(
        self,
        message: M,
        ids: AnyId | Processing,
        makes: Ids = PLAIN,
        *,
        then: "Callable[[Work[M]], object] | None" = None,
    ) -> None:
        self.message = message
        self.processing = ids if isinstance(ids, Processing) else Processing(ids, ids=makes)
        self.error: BaseException | str | None = None
        """Why the message must fail: the first error of the handler, or of a child."""
        self.why: BaseException | str | None = None
        """The error of which the application was told."""
        self._then = then
        self._returned = False
        self._waiting = 0
        """Children of which the transport has not reported the delivery."""
        self._kept: list[MessageId] = []
        self._again = False
        self._left_open = ""
        """Why the message has no row unless it fails: it is skipped, or delivered again."""

    @property
    def tracked(self) -> bool:
        """Whether the message has an id."""
        return self.processing.anchored

    def emit(
        self, child: str | None = None, edge: str = "", *, reported: bool = False
    ) -> MessageId:
        """Return the id of a message that is sent next; after a failure, of an unanchored one.

        Args:
            child: Says which child this is: its id is derived.
            edge: The name of the edge that the message travels on.
            reported: Whether :meth:`report` is called when the transport has taken the message, or
                has refused it. The work is not finished before.

        Raises:
            ClosedError: The message is finished.
            InvalidBatchError: ``child`` was used for another message of this work.

        """
        with _counts.lock:
            if self._returned and not self._waiting:
                raise ClosedError("this message is settled: its handler has returned")
            self._waiting += 1  # the work is not finished before the id is in its row
        try:
            # Not under the lock: a derived id may wait for Redis.
            ids = MessageId() if self.why is not None else self._next(child, edge)
        except BaseException:
            self.report()
            raise
        if not reported:
            self.report()
        return ids

    def report(self, error: BaseException | None = None) -> None:
        """Note that the transport has taken a message that was emitted, or has refused it."""
        if error is not None:
            self.failed(error)
        with _counts.lock:
            self._waiting -= 1
            self._end()

    def returned(self) -> None:
        """Note that the handler has returned, or has raised an error."""
        with _counts.lock:
            self._returned = True
            self._end()

    def failed(self, error: BaseException | str) -> None:
        """Note that the message must fail; the first error counts."""
        if self.error is None:
            self.error = error

    def keep(self, child: MessageId) -> None:
        """Note that a message which was emitted is processed: the row of this one acks it, too."""
        self._kept.append(child)

    def skip(self) -> None:
        """Let the message be confirmed without a row, because it is a duplicate."""
        self._left_open = "skipped"

    def redeliver(self) -> None:
        """Let the message have no row, because the transport delivers it again.

        If it has sent children, it fails: no row announces them. The next delivery may send none,
        and its ack would be false.
        """
        self._left_open = "redelivered"

    def again(self) -> None:
        """Let the handler process the message once more, in the same delivery.

        What it has sent is sent twice. Each copy has its own id, also with a derived one: two acks
        of one id would cancel each other.
        """
        self._left_open, self._again = "", True

    def told(self) -> None:
        """Let ``on_failure`` send messages, which are not tracked, and perhaps fail itself."""
        self.why, self.error, self._returned = self.error, None, False

    def rows(self) -> list[Row]:
        """Close the message, and return the rows to send; none if the handler has settled it."""
        return self._own_rows() + [ack_row(*ids) for child in self._kept for ids in child.items()]

    def run(self, function: Callable[..., object], *args: Any) -> Exception | None:
        """Call a function of the application with this message in process, unless it has failed.

        An Exception fails the message, and is returned.
        """
        if self.error is None:
            try:
                with self:
                    check_done(function, function(*args))
            except Exception as error:
                self.failed(error)
                return error
        return None

    async def run_async(self, function: Callable[..., object], *args: Any) -> Exception | None:
        """Call a function, and await what it returns; see :meth:`run`."""
        if self.error is None:
            try:
                with self:
                    found = function(*args)
                    check_done(function, await found if isawaitable(found) else found)
            except Exception as error:
                self.failed(error)
                return error
        return None

    def __enter__(self) -> Self:
        _stack.set((*_stack.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        works = _stack.get()
        if works and works[-1] is self:
            _stack.set(works[:-1])
        else:
            _stack.set(tuple([each for each in works if each is not self]))

    def _next(self, child: str | None, edge: str) -> MessageId:
        try:
            return self.processing.emit(key=child, edge=edge)
        except InvalidBatchError:
            if not self._again:
                raise
            return self.processing.emit(edge=edge)

    def _own_rows(self) -> list[Row]:
        error = self.why if self.error is None else self.error
        if error is not None:
            why = str(error) if isinstance(error, HandlerError) else error
            return [] if self.processing.has_failed else self.processing.failed(why)
        if self._left_open == "skipped" or not self.processing.open:
            return []
        rows = self.processing.acked()
        if not self._left_open:
            return rows
        (ids,) = self.processing.inputs
        if all(row.delta == ids[row.anchor] for row in rows):
            return []
        return self.processing.failed("requeued after it had published messages")

    def _end(self) -> None:
        if self._returned and not self._waiting and self._then is not None:
            self._then(self)


class HandlerError(AckerError):
    """A handler of a batch has failed a message: ``str()`` is the reason that it gave."""


def begun(
    message: M,
    ids_of: Callable[[], AnyId | Processing],
    makes: Ids,
    then: Callable[[Work[M]], object] | None = None,
) -> Work[M]:
    """Return the work of a message; with a malformed id it must fail.

    Args:
        message: What the transport knows of the message.
        ids_of: Returns the id of the message, or raises InvalidBatchError.
        makes: Makes the ids of its children.
        then: Called once with the work when it is finished.

    """
    try:
        return Work(message, ids_of(), makes, then=then)
    except InvalidBatchError as error:
        work = Work(message, MessageId(), makes, then=then)
        work.error = error
        return work


def current(kind: type[M]) -> Work[M] | None:
    """Return the message of a transport that is in process in this context; None without one.

    Args:
        kind: The class of what the transport knows of a message. A handler may have called another
            transport's: the message is the last one of this kind.

    """
    work: Work[M]
    for work in reversed(_stack.get()):
        if isinstance(work.message, kind):
            return work
    return None


def in_process(kind: type[M], call: str, instead: str = "") -> Work[M]:
    """Return the message of a transport that is in process in this context.

    Args:
        kind: See :func:`current`.
        call: What needs the message.
        instead: What to use without one, for the error.

    Raises:
        ConfigError: There is none.

    """
    work = current(kind)
    if work is None:
        raise ConfigError(
            f"{call} needs a message in process: use it in a handler (in another thread: in a copy "
            f"of its context){instead and f', or {instead}'}"
        )
    return work
