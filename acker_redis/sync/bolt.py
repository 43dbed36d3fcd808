"""Bolts: programs that process messages, ack or fail them, and emit the messages they cause.

The names in Storm: ``collector.emit(anchors, values)`` is ``t.emit()``, whose id goes with the
values; ``collector.ack(tuple)``, ``fail`` and ``resetTimeout`` are ``t.ack()``, ``t.fail()`` and
``t.reset_timeout()``. The names in FsShelter: ``track`` is
:func:`acker_redis.trees.processing.emit`, ``anchor`` is ``t.emit()``, and ``mkAck`` is ``t.ack()``
and ``t.fail()``, with ack and anchored ids in one row.

This module only sends rows: :mod:`acker_redis.trees.processing` computes them. For asyncio see
:mod:`acker_redis.aio.bolt`.
"""

from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from acker_redis.arguments import check_sink
from acker_redis.errors import ClosedError, ConfigError, needs
from acker_redis.protocol.id_maker import PLAIN, IdMaker
from acker_redis.protocol.rows import Row
from acker_redis.protocol.texts import words
from acker_redis.sync.bolt_batch import BatchHandle
from acker_redis.sync.client import Acker
from acker_redis.trees.forgotten import Reported
from acker_redis.trees.message_id import AnyId, MessageId
from acker_redis.trees.processing import Ids, Processing, emit_from

if TYPE_CHECKING:
    from acker_redis.trees.processing_batch import Given


class Sink(Protocol):
    """The receiver of rows: a Producer, or an object whose ``add`` takes all rows or none."""

    def add(self, rows: list[Row], wait: bool = True) -> None:
        """Take these rows, all or none.

        With ``wait=True`` the call may wait for room. With ``wait=False`` it must not wait: it
        takes the rows or raises at once.
        """


class Bolt:
    """A bolt: processes messages, and sends their rows to a sink.

    Thread-safe.

    Args:
        sink: A :class:`Producer`, or an object with its ``add(rows, wait=True)``.
        ids: Makes the ids of emitted messages; by default those of the sink's ``acker``, which
            reads the configuration when the first id is needed, and from time to time. A sink of
            your own, in a namespace with edges, needs ``ids=acker.ids``.

    Raises:
        ConfigError: ``sink`` has no ``add``, or an ``add`` that must be awaited.

    Examples:
        >>> class Rows(list):
        ...     def add(self, rows, wait=True):
        ...         self.extend(rows)
        >>> rows = Rows()
        >>> bolt = Bolt(rows)
        >>> with bolt.process("7:40") as t:
        ...     child = t.emit()  # and send a message with this id
        >>> rows == [Row(7, 40 ^ child[7])]
        True

    """

    def __init__(self, sink: Sink, *, ids: IdMaker | None = None) -> None:
        check_sink(sink, "a Bolt", awaited=False)
        self._sink = sink
        acker = getattr(sink, "acker", None)
        self._ids: Ids = ids or (acker.fresh_ids if isinstance(acker, Acker) else PLAIN)

    def process(self, *inputs: AnyId) -> "Handle":
        """Begin to process a message, or several messages together; return a handle for ``with``.

        An unanchored message (its id is the empty text) sends no rows.

        Args:
            *inputs: The ids of the messages, as text, bytes or :class:`MessageId`; see
                :meth:`MessageId.from_headers`.

        Raises:
            InvalidBatchError: An input is no message id, or a message is given twice.

        Examples:
            >>> with Bolt(sink=None).process("") as t:
            ...     t.emit()
            MessageId.parse('')

        """
        return Handle(Processing(*inputs, ids=self._ids), self._sink)

    def process_batch(self, ids: "Iterable[Given]") -> "BatchHandle":
        """Begin to process a batch of messages, each on its own; return a handle for ``with``.

        For consumers that poll batches: the same as ``process()`` for each message, in columns of
        numpy, which cost a tenth as much.

        Args:
            ids: The ids of the messages: header values as text or bytes, or MessageIds. '' and None
                stand for an unanchored message.

        Raises:
            ConfigError: The sink is no :class:`Producer`.
            MissingExtraError: numpy is not installed.
            InvalidBatchError: A value is no message id; the error says at which position.

        Examples:
            >>> from acker_redis import AckerConfig, Producer
            >>> from acker_redis.embedded import EmbeddedRedis
            >>> with EmbeddedRedis() as server, Acker.from_url(server.url, "orders") as acker:
            ...     _ = acker.create(AckerConfig())
            ...     with Producer(acker) as producer:
            ...         with Bolt(producer).process_batch(["7:40", b"8:41", "9:42"]) as batch:
            ...             children = batch.emit([1, 1, 0])  # send messages with children.texts
            ...             batch.fail(2, "no such address")
            >>> len(children)
            2

        """
        acker = getattr(self._sink, "acker", None)
        if not isinstance(acker, Acker):
            raise ConfigError("process_batch() needs a Bolt whose sink is a Producer")
        with needs("numpy", "process_batch()"):
            from acker_redis.trees.processing_batch import ProcessingBatch
        return BatchHandle(ProcessingBatch(ids, ids=self._ids), acker)

    def emit(self, *handles: "Handle", key: str | None = None, edge: str = "") -> MessageId:
        """Return the id of a message that several handles caused (a window).

        Each of the handles is acked or failed on its own. See
        :func:`acker_redis.trees.processing.emit_from`, also for its errors.

        Args:
            *handles: The handles of the messages that caused the new message.
            key: If given, the id is derived from the inputs and this key, not random: see
                :meth:`Handle.emit`.
            edge: The name of the edge that the message travels on.

        Examples:
            >>> bolt = Bolt(sink=None)
            >>> window = [bolt.process("7:40"), bolt.process("8:41")]
            >>> sorted(bolt.emit(*window))
            [7, 8]

        """
        return emit_from(*(handle.processing for handle in handles), key=key, edge=edge)


class Handle(Reported):
    """A message, or several together, in process; from :meth:`Bolt.process`.

    Use it in a ``with`` block, or keep it and call :meth:`ack` or :meth:`fail` later:

    - A block that ends normally acks the messages.
    - A block that ends with an exception of any kind fails them, with the exception as the reason,
      and without waiting for room in the sink. The exception propagates.
    - An ack or failure inside the block stays. Only an exception after an ack adds a failure.
    - Messages that are neither acked nor failed expire.

    If the sink raises, no row was sent, and the handle is open as before. But messages whose
    failure the sink refused are never acked by leaving the block.

    Examples:
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

    __slots__ = ("_sink", "_why")

    def __init__(self, processing: Processing, sink: Sink) -> None:
        self.processing: Processing = processing
        """The state of these messages; it computes the rows and sends none."""
        self._sink = sink
        self._why: str | BaseException | None = None
        """The reason of a failure that the sink refused: leaving the block must not ack then."""

    def emit(
        self,
        inputs: AnyId | Iterable[AnyId] | None = None,
        *,
        key: str | None = None,
        edge: str = "",
    ) -> MessageId:
        """Return the id of a new message that the inputs caused. Send exactly one message with it.

        Args:
            inputs: The inputs that caused the message; None means all. The message is unanchored
                with ``[]``.
            key: If given, the id is derived from the inputs and this key, not random: a retry of
                the same messages gets the same ids. The key says which child it is: its ordinal, or
                its destination.
            edge: The name of the edge that the message travels on, mostly that of its queue. The
                namespace must list it: see :attr:`AckerConfig.edges`.

        Raises:
            ClosedError: The messages were acked or failed, or this process is a fork of the one
                that began them.
            InvalidBatchError: An id is no input, the key was used before, or the message would have
                more than 1638 trees.

        Examples:
            >>> t = Bolt(sink=None).process("7:40", "8:41")
            >>> sorted(t.emit()), sorted(t.emit("8:41")), sorted(t.emit([]))
            ([7, 8], [8], [])

        """
        return self.processing.emit(inputs, key=key, edge=edge)

    def ack(self) -> None:
        """Ack the messages: they were processed. Emit all children before.

        Raises:
            ClosedError: The messages were acked or failed before.
            AckerError: The sink refuses the rows, such as BufferFullError; the handle is open
                again.

        Examples:
            >>> t = Bolt(sink=None).process("")
            >>> t.ack()
            >>> t.emit()
            Traceback (most recent call last):
            acker_redis.errors.ClosedError: this message was acked before

        """
        self._deliver(self.processing.acked())

    def fail(self, why: str | BaseException = "") -> None:
        """Fail the messages: their trees are nacked at once, and the source gets the reason.

        Args:
            why: The reason, as text or exception; cut to 255 bytes.

        Raises:
            ClosedError: The messages were failed before.
            AckerError: The sink refuses the rows; the handle is open again.

        Examples:
            >>> Bolt(sink=None).process("").fail("no such address")

        """
        rows = self.processing.failed(why)
        self._why = why
        self._deliver(rows)

    def reset_timeout(self) -> None:
        """Restart the timeout of the messages' trees, because processing takes longer.

        Raises:
            ClosedError: The messages were acked or failed before.
            AckerError: The sink refuses the rows.

        Examples:
            >>> Bolt(sink=None).process("").reset_timeout()

        """
        if rows := self.processing.touched():
            self._sink.add(rows)

    def __enter__(self) -> Self:
        if not self.processing.open:
            raise ClosedError(
                "this message was acked or failed before and cannot be processed again"
            )
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
            with suppress(Exception):  # some exceptions refuse notes
                error.add_note(f"its trees cannot be failed and will expire: {words(unsent)}")

    def _deliver(self, rows: list[Row], wait: bool = True) -> None:
        try:
            if rows:
                self._sink.add(rows, wait=wait)
        except BaseException:
            self.processing.reopen()
            raise


class Current(Handle):
    """The handle of a message that an integration acks or fails: to drop it is no mistake."""

    __slots__ = ()

    def __del__(self) -> None:
        """Report nothing."""
