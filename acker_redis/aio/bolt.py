"""Bolts for asyncio: as :mod:`acker_redis.sync.bolt`, with a sink whose ``add`` is awaited."""

from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from acker_redis.aio.bolt_batch import AsyncBatchHandle
from acker_redis.aio.client import AsyncAcker
from acker_redis.arguments import check_sink
from acker_redis.errors import ClosedError, ConfigError, needs
from acker_redis.protocol.id_maker import PLAIN, IdMaker
from acker_redis.protocol.rows import Row
from acker_redis.protocol.texts import words
from acker_redis.trees.forgotten import Reported
from acker_redis.trees.message_id import AnyId, MessageId
from acker_redis.trees.processing import Processing, emit_from

if TYPE_CHECKING:
    from acker_redis.trees.processing_batch import Given


class AsyncSink(Protocol):
    """The receiver of rows: an AsyncProducer, or an object whose ``add`` takes all rows or none."""

    async def add(self, rows: list[Row], wait: bool = True) -> None:
        """Take these rows, all or none.

        With ``wait=False`` it must not suspend: it takes the rows or raises.
        """


class AsyncBolt:
    """A bolt for asyncio: processes messages, and sends their rows to a sink.

    The asyncio twin of :class:`acker_redis.Bolt`.

    Args:
        sink: An :class:`AsyncProducer`, or an object with its ``add(rows, wait=True)``.
        ids: Makes the ids of emitted messages; by default those of the sink's acker, which
            ``async with`` reads when the first block begins, and from time to time. Before that ids
            have no code, and ``key=`` is refused.

    Raises:
        ConfigError: ``sink`` has no ``add`` that is a coroutine function.

    Examples:
        >>> import asyncio
        >>> class Rows(list):
        ...     async def add(self, rows, wait=True):
        ...         self.extend(rows)
        >>> async def main():
        ...     rows = Rows()
        ...     bolt = AsyncBolt(rows)
        ...     async with bolt.process("7:40") as t:
        ...         child = t.emit()  # and send a message with this id
        ...     return rows == [Row(7, 40 ^ child[7])]
        >>> asyncio.run(main())
        True

    """

    def __init__(self, sink: AsyncSink, *, ids: IdMaker | None = None) -> None:
        check_sink(sink, "an AsyncBolt", awaited=True)
        self._sink = sink
        acker = getattr(sink, "acker", None)
        self._acker = acker if isinstance(acker, AsyncAcker) and not ids else None
        self._given = ids or PLAIN

    def process(self, *inputs: AnyId) -> "AsyncHandle":
        """Begin to process a message, or several together; return a handle for ``async with``.

        See :meth:`acker_redis.sync.bolt.Bolt.process`.

        Args:
            *inputs: The ids of the messages, as text, bytes or :class:`MessageId`.

        Raises:
            InvalidBatchError: An input is no message id, or a message is given twice.

        Examples:
            >>> AsyncBolt(sink=None).process("").emit()
            MessageId.parse('')

        """
        return AsyncHandle(Processing(*inputs, ids=self._ids), self._sink, self._acker)

    def process_batch(self, ids: "Iterable[Given]") -> AsyncBatchHandle:
        """Begin to process a batch of messages, each on its own; return a handle.

        Use it with ``async with``. See :meth:`acker_redis.sync.bolt.Bolt.process_batch`, also for
        errors.

        Args:
            ids: The ids of the messages.

        """
        acker = getattr(self._sink, "acker", None)
        if not isinstance(acker, AsyncAcker):
            raise ConfigError("process_batch() needs an AsyncBolt whose sink is an AsyncProducer")
        with needs("numpy", "process_batch()"):
            from acker_redis.trees.processing_batch import ProcessingBatch
        return AsyncBatchHandle(ProcessingBatch(ids, ids=self._ids), acker)

    def _ids(self) -> IdMaker:
        return self._acker.flows.ids if self._acker else self._given

    def emit(self, *handles: "AsyncHandle", key: str | None = None, edge: str = "") -> MessageId:
        """Return the id of a message that several handles caused (a window).

        Each of the handles is acked or failed on its own. See
        :func:`acker_redis.trees.processing.emit_from`, also for its errors.

        Args:
            *handles: The handles of the messages that caused the new message.
            key: If given, the id is derived from the inputs and this key, not random: see
                :meth:`AsyncHandle.emit`.
            edge: The name of the edge that the message travels on.

        Examples:
            >>> bolt = AsyncBolt(sink=None)
            >>> sorted(bolt.emit(bolt.process("7:40"), bolt.process("8:41")))
            [7, 8]

        """
        return emit_from(*(handle.processing for handle in handles), key=key, edge=edge)


class AsyncHandle(Reported):
    """A message, or several together, in process; from :meth:`AsyncBolt.process`.

    The asyncio twin of :class:`acker_redis.sync.bolt.Handle`, for ``async with``. If the task is
    cancelled inside the block, the messages are failed without suspending, with the reason
    ``CancelledError``. The cancellation propagates.

    Examples:
        >>> import asyncio
        >>> class Rows(list):
        ...     async def add(self, rows, wait=True):
        ...         self.extend(rows)
        >>> async def main():
        ...     rows = Rows()
        ...     t = AsyncHandle(Processing("7:40"), rows)
        ...     await t.ack()
        ...     return rows
        >>> asyncio.run(main())
        [Row(anchor=7, delta=40, flags=0, text='')]

    """

    __slots__ = ("_acker", "_sink", "_why")

    def __init__(
        self, processing: Processing, sink: AsyncSink, acker: AsyncAcker | None = None
    ) -> None:
        self.processing: Processing = processing
        """The state of these messages; it computes the rows and sends none."""
        self._sink = sink
        self._acker = acker
        """Whose edges and salt the block reads when it begins, if they are not known yet."""
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
            >>> t = AsyncBolt(sink=None).process("7:40", "8:41")
            >>> sorted(t.emit()), sorted(t.emit("8:41")), sorted(t.emit([]))
            ([7, 8], [8], [])

        """
        return self.processing.emit(inputs, key=key, edge=edge)

    async def ack(self) -> None:
        """Ack the messages: they were processed. Emit all children before.

        If the sink refuses the rows, or the task is cancelled, the handle is open again.

        Raises:
            ClosedError: The messages were acked or failed before.
            AckerError: The sink refuses the rows.

        Examples:
            >>> import asyncio
            >>> asyncio.run(AsyncBolt(sink=None).process("").ack())

        """
        await self._deliver(self.processing.acked())

    async def fail(self, why: str | BaseException = "") -> None:
        """Fail the messages: their trees are nacked at once, and the source gets the reason.

        Args:
            why: The reason, as text or exception; cut to 255 bytes.

        Raises:
            ClosedError: The messages were failed before.
            AckerError: The sink refuses the rows; the handle is open again.

        Examples:
            >>> import asyncio
            >>> asyncio.run(AsyncBolt(sink=None).process("").fail("no such address"))

        """
        rows = self.processing.failed(why)
        self._why = why
        await self._deliver(rows)

    async def reset_timeout(self) -> None:
        """Restart the timeout of the messages' trees, because processing takes longer.

        Raises:
            ClosedError: The messages were acked or failed before.
            AckerError: The sink refuses the rows.

        Examples:
            >>> import asyncio
            >>> asyncio.run(AsyncBolt(sink=None).process("").reset_timeout())

        """
        if rows := self.processing.touched():
            await self._sink.add(rows)

    async def __aenter__(self) -> Self:
        if not self.processing.open:
            raise ClosedError(
                "this message was acked or failed before and cannot be processed again"
            )
        if self._acker:
            # Without an answer the ids have no code, and key= is refused; all else works.
            await self._acker.fresh_ids()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            await self._give_up(error)
        elif self.processing.open:
            try:
                if self._why is None:
                    await self.ack()
                else:
                    await self.fail(self._why)
            except BaseException as unsent:
                await self._give_up(unsent)
                raise

    async def _give_up(self, error: BaseException) -> None:
        if self.processing.has_failed:
            return
        why = error if self._why is None else self._why
        try:
            await self._deliver(self.processing.failed(why), wait=False)
        except Exception as unsent:
            with suppress(Exception):  # some exceptions refuse notes
                error.add_note(f"its trees cannot be failed and will expire: {words(unsent)}")

    async def _deliver(self, rows: list[Row], wait: bool = True) -> None:
        try:
            if rows:
                await self._sink.add(rows, wait=wait)
        except BaseException:
            self.processing.reopen()
            raise


class AsyncCurrent(AsyncHandle):
    """The handle of a message that an integration acks or fails: to drop it is no mistake."""

    __slots__ = ()

    def __del__(self) -> None:
        """Report nothing."""
