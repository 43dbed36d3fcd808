"""Bolts for asyncio: as :mod:`acker_redis.sync.bolt`, with a sink that is awaited."""

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


class AsyncSink(Protocol):
    """Where rows go: anything that takes all of them, or raises and takes none."""

    async def add(self, rows: list[Row], wait: bool = True) -> None:
        """Take these rows. Without ``wait`` it never suspends: it takes them or raises."""


class AsyncBolt:
    """Processes messages, and gives their rows to a sink.

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

    def __init__(self, sink: AsyncSink) -> None:
        check_sink(sink, "an AsyncBolt", awaited=True)
        self._sink = sink

    def process(self, *inputs: str | MessageId) -> "AsyncHandle":
        """Begin to process a message, or several together: a handle, best used by ``async with``.

        As :meth:`acker_redis.sync.bolt.Bolt.process`.

        >>> AsyncBolt(sink=None).process("").emit()
        MessageId.parse('')
        """
        return AsyncHandle(Processing(*inputs), self._sink)

    def emit(self, *handles: "AsyncHandle", key: str | None = None) -> MessageId:
        """Id of a message that several handles caused, each of which is acked by itself (a window).

        See :func:`acker_redis.trees.processing.emit_from`, for its errors too.

        >>> bolt = AsyncBolt(sink=None)
        >>> sorted(bolt.emit(bolt.process("7:40"), bolt.process("8:41")))
        [7, 8]
        """
        return emit_from(*(handle.processing for handle in handles), key=key)


class AsyncHandle:
    """Messages that are being processed.

    As :class:`acker_redis.sync.bolt.Handle`, by ``async with``. Cancelled in the block they are
    failed, with the words ``CancelledError``, without suspending, and the cancellation goes on.

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

    __slots__ = ("_sink", "_why", "processing")

    def __init__(self, processing: Processing, sink: AsyncSink) -> None:
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

        >>> t = AsyncBolt(sink=None).process("7:40", "8:41")
        >>> sorted(t.emit()), sorted(t.emit("8:41")), sorted(t.emit([]))
        ([7, 8], [8], [])
        """
        return self.processing.emit(inputs, key=key)

    async def ack(self) -> None:
        """The messages were processed. Emit before: ClosedError from then on.

        Raises what the sink raises, and is then open again; so when it was cancelled.

        >>> import asyncio
        >>> asyncio.run(AsyncBolt(sink=None).process("").ack())
        """
        await self._deliver(self.processing.acked())

    async def fail(self, why: str | BaseException = "") -> None:
        """They failed: their trees are nacked at once, the source hears why (255 bytes at most).

        Raises ClosedError when they were failed before, and what the sink raises.

        >>> import asyncio
        >>> asyncio.run(AsyncBolt(sink=None).process("").fail("no such address"))
        """
        rows = self.processing.failed(why)
        self._why = why
        await self._deliver(rows)

    async def reset_timeout(self) -> None:
        """More time is needed: the clock of their trees starts anew.

        Raises ClosedError when they were acked or failed, and what the sink raises.

        >>> import asyncio
        >>> asyncio.run(AsyncBolt(sink=None).process("").reset_timeout())
        """
        if rows := self.processing.touched():
            await self._sink.add(rows)

    async def __aenter__(self) -> Self:
        if not self.processing.open:
            raise ClosedError("this message was acked or failed before")
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
            with suppress(Exception):  # an exception may be frozen
                error.add_note(f"its trees could not be failed, they expire: {words(unsent)}")

    async def _deliver(self, rows: list[Row], wait: bool = True) -> None:
        try:
            if rows:
                await self._sink.add(rows, wait=wait)
        except BaseException:
            self.processing.reopen()
            raise
