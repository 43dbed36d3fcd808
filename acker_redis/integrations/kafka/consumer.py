"""A Kafka consumer that acks what it has processed, and commits no offset above that.

**Order of events**: see :mod:`acker_redis.integrations.core`. A commit first waits until Redis has
the acks, or the producer has given them up, then commits the positions that the frontiers of the
partitions had before the wait. While Redis does not answer, nothing is committed, and a later
commit waits again. An ack that was given up leaves a tree that expires.

**Threads.** One thread consumes, settles and commits. Handlers may produce in other threads.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from acker_redis.arguments import check_blocking, check_is
from acker_redis.errors import AckerError, BufferFullError, ConfigError
from acker_redis.integrations.core.batches import Messages, run_batch
from acker_redis.integrations.core.ended import Ended, Sent
from acker_redis.integrations.core.failures import OnFailure
from acker_redis.integrations.core.until_signal import until_signal
from acker_redis.integrations.core.work import Work, in_process
from acker_redis.integrations.kafka.messages import (
    IdOf,
    appended_ms,
    id_text,
    is_record,
    located,
    once,
    places_of,
)
from acker_redis.integrations.kafka.producer import Polled
from acker_redis.integrations.kafka_messages.deliveries import (
    Begin,
    Deliveries,
    limited,
    raising,
)
from acker_redis.integrations.kafka_messages.in_process import FLUSH, IDLE, SETTLE, InProcess, Read
from acker_redis.integrations.kafka_messages.partitions import Moved, Place, check_auto_commit, runs
from acker_redis.protocol.rows import Row
from acker_redis.sync.bolt import Current, Handle
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer

log = logging.getLogger(__name__)

Handler = Callable[[Any], object]
BatchHandler = Callable[[Messages], object]
Rebalance = Callable[[Any, list[Any]], object]


class TrackedConsumer(confluent_kafka.Consumer):
    """A consumer of confluent-kafka that tracks what its handler does.

    :meth:`run` calls a handler for each message, acks the message when the handler has returned,
    and commits. A program with its own loop calls :meth:`handle` and :meth:`commit` instead. Either
    way a message is processed at least once, and no offset is committed above one that is not.

    **A message that fails** is one whose handler raised an Exception, or whose children Kafka
    refused. Its tree fails with the exception's words, its source decides about a replay, and the
    consumer continues. With ``on_failure`` the application is told, too. Its offset counts as
    complete.

    **Without a header** a message is processed and not tracked, and so are its children. If it
    fails and there is no ``on_failure``, no source is told: the exception ends :meth:`run`, and the
    offset stays. The same holds for a header that is no message id, and for headers of which one
    has a name that is not UTF-8: their message has no headers for ``on_failure``.

    **Going back.** If Kafka continues at a lower offset, because the topic was created again or
    truncated, messages are processed and committed from there. The program itself goes back by
    :meth:`seek`.

    **Rebalance.** Before a partition is given away, the consumer waits up to 10 seconds for
    delivery reports, and commits. Of partitions that were lost it commits nothing.

    Args:
        acker: The client of the namespace.
        config: The configuration of the Kafka consumer. ``enable.auto.commit`` is off.
        on_failure: ``on_failure(message, error)`` is called for each message that failed, for
            example to produce it to a dead-letter topic. What it produces is not tracked, but the
            offset waits for its delivery. If it raises, or Kafka refuses what it has produced,
            the exception ends :meth:`run`.
        skip_ended: Right only where a record that expires is sent again: for topics into which a
            :class:`Source` or an outbox sends. Anywhere else it loses records. With True,
            :meth:`run`, :meth:`run_batches` and :meth:`handle_batch` leave messages of ended trees
            out, whose offsets count as complete, and count them in :attr:`skipped`: messages that
            are older than a tree lives, and ten minutes more, as Kafka has another clock, of which
            no tree is pending, unless Redis may have lost trees of that time. In doubt a message is
            processed. So is each message of a topic without
            ``message.timestamp.type=LogAppendTime``: its time is that of its producer.
        deliveries: Maximum number of deliveries of a message, at least 2. :meth:`run` and
            :meth:`run_batches` fail a message that was delivered so often and never settled, as it
            may kill or hang its consumers. Kafka counts no deliveries, so they commit before each
            batch, with a note in the metadata of the committed offset, and they handle one by one
            what a killed consumer had in hand. None, the default: no limit, such a message is
            delivered for ever, and those after it in its partition wait.

    Raises:
        ConfigError: ``enable.auto.commit`` is on, which would commit messages in process;
            ``on_failure`` is a coroutine function; or ``deliveries`` is below 2.

    Examples:
        >>> from acker_redis.integrations.kafka import TrackedConsumer
        >>> config = {"test.mock.num.brokers": 1, "group.id": "pricing"}
        >>> consumer = TrackedConsumer(Acker.from_url(url, "orders"), config)
        >>> consumer.subscribe(["orders"])
        >>> threading.Timer(0.1, consumer.stop).start()
        >>> consumer.run(lambda message: print(message.value()))

    """

    def __init__(
        self,
        acker: Acker,
        config: dict[str, Any],
        *,
        on_failure: OnFailure | None = None,
        skip_ended: bool = False,
        deliveries: int | None = None,
    ) -> None:
        check_is(acker, Acker, "a TrackedConsumer")
        check_auto_commit(config, "enable.auto.commit", "TrackedConsumer")
        check_blocking("a TrackedConsumer", on_failure=on_failure)
        self._told = config.get("on_commit")
        super().__init__({**config, "enable.auto.commit": False, "on_commit": self._on_commit})
        self.acker = acker
        self._sink = Producer(acker)
        self._in_process = InProcess(Polled, self, acker.fresh_ids, on_failure)
        self._partitions = self._in_process.partitions
        self._deliveries = limited(deliveries, self._partitions)
        self._ended = Ended(acker.flows) if skip_ended else None
        self._producers: set[confluent_kafka.Producer] = set()
        """The producers that are served for delivery reports."""
        self._stop = threading.Event()
        self._closed = False

    @property
    def skipped(self) -> int:
        """Messages that no handler got, because their trees had ended."""
        return self._in_process.skipped

    @property
    def current(self) -> Handle:
        """The handle of the message in process, for ``reset_timeout()``.

        Raises:
            ConfigError: No handler runs in this context.

        """
        return Current(in_process(Polled, "current").processing, self._sink)

    def subscribe(
        self,
        topics: list[str],
        on_assign: Rebalance | None = None,
        on_revoke: Rebalance | None = None,
        on_lost: Rebalance | None = None,
    ) -> None:
        """Subscribe to topics, as confluent-kafka does.

        ``on_revoke`` is called after the offsets were committed.
        """

        def assigned(consumer: Any, partitions: list[Any]) -> None:
            self._partitions.assign(places_of(partitions))
            if on_assign is not None:
                on_assign(consumer, partitions)

        def revoked(consumer: Any, partitions: list[Any]) -> None:
            try:
                self._flush_producers()
                self.commit(asynchronous=False)
            except (KafkaException, AckerError) as error:
                log.warning("messages will be delivered again: %s", error)
            finally:
                self._partitions.forget(places_of(partitions))
            if on_revoke is not None:
                on_revoke(consumer, partitions)

        def lost(consumer: Any, partitions: list[Any]) -> None:
            self._partitions.forget(places_of(partitions))
            told = on_revoke if on_lost is None else on_lost
            if told is not None:
                told(consumer, partitions)

        super().subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions without a group's rebalance, as confluent-kafka does."""
        self._partitions.forget()
        self._partitions.assign(places_of(partitions))
        super().assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Assign further partitions, as confluent-kafka does."""
        self._partitions.assign(places_of(partitions))
        super().incremental_assign(partitions)

    def poll(self, timeout: float = -1) -> Any:
        """Return the next message, as confluent-kafka does."""
        message = super().poll(timeout)
        if message is not None:
            self._arrived([message])
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> Any:
        """Return the next messages, as confluent-kafka does."""
        return self._arrived(super().consume(num_messages, timeout))

    def seek(self, partition: TopicPartition) -> None:
        """Continue at an offset, as confluent-kafka does; the next commit may go back, too.

        Messages of the partition that were read before are not processed any more.
        """
        super().seek(partition)
        self._partitions.seek((partition.topic, partition.partition))

    def run(self, handler: Handler, *, batch: int = 500, commit_every: float = 1.0) -> None:
        """Process messages until :meth:`stop`, SIGTERM or SIGINT; then commit and close.

        In the main thread it handles the first of these signals: the handler that runs returns, and
        messages that were read and not handled stay uncommitted. A second signal acts as before.

        Args:
            handler: Called with each message. It may produce with a :class:`TrackedProducer`.
            batch: Maximum number of messages that are read at once.
            commit_every: Seconds between two commits.

        Raises:
            KafkaException, AckerError: A fatal error of Kafka; Redis takes no more rows.
            Exception: What ``on_failure`` raises, or the failure of a message without a header.

        """
        check_blocking("run()", handler=handler)
        self._run(partial(self._handle_all, handler), batch, commit_every)

    def run_batches(
        self,
        handler: BatchHandler,
        *,
        batch: int = 500,
        isolate: bool = False,
        commit_every: float = 1.0,
    ) -> None:
        """Process messages in batches until :meth:`stop`, SIGTERM or SIGINT; see :meth:`run`.

        Args:
            handler: Called with :class:`Messages`, a sequence of messages. Those that it neither
                fails nor skips are acked when it has returned. If it raises an Exception, all fail.
            batch: Maximum number of messages in a batch.
            isolate: After an Exception the handler gets the messages again, one by one, and only
                those fail with which it raises. What it has produced before is produced twice.
            commit_every: Seconds between two commits.

        """
        check_blocking("run_batches()", handler=handler)
        self._run(partial(self.handle_batch, handler=handler, isolate=isolate), batch, commit_every)

    def handle(self, message: Any, handler: Callable[..., object], *args: Any) -> None:
        """Call ``handler(message, *args)``; the message is acked or failed as soon as it may be.

        An Exception of the handler fails the message, and is not raised. Errors that Kafka reports
        as a message are logged.

        Raises:
            ConfigError: A later message of the partition was handled before.
            KafkaException: The message is a fatal error.
            BaseException: What the handler raises that is no Exception: the message stays open, and
                is delivered again.

        """
        self._handle(message, id_text, handler, *args)

    def _handle(
        self, message: Any, id_of: IdOf, handler: Callable[..., object], *args: Any
    ) -> None:
        if not is_record(message):
            return
        work = self._in_process.begin(message, *located(message), partial(id_of, message))
        if work is None:
            return
        try:
            work.run(handler, message, *args)
        except BaseException:
            self._in_process.drop(work)
            raise
        work.returned()

    def handle_batch(
        self, messages: Iterable[Any], handler: BatchHandler, *, isolate: bool = False
    ) -> None:
        """Call ``handler`` with messages, as :meth:`run_batches` does; see also :meth:`handle`."""
        records = [each for each in messages if is_record(each)]
        id_of, ended = self._look_up(records)
        with self._in_process.batch(records, map(located, records), id_of, ended) as batch:
            run_batch(batch.given, handler, isolate)
            self._sink.add_acks(*batch.returned())
            batch.complete()

    def commit(self, *args: Any, asynchronous: bool = True, **kwargs: Any) -> Any:
        """Commit the offsets below which every message is processed and acked, and no others.

        It waits up to 10 seconds until Redis has the acks; if not, it commits nothing.

        Raises:
            ConfigError: ``message`` or ``offsets`` is given, which could skip messages in process.
            KafkaException: Kafka refuses the offsets; a later call commits them.

        """
        if args or any(value is not None for value in kwargs.values()):
            raise ConfigError("commit() of a TrackedConsumer takes neither message nor offsets")
        return self._commit(asynchronous)

    def _commit(self, asynchronous: bool, notes: Iterable[Moved] = ()) -> Any:
        self._settle()
        moved = {each.place: each for each in (*self._partitions.moved(), *notes)}
        if not moved:
            return None if asynchronous else []
        try:
            self._sink.flush(FLUSH)
        except BufferFullError as error:
            log.warning("offsets are not committed, the next commit follows: %s", error)
            return None if asynchronous else []
        except AckerError as error:
            # Their trees expire, so their sources are told. They need no second delivery.
            log.warning("some acks were given up: %s", error)
        offsets = [TopicPartition(*each.place, each.position, each.note) for each in moved.values()]
        if asynchronous:
            # Kafka may still refuse them: they are committed when it says so.
            return super().commit(offsets=offsets, asynchronous=True)
        answers = super().commit(offsets=offsets, asynchronous=False)
        if wrong := self._committed(answers):
            raise KafkaException(wrong)
        return answers

    def stop(self) -> None:
        """End :meth:`run` when the handler that runs has returned. Any thread may call it."""
        self._stop.set()

    def close(self) -> None:
        """Wait for delivery reports, up to 10 seconds, commit, and leave the group."""
        if self._closed:
            return
        self._closed = True
        try:
            self._flush_producers()
            self.commit(asynchronous=False)
        except KafkaException as error:
            log.warning("messages will be delivered again: %s", error)
        finally:
            super().close()
            self._sink.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Note what Kafka answers to a commit."""
        if wrong := error or self._committed(offsets):
            log.warning("offsets are not committed, the next commit follows: %s", wrong)
        if self._told is not None:
            self._told(error, offsets)

    def _committed(self, answers: list[TopicPartition]) -> KafkaError | None:
        """Note the offsets that are committed; return why one of them is not."""
        wrong: KafkaError | None = None
        for each in answers:
            if each.error:
                wrong = each.error
            else:
                self._partitions.committed((each.topic, each.partition), each.offset)
        return wrong

    def _run(self, process: Callable[[list[Any]], object], batch: int, commit_every: float) -> None:
        due = time.monotonic() + commit_every
        try:
            with until_signal(self._stop.set):
                while not self._stop.is_set():
                    first = self.poll(SETTLE if self._in_process else IDLE)
                    # A message is as long as its value, so an empty one is false.
                    if first is not None and not self._stop.is_set():
                        self._process(process, [first, *self.consume(batch - 1, 0)])
                    self._settle()
                    if (now := time.monotonic()) >= due:
                        due = now + commit_every
                        self._commit_soon()
        finally:
            self.close()

    def _process(self, process: Callable[[list[Any]], object], messages: list[Any]) -> None:
        """Process messages; with a limit of deliveries, first commit notes of those that begin."""
        if self._deliveries is None:
            process(messages)
            return
        rest = [each for each in messages if is_record(each)]
        while rest and not self._stop.is_set():
            begin = self._begin(self._deliveries, [*map(located, rest)])
            now, rest = rest[: begin.take], rest[begin.take :]
            if begin.error is None:
                process(now)
            else:
                self._handle(now[0], id_text, raising, begin.error)

    def _begin(self, deliveries: Deliveries, places: list[tuple[Place, int]]) -> Begin:
        # Earlier messages are settled first: they must not count for those that begin now.
        self._flush_producers()
        try:
            if unknown := [TopicPartition(*each) for each in deliveries.unknown(places)]:
                for each in self.committed(unknown, FLUSH):
                    if not each.error:
                        deliveries.found((each.topic, each.partition), each.metadata)
        except KafkaException as error:
            log.warning("earlier deliveries are not counted: %s", error)
        begin = deliveries.begin(places)
        try:
            self._commit(False, begin.notes)
        except KafkaException as error:
            log.warning("this delivery is not counted: %s", error)
        return begin

    def _commit_soon(self) -> None:
        try:
            self.commit(asynchronous=True)
        except KafkaException as error:
            log.warning("offsets are not committed, the next commit follows: %s", error)

    def _handle_all(self, handler: Handler, messages: list[Any]) -> None:
        looked = time.monotonic()
        id_of, ended = self._look_up(messages)
        for at, message in enumerate(messages):
            if self._stop.is_set():
                break
            if at in ended:
                self._in_process.skip(*located(message))
            else:
                self._handle(message, id_of, handler)
            if (now := time.monotonic()) - looked > SETTLE:
                looked = now
                self._settle()

    def _look_up(self, messages: list[Any]) -> tuple[IdOf, set[int]]:
        """Return what reads the ids of messages, and the positions of those that are skipped."""
        if self._ended is None:
            return id_text, set()
        id_of = once(id_text)
        sent = [Sent(appended_ms(each), partial(id_of, each)) for each in messages]
        return id_of, self.acker.connection.drive(self._ended.find(sent))

    def _arrived(self, messages: list[Any]) -> list[Any]:
        """Note the offsets of the messages; return the messages."""
        for each in runs(located(each) for each in messages if each.error() is None):
            self._partitions.arrived(*each)
        return messages

    def _settle(self) -> None:
        """Serve delivery reports, and ack, fail and complete what can be settled."""
        for producer in tuple(self._producers):
            producer.poll(0)
        rows, complete = list[Row](), list[Work[Read]]()
        try:
            while self._in_process.finished:
                work = self._in_process.finished.popleft()
                tell = self._in_process.to_tell(work)
                if tell is not None:
                    work.run(tell, work.message.message, work.why)
                    work.returned()
                else:
                    rows += work.rows()
                    complete.append(work)
        finally:
            # All rows or none: after an error of the sink, the offsets stay incomplete.
            self._sink.add(rows)
            for work in complete:
                self._in_process.complete(work)

    def _flush_producers(self) -> None:
        end = time.monotonic() + FLUSH
        while True:
            self._settle()
            waiting = any(len(producer) for producer in self._producers)
            if not (waiting or self._in_process.finished) or time.monotonic() >= end:
                return
            for producer in tuple(self._producers):
                producer.flush(IDLE)
