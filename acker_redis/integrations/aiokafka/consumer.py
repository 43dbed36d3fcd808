"""A Kafka consumer for asyncio that acks what it has processed, and commits no offset above that.

The order of events is that of :mod:`acker_redis.integrations.kafka.consumer`. All of it runs in one
event loop. Handlers of different messages may run side by side.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from acker_redis.aio.bolt import AsyncCurrent, AsyncHandle
from acker_redis.aio.client import AsyncAcker
from acker_redis.aio.producer import AsyncProducer
from acker_redis.arguments import check_is
from acker_redis.errors import AckerError, BufferFullError, ConfigError
from acker_redis.integrations.aiokafka.producer import Got
from acker_redis.integrations.core.batches import Messages, run_batch_async
from acker_redis.integrations.core.ended import Ended, Sent
from acker_redis.integrations.core.failures import OnFailure
from acker_redis.integrations.core.headers import text_of
from acker_redis.integrations.core.until_signal import until_signal
from acker_redis.integrations.core.work import in_process
from acker_redis.integrations.kafka_messages.deliveries import (
    Begin,
    Deliveries,
    limited,
    raising_async,
)
from acker_redis.integrations.kafka_messages.in_process import FLUSH, IDLE, SETTLE, InProcess
from acker_redis.integrations.kafka_messages.partitions import (
    Moved,
    Place,
    check_auto_commit,
    runs,
)

log = logging.getLogger(__name__)

_LOG_APPEND_TIME = 1

Handler = Callable[[Any], Awaitable[object]]
BatchHandler = Callable[[Messages], Awaitable[object]]
Process = Callable[[list[Any]], Awaitable[object]]


class _Listener(ConsumerRebalanceListener):
    """Tells the consumer, and then the application, which partitions come and go."""

    def __init__(self, consumer: "TrackedAsyncConsumer", theirs: Any) -> None:
        self._consumer = consumer
        self._theirs = theirs

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._consumer._assigned.assign(assigned)
        if self._theirs is not None:
            await _result(self._theirs.on_partitions_assigned(assigned))

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        await self._consumer._give_away(revoked)
        if self._theirs is not None:
            await _result(self._theirs.on_partitions_revoked(revoked))


class TrackedAsyncConsumer(AIOKafkaConsumer):
    """A consumer of aiokafka that tracks what its handler does.

    The asyncio twin of :class:`acker_redis.integrations.kafka.TrackedConsumer`: what it says about
    failures, messages without a header and rebalances holds here, too. :meth:`run` calls a
    coroutine function for each message, one after the other. A program with its own loop calls
    :meth:`handle` and :meth:`commit`, and may handle several messages side by side:
    ``asyncio.gather(*(consumer.handle(each, price) for each in messages))``.

    Args:
        acker: The client of the namespace.
        *topics: The topics to subscribe to.
        on_failure: ``on_failure(message, error)`` is called for each message that failed, for
            example to send it to a dead-letter topic; it may be a coroutine function. What it sends
            is not tracked, but the offset waits for its delivery. If it raises, or Kafka refuses
            what it has sent, the exception ends :meth:`run`.
        skip_ended: See :class:`acker_redis.integrations.kafka.TrackedConsumer`: right only for
            topics into which a :class:`Source` or an outbox sends.
        deliveries: Maximum number of deliveries of a message, at least 2, for messages that kill or
            hang their consumers; see :class:`acker_redis.integrations.kafka.TrackedConsumer`.
        **config: The arguments of :class:`aiokafka.AIOKafkaConsumer`. ``enable_auto_commit`` is
            False.

    Raises:
        ConfigError: ``enable_auto_commit`` is on, which would commit messages in process; there is
            no ``group_id``; or ``deliveries`` is below 2.

    Examples:
        >>> from acker_redis.integrations.aiokafka import TrackedAsyncConsumer
        >>> async def main(servers):
        ...     async with AsyncAcker.from_url(url, "orders") as acker:
        ...         consumer = TrackedAsyncConsumer(
        ...             acker, "orders", bootstrap_servers=servers, group_id="pricing"
        ...         )
        ...         async with consumer:
        ...             await consumer.run(price)

    """

    def __init__(
        self,
        acker: AsyncAcker,
        *topics: str,
        on_failure: OnFailure | None = None,
        skip_ended: bool = False,
        deliveries: int | None = None,
        **config: Any,
    ) -> None:
        check_is(acker, AsyncAcker, "a TrackedAsyncConsumer")
        check_auto_commit(config, "enable_auto_commit", "TrackedAsyncConsumer")
        if not config.get("group_id"):
            raise ConfigError("group_id is missing: without a group no offset can be committed")
        super().__init__(**{**config, "enable_auto_commit": False})
        self.acker = acker
        self._sink = AsyncProducer(acker)
        self._in_process = InProcess(Got, self, lambda: acker.flows.ids, on_failure)
        self._assigned = self._in_process.partitions
        self._deliveries = limited(deliveries, self._assigned)
        self._ended = Ended(acker.flows) if skip_ended else None
        self._finish = asyncio.Event()
        self._left = False
        if topics:
            self.subscribe(topics)

    @property
    def skipped(self) -> int:
        """Messages that no handler got, because their trees had ended."""
        return self._in_process.skipped

    @property
    def current(self) -> AsyncHandle:
        """The handle of the message in process, for ``reset_timeout()``.

        Raises:
            ConfigError: No handler runs in this context.

        """
        return AsyncCurrent(in_process(Got, "current").processing, self._sink)

    def subscribe(
        self, topics: Iterable[str] = (), pattern: str | None = None, listener: Any = None
    ) -> None:
        """Subscribe to topics, as aiokafka does.

        The listener is told of revoked partitions after their offsets were committed.
        """
        super().subscribe(topics, pattern, _Listener(self, listener))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign partitions without a group's rebalance, as aiokafka does."""
        chosen = list(partitions)
        super().assign(chosen)
        self._assigned.forget()
        self._assigned.assign(chosen)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset, as aiokafka does. The next commit may go back, too.

        Messages of the partition that were read before are not processed any more.
        """
        super().seek(partition, offset)
        self._assigned.seek(partition)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> Any:
        """Continue at the first offsets, as aiokafka does; see :meth:`seek`."""
        moved = partitions or self.assignment()
        return (await super().seek_to_beginning(*partitions)) and self._moved(moved)

    async def seek_to_end(self, *partitions: TopicPartition) -> Any:
        """Continue at the end, as aiokafka does; see :meth:`seek`."""
        moved = partitions or self.assignment()
        return (await super().seek_to_end(*partitions)) and self._moved(moved)

    async def seek_to_committed(self, *partitions: TopicPartition) -> Any:
        """Continue at the committed offsets, as aiokafka does; see :meth:`seek`."""
        answer = await super().seek_to_committed(*partitions)
        # aiokafka does not move a partition without a committed offset, or with 0.
        self._moved([place for place, offset in answer.items() if offset])
        return answer

    async def getone(self, *partitions: TopicPartition) -> Any:
        """Return the next message, as aiokafka does."""
        message = await super().getone(*partitions)
        self._assigned.arrived(*_located(message))
        return message

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Any:
        """Return the next messages by partition, as aiokafka does."""
        found = await super().getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        for each in runs(map(_located, chain.from_iterable(found.values()))):
            self._assigned.arrived(*each)
        return found

    async def run(self, handler: Handler, *, batch: int = 500, commit_every: float = 1.0) -> None:
        """Process messages until :meth:`finish`, SIGTERM or SIGINT; then commit and stop.

        As :meth:`acker_redis.integrations.kafka.TrackedConsumer.run`, with a coroutine function. A
        cancelled handler leaves its message open: Kafka delivers it again.

        Args:
            handler: A coroutine function, called with each message. It may send with a
                :class:`TrackedAsyncProducer`.
            batch: Maximum number of messages that are read at once.
            commit_every: Seconds between two commits.

        Raises:
            KafkaError, AckerError: An error of Kafka; Redis takes no more rows.
            Exception: What ``on_failure`` raises, or the failure of a message without a header.

        """
        await self._run(partial(self._handle_all, handler), batch, commit_every)

    async def run_batches(
        self,
        handler: BatchHandler,
        *,
        batch: int = 500,
        isolate: bool = False,
        commit_every: float = 1.0,
    ) -> None:
        """Process messages in batches until :meth:`finish`, SIGTERM or SIGINT; see :meth:`run`.

        The arguments are those of
        :meth:`acker_redis.integrations.kafka.TrackedConsumer.run_batches`; ``handler`` is a
        coroutine function. A cancelled handler leaves all messages of its batch open.

        Raises:
            Exception: As :meth:`run`.

        """
        process = partial(self.handle_batch, handler=handler, isolate=isolate)
        await self._run(process, batch, commit_every)

    async def handle(
        self, message: Any, handler: Callable[..., Awaitable[object]], *args: Any
    ) -> None:
        """Await ``handler(message, *args)``; the message is acked or failed as soon as it may be.

        An Exception of the handler fails the message, and is not raised. Hand over the messages of
        a partition in their order. Several may be handled side by side. A message that was read and
        is not handed over counts as processed when a later one of its partition is.

        Raises:
            ConfigError: A later message of the partition was handed over before.
            BaseException: What the handler raises that is no Exception: the message stays open, and
                is delivered again.

        """
        work = self._in_process.begin(message, *_located(message), partial(_id_text, message))
        if work is None:
            return
        try:
            await self.acker.fresh_ids()
            await work.run_async(handler, message, *args)
        except Exception as error:
            work.failed(error)
        except BaseException:
            self._in_process.drop(work)
            raise
        work.returned()
        await self._settle()

    async def handle_batch(
        self, messages: Iterable[Any], handler: BatchHandler, *, isolate: bool = False
    ) -> None:
        """Await ``handler`` with messages, as :meth:`run_batches` does; see :meth:`handle`."""
        records = [*messages]
        ended = await self._look_up(records)
        with self._in_process.batch(records, map(_located, records), _id_text, ended) as batch:
            await self.acker.fresh_ids()
            await run_batch_async(batch.given, handler, isolate)
            await self._sink.add_acks(*batch.returned())
            batch.complete()
        await self._settle()

    async def commit(self, offsets: object = None) -> None:
        """Commit the offsets below which every message is processed and acked, and no others.

        It waits up to 10 seconds until Redis has the acks; if not, it commits nothing.

        Raises:
            ConfigError: ``offsets`` is given, which could skip messages in process.
            KafkaError: Kafka refuses the offsets; a later call commits them.

        """
        if offsets is not None:
            raise ConfigError("commit() of a TrackedAsyncConsumer takes no offsets")
        await self._commit()

    async def _commit(self, notes: Iterable[Moved] = ()) -> None:
        await self._settle()
        found = {each.place: each for each in (*self._assigned.moved(), *notes)}
        if not found:
            return
        try:
            await self._sink.flush(FLUSH)
        except BufferFullError as error:
            log.warning("offsets are not committed, the next commit follows: %s", error)
            return
        except AckerError as error:
            # Their trees expire, so their sources are told. They need no second delivery.
            log.warning("some acks were given up: %s", error)
        # Meanwhile a rebalance may have taken partitions away.
        moved = [each for each in found.values() if self._assigned.has(each)]
        if moved:
            await super().commit(
                {TopicPartition(*each.place): (each.position, each.note) for each in moved}
            )
            for each in moved:
                self._assigned.committed(each.place, each.position)

    def finish(self) -> None:
        """End :meth:`run` when the handler that runs has returned."""
        self._finish.set()

    async def stop(self) -> None:
        """Wait for handlers and deliveries, up to 10 seconds, commit, and leave the group."""
        if self._left:
            return
        self._left = True
        try:
            await self._flush()
            await self.commit()
        except KafkaError as error:
            log.warning("messages will be delivered again: %s", error)
        finally:
            try:
                await super().stop()
            finally:
                await self._sink.close()

    async def _run(self, process: Process, batch: int, commit_every: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            with until_signal(lambda: loop.call_soon_threadsafe(self._finish.set)):
                await self._read(process, batch, commit_every)
        finally:
            await self.stop()

    async def _read(self, process: Process, batch: int, commit_every: float) -> None:
        due = time.monotonic() + commit_every
        while not self._finish.is_set():
            wait = round(1000 * (SETTLE if self._in_process else IDLE))
            found = await self.getmany(timeout_ms=wait, max_records=batch)
            messages = [each for several in found.values() for each in several]
            if messages and not self._finish.is_set():
                await self._process(process, messages)
            await self._settle()
            if (now := time.monotonic()) >= due:
                due = now + commit_every
                try:
                    await self.commit()
                except KafkaError as error:
                    log.warning("offsets are not committed, the next commit follows: %s", error)

    async def _process(self, process: Process, messages: list[Any]) -> None:
        """Process messages; with a limit of deliveries, first commit notes of those that begin."""
        if self._deliveries is None:
            await process(messages)
            return
        rest = messages
        while rest and not self._finish.is_set():
            begin = await self._begin(self._deliveries, [*map(_located, rest)])
            now, rest = rest[: begin.take], rest[begin.take :]
            if begin.error is None:
                await process(now)
            else:
                await self.handle(now[0], raising_async, begin.error)

    async def _begin(self, deliveries: Deliveries, places: list[tuple[Place, int]]) -> Begin:
        # Earlier messages are settled first: they must not count for those that begin now.
        await self._flush()
        try:
            if unknown := [TopicPartition(*each) for each in deliveries.unknown(places)]:
                # aiokafka's committed() does not return the metadata.
                found = await self._coordinator.fetch_committed_offsets(unknown)
                for each in unknown:
                    deliveries.found(each, found[each].metadata if each in found else None)
        except KafkaError as error:
            log.warning("earlier deliveries are not counted: %s", error)
        begin = deliveries.begin(places)
        try:
            await self._commit(begin.notes)
        except KafkaError as error:
            log.warning("this delivery is not counted: %s", error)
        return begin

    async def _handle_all(self, handler: Handler, messages: list[Any]) -> None:
        ended = await self._look_up(messages)
        for at, message in enumerate(messages):
            if self._finish.is_set():
                break
            if at in ended:
                self._in_process.skip(*_located(message))
            else:
                await self.handle(message, handler)

    async def _look_up(self, messages: list[Any]) -> set[int]:
        """Return the positions of the messages that are skipped."""
        if self._ended is None:
            return set()
        sent = [Sent(_appended_ms(each), partial(_id_text, each)) for each in messages]
        return await self.acker.connection.drive(self._ended.find(sent))

    def _moved(self, partitions: Iterable[TopicPartition]) -> bool:
        for each in partitions:
            self._assigned.seek(each)
        return True

    async def _settle(self) -> None:
        """Ack, fail and complete what can be settled."""
        finished = self._in_process.finished
        while finished:
            work = finished.popleft()
            tell = self._in_process.to_tell(work)
            if tell is not None:
                try:
                    await work.run_async(tell, work.message.message, work.why)
                except BaseException:
                    self._in_process.drop(work)
                    raise
                work.returned()
                continue
            if rows := work.rows():
                try:
                    await self._sink.add(rows)
                except BaseException:
                    # Without the row the offset stays incomplete. A later call tries again.
                    work.processing.reopen()
                    finished.appendleft(work)
                    raise
            self._in_process.complete(work)

    async def _flush(self) -> None:
        end = time.monotonic() + FLUSH
        while True:
            await self._settle()
            if not self._in_process or time.monotonic() >= end:
                return
            await asyncio.sleep(SETTLE)

    async def _give_away(self, revoked: Iterable[Any]) -> None:
        try:
            if revoked:
                # Otherwise a handler would always be in process until the time is over.
                self._assigned.leave(revoked)
                await self._flush()
                await self.commit()
        except (KafkaError, AckerError) as error:
            log.warning("messages will be delivered again: %s", error)
        finally:
            self._assigned.forget(revoked)


def _located(message: Any) -> tuple[Place, int]:
    return (message.topic, message.partition), message.offset


def _appended_ms(message: Any) -> int | None:
    """Return when the broker has appended a message, in ms since 1970; None if that is unknown."""
    return message.timestamp if message.timestamp_type == _LOG_APPEND_TIME else None


def _id_text(message: Any) -> str | bytes:
    return text_of(message.headers)


async def _result(found: Any) -> Any:
    """Return what a plain function or a coroutine function has returned."""
    return await found if inspect.isawaitable(found) else found
