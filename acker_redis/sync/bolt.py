"""Bolts: whoever processes messages, says so, and sends on what they caused.

In Storm's words: ``collector.emit(anchors, values)`` is ``t.emit()``, whose id goes with the
values; ``collector.ack(tuple)``, ``fail`` and ``resetTimeout`` are ``t.ack()``, ``t.fail()`` and
``t.reset_timeout()``. In FsShelter's: ``track`` is :func:`acker_redis.trees.processing.emit`,
``anchor`` is ``t.emit()``, ``mkAck`` is ``t.ack()`` and ``t.fail()``, and both in one row. What is
here only sends: :mod:`acker_redis.trees.processing` knows what a row is. For asyncio:
:mod:`acker_redis.aio.bolt`.
"""

from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from acker_redis.errors import ClosedError
from acker_redis.kinds import check_sink
from acker_redis.protocol.rows import Row
from acker_redis.protocol.texts import words
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.processing import Processing, emit_from


class Sink(Protocol):
    """Where rows go: a Producer, or anything that takes all of them or raises and takes none."""

    def add(self, rows: list[Row], wait: bool = True) -> None:
        """Take these rows. Waits for room at most if it may; else it raises at once."""


class Bolt:
    """Processes messages, and gives their rows to a sink.

    >>> class Rows(list):
    ...     def add(self, rows, wait=True):
    ...         self.extend(rows)
    >>> rows = Rows()
    >>> bolt = Bolt(rows)
    >>> with bolt.process("7:40") as t:
    ...     child = t.emit()  # and send a message with this id
    >>> rows == [Row(7, 40 ^ child[7])]
    True

    Any thread may use it.
    """

    def __init__(self, sink: Sink) -> None:
        check_sink(sink, "a Bolt", awaited=False)
        self._sink = sink

    def process(self, *inputs: str | MessageId) -> "Handle":
        """Begin to process a message, or several together: a handle, best used by ``with``.

        Of an unanchored message, whose id is empty, nothing is sent. Inputs are text or
        :class:`MessageId`; see :meth:`MessageId.from_headers`.

        >>> with Bolt(sink=None).process("") as t:
        ...     t.emit()
        MessageId.parse('')

        Raises InvalidBatchError for what is no message id, or a message given twice.
        """
        return Handle(Processing(*inputs), self._sink)

    def emit(self, *handles: "Handle", key: str | None = None) -> MessageId:
        """Id of a message that several handles caused, each of which is acked by itself (a window).

        See :func:`acker_redis.trees.processing.emit_from`, for its errors too.

        >>> bolt = Bolt(sink=None)
        >>> window = [bolt.process("7:40"), bolt.process("8:41")]
        >>> sorted(bolt.emit(*window))
        [7, 8]
        """
        return emit_from(*(handle.processing for handle in handles), key=key)


class Handle:
    """Messages that are being processed.

    Left by ``with`` it is acked; by an exception of any kind it is failed, with the exception's
    words and without waiting for room in the sink, and the exception goes on. What was acked or
    failed in the block stays so, but that an exception after an ack adds a failure to it. Or keep
    it, and say :meth:`ack` or :meth:`fail` later; what is never said expires.

    When the sink raises, nothing was said: it is open as before. But what was to be failed is
    never acked by leaving the block.

    >>> class Rows(list):
    ...     def add(self, rows, wait=True):
    ...         self.extend(rows)
    >>> rows = Rows()
    >>> with Handle(Processing("7:40"), rows):
    ...     raise ValueError("no such address")
    Traceback (most recent call last):
    ValueError: no such address
    >>> rows
    [Row(anchor=7, delta=40, flags=2, text='ValueError: no such address')]
    """

    __slots__ = ("_sink", "_why", "processing")

    def __init__(self, processing: Processing, sink: Sink) -> None:
        self.processing = processing
        """What it does, without the sending."""
        self._sink = sink
        self._why: str | BaseException | None = None
        """Why it was to be failed; should the sink not take it, it must not be acked instead."""

    def emit(
        self,
        inputs: str | MessageId | Iterable[str | MessageId] | None = None,
        *,
        key: str | None = None,
    ) -> MessageId:
        """Id of a message that the inputs caused: all, or those given. Send one message with it.

        With a ``key`` it is derived, not drawn; see
        :meth:`acker_redis.trees.processing.Processing.emit`, for its errors too.

        >>> t = Bolt(sink=None).process("7:40", "8:41")
        >>> sorted(t.emit()), sorted(t.emit("8:41")), sorted(t.emit([]))
        ([7, 8], [8], [])
        """
        return self.processing.emit(inputs, key=key)

    def ack(self) -> None:
        """The messages were processed. Emit before: ClosedError from then on.

        Raises what the sink raises.

        >>> t = Bolt(sink=None).process("")
        >>> t.ack()
        >>> t.emit()
        Traceback (most recent call last):
        acker_redis.errors.ClosedError: this message was acked before
        """
        self._deliver(self.processing.acked())

    def fail(self, why: str | BaseException = "") -> None:
        """They failed: their trees are nacked at once, the source hears why (255 bytes at most).

        Raises ClosedError when they were failed before, and what the sink raises.

        >>> Bolt(sink=None).process("").fail("no such address")
        """
        rows = self.processing.failed(why)
        self._why = why
        self._deliver(rows)

    def reset_timeout(self) -> None:
        """More time is needed: the clock of their trees starts anew.

        Raises ClosedError when they were acked or failed, and what the sink raises.

        >>> Bolt(sink=None).process("").reset_timeout()
        """
        if rows := self.processing.touched():
            self._sink.add(rows)

    def __enter__(self) -> Self:
        if not self.processing.open:
            raise ClosedError("this message was acked or failed before")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._give_up(error)
        elif self.processing.open:
            try:
                if self._why is None:
                    self.ack()
                else:
                    self.fail(self._why)
            except BaseException as unsent:
                self._give_up(unsent)
                raise

    def _give_up(self, error: BaseException) -> None:
        if self.processing.has_failed:
            return
        why = error if self._why is None else self._why
        try:
            self._deliver(self.processing.failed(why), wait=False)
        except Exception as unsent:
            with suppress(Exception):  # an exception may be frozen
                error.add_note(f"its trees could not be failed, they expire: {words(unsent)}")

    def _deliver(self, rows: list[Row], wait: bool = True) -> None:
        try:
            if rows:
                self._sink.add(rows, wait=wait)
        except BaseException:
            self.processing.reopen()
            raise
