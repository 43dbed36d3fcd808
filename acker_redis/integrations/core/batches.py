"""Handlers of batches: the messages that a handler processes together."""

from collections.abc import Callable, Iterator, Sequence
from inspect import isawaitable
from operator import index
from typing import Any, NamedTuple, overload

from acker_redis.errors import InvalidBatchError
from acker_redis.integrations.core.columns import Columns
from acker_redis.integrations.core.handlers import check_done
from acker_redis.integrations.core.work import HandlerError, Work
from acker_redis.trees.message_id import MessageId

Handler = Callable[..., object]


class Emitted(NamedTuple):
    """The ids of new messages, in the order of the messages that caused them."""

    parents: list[int]
    """For each new message, the position of the message in the batch that caused it."""
    ids: list[MessageId]


class Works:
    """Messages that have a work each; a handler gets those that have not failed."""

    def __init__(self, pairs: Sequence[tuple[Work[Any], Any]]) -> None:
        self.works = [work for work, _ in pairs]
        self.bodies = [body for work, body in pairs if work.error is None]
        self._valid = [work for work in self.works if work.error is None]

    def work(self, at: int) -> Work[Any]:
        """Return the work of a message."""
        return self._valid[at]

    def emit(self, counts: list[int], key: str | None, edge: str) -> list[MessageId]:
        """Return the ids of new messages, by the number that each message has caused."""
        pairs = zip(self._valid, counts, strict=True)
        return [work.emit(key, edge) for work, count in pairs for _ in range(count)]

    def rows(self) -> tuple[list[int], list[int]]:
        """Return no anchors and deltas: each work has its rows."""
        return [], []


Given = Columns | Works
"""Messages that were begun together."""


class Messages(Sequence[Any]):
    """A batch of messages: what the handler of ``run_batches()`` gets, a sequence of messages.

    Messages that the handler does not name are acked when it has returned, and what they have
    caused was sent. In ``with messages.of(position)`` the transport's producer sends children of
    that message, as in a handler of one message.

    Examples:
        >>> works = Work(None, "7:40"), Work(None, "8:41")
        >>> messages = Messages(Works([(works[0], b"a hat"), (works[1], b"a shoe")]))
        >>> [each.decode() for each in messages]
        ['a hat', 'a shoe']
        >>> children = messages.emit([0, 2])
        >>> children.parents, [sorted(each) for each in children.ids]
        ([1, 1], [[8], [8]])
        >>> messages.fail(0, "no such address")

    """

    def __init__(self, given: Given) -> None:
        self._given = given

    def __len__(self) -> int:
        return len(self._given.bodies)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self._given.bodies[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._given.bodies)

    def of(self, position: int) -> Work[Any]:
        """Return a ``with`` block in which one message is in process.

        Raises:
            InvalidBatchError: There is no such position.

        """
        at = None if isinstance(position, bool) else _index(position)
        if at is None or not 0 <= at < len(self):
            # A negative position, a mask, or a share, would name other messages than meant.
            raise InvalidBatchError(
                f"the batch has messages 0 to {len(self) - 1}, not {position!r}"
            )
        return self._given.work(at)

    def fail(self, position: int, why: str | BaseException) -> None:
        """Fail one message: its trees are nacked with this reason; the first reason counts.

        ``on_failure`` is called with the message and the reason, as an exception.

        Raises:
            InvalidBatchError: There is no such position.

        """
        error = why if isinstance(why, BaseException) else HandlerError(why)
        self.of(position).failed(error)

    def skip(self, position: int) -> None:
        """Let one message be confirmed without an ack or a failure, because it is a duplicate.

        Raises:
            InvalidBatchError: There is no such position.

        """
        self.of(position).skip()

    def emit(
        self, counts: int | Sequence[int] | Any = 1, *, key: str | None = None, edge: str = ""
    ) -> Emitted:
        """Return the ids of messages that the handler sends itself: exactly one with each id.

        They must be sent before the handler returns. The transport does not report on them.

        Args:
            counts: The number of new messages that each message has caused: one number for all, or
                a column with one for each, also of numpy.
            key: Makes the ids deterministic: a message has at most one child of each key.
            edge: The name of the edge that the messages travel on.

        Raises:
            InvalidBatchError: ``counts`` has another length, or a number that is negative or not
                whole; a message has a child of this key; or ``counts`` is above 1 with a key.

        """
        single = _index(counts)
        several: Any = counts
        column = [single] * len(self) if single is not None else [*map(_index, several)]
        number = [each for each in column if each is not None and each >= 0]
        if not len(number) == len(column) == len(self):
            raise InvalidBatchError(
                f"counts are one whole number for each of the {len(self)} messages, 0 or more"
            )
        if key is not None and max(number, default=0) > 1:
            raise InvalidBatchError("with key= a message has one child; call emit() for each key")
        parents = [at for at, count in enumerate(number) for _ in range(count)]
        return Emitted(parents, self._given.emit(number, key, edge))


def _index(number: Any) -> int | None:
    """Return a whole number, also of numpy; None for any other value."""
    try:
        return index(number)
    except TypeError:
        return None


def run_batch(given: Given, handler: Handler, isolate: bool) -> None:
    """Call a handler with messages, unless there are none.

    An Exception fails all messages. With ``isolate`` the handler gets them again, one by one, and
    only those fail with which it raises again.
    """
    if not given.bodies:
        return
    try:
        check_done(handler, handler(Messages(given)))
    except Exception as error:
        for one in _again(given, error, isolate):
            run_batch(one, handler, False)


async def run_batch_async(given: Given, handler: Handler, isolate: bool) -> None:
    """Call a handler with messages, and await it; see :func:`run_batch`."""
    if not given.bodies:
        return
    try:
        found = handler(Messages(given))
        check_done(handler, await found if isawaitable(found) else found)
    except Exception as error:
        for one in _again(given, error, isolate):
            await run_batch_async(one, handler, False)


def _again(given: Given, error: Exception, isolate: bool) -> list[Works]:
    """Return the batches of one message to run again; fail all messages if there are none."""
    works = [given.work(at) for at in range(len(given.bodies))]
    if isolate and len(works) > 1:
        again = [(w, body) for w, body in zip(works, given.bodies, strict=True) if w.error is None]
        for work, _ in again:
            work.again()
        return [Works([each]) for each in again]
    for work in works:
        work.failed(error)
    return []
