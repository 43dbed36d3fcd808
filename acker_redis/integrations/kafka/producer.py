"""A Kafka producer whose messages carry their ids in the header ``acker-tuple``."""

from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka

from acker_redis.arguments import check_is
from acker_redis.errors import ConfigError
from acker_redis.integrations.core.headers import Headers, with_id
from acker_redis.integrations.core.work import in_process
from acker_redis.integrations.kafka_messages.in_process import Read
from acker_redis.protocol.rows import fail_row
from acker_redis.protocol.texts import clipped
from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.record import Record

Report = Callable[[Any, Any], None]

INSTEAD = "sender() for first messages, confluent_kafka.Producer for untracked ones"
ROOM = 0.05
"""Seconds between two attempts to produce while the queue of the Kafka producer is full."""


class Polled(Read):
    """A message that a :class:`TrackedConsumer` has read."""

    __slots__ = ()


class TrackedProducer(confluent_kafka.Producer):
    """A producer of confluent-kafka that emits each message it produces.

    In a handler of a :class:`TrackedConsumer`, ``produce()`` emits a child of the message that is
    being processed. :meth:`sender` produces the first messages of a :class:`Source`.

    **If Kafka refuses a message**, at once or in its delivery report, its tree fails with Kafka's
    words, and is not acked. If the process dies between a message and the ack of its parent, Kafka
    delivers the parent again. The tree may then have two messages instead of one. With fresh ids
    the ack names only the second, so the tree expires and its source replays the record. With
    ``child=`` both have the same id: the tree completes if one of them is acked, and expires if
    both are. In no case is a tree acked whose messages were not all processed.

    **Queue.** While the queue of the Kafka producer is full, ``produce()`` waits and serves
    delivery reports. It raises no BufferError.

    Args:
        acker: The client of the namespace.
        config: The configuration of the Kafka producer.

    Examples:
        >>> from confluent_kafka import Producer as KafkaProducer
        >>> from acker_redis.integrations.kafka import TrackedProducer
        >>> producer = TrackedProducer(Acker.from_url(url, "orders"), {"test.mock.num.brokers": 1})
        >>> def send(record, ids):
        ...     producer.sender("orders")(record, ids)
        ...     producer.flush()
        >>> with Source(producer.acker, "shop", send) as source:
        ...     source.emit("order-1", b"a hat")  # until a consumer acks it

    """

    def __init__(self, acker: Acker, config: dict[str, Any]) -> None:
        check_is(acker, Acker, "a TrackedProducer")
        super().__init__(config)
        self.acker = acker
        self._sink = Producer(acker)

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Report | None = None,
        on_delivery: Report | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
        *,
        child: str | None = None,
        edge: str = "",
    ) -> None:
        """Produce a message that the message in process has caused.

        The arguments up to ``headers`` are those of :meth:`confluent_kafka.Producer.produce`. An
        ``acker-tuple`` in ``headers`` is replaced, so a handler may pass on the headers it got.

        Args:
            topic: The topic.
            value: The payload.
            key: Kafka's key, which chooses the partition.
            partition: The partition; by default that of the key.
            callback: Another name of ``on_delivery``.
            on_delivery: Called as ``on_delivery(error, message)`` with the delivery report.
            timestamp: Milliseconds since 1970; 0 means now.
            headers: Further headers.
            child: Says which child of the processed message this is. Its id is then derived, and
                the same when the message is delivered again: see :meth:`Handle.emit`.
            edge: The name of the edge that the message travels on.

        Raises:
            ConfigError: No handler of a TrackedConsumer runs in this context.
            ClosedError: The processed message is settled.
            KafkaException: Kafka refuses the message at once. The tree fails, too.

        """
        work = in_process(Polled, "produce()", INSTEAD)
        then = callback if on_delivery is None else on_delivery
        work.message.consumer._producers.add(self)  # it serves the reports
        ids = work.emit(child, edge, reported=True)

        def report(error: Any, message: Any) -> None:
            work.report(None if error is None else confluent_kafka.KafkaException(error))
            if then is not None:
                then(error, message)

        ours = with_id(headers, str(ids).encode())
        try:
            self._put(topic, value, key, partition, report, timestamp, ours or None)
        except BaseException as error:
            work.report(error)
            raise

    def produce_batch(self, *args: Any, **kwargs: Any) -> int:
        """Raise ConfigError: the messages of such a batch would have no ids."""
        raise ConfigError(
            "produce_batch() gives no message an id: call produce() for each message, or use "
            "confluent_kafka.Producer for messages that are not tracked"
        )

    def sender(self, topic: str) -> Callable[[Record, Sequence[MessageId]], None]:
        """Return the ``send`` of a :class:`Source` whose records go to a topic.

        Each first message has the record's ``value`` (text, bytes or None) and its ``source_id`` as
        the key. If Kafka refuses a message, the attempt fails with Kafka's words. Delivery reports
        are served when the next record is sent, and by ``poll()`` and ``flush()``.

        Args:
            topic: The topic.

        """

        def send(record: Record, ids: Sequence[MessageId]) -> None:
            for each in ids:
                (anchor,) = each

                def report(error: Any, _: Any, anchor: int = anchor) -> None:
                    if error is not None:
                        self._sink.add([fail_row(anchor, clipped(str(error)))], wait=False)

                headers = with_id(None, str(each).encode())
                self._put(topic, record.value, record.source_id, -1, report, 0, headers)
            self.poll(0)

        return send

    def _put(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        partition: int,
        report: Report,
        timestamp: int,
        headers: list[tuple[Any, Any]] | None,
    ) -> None:
        put = super().produce
        while True:
            try:
                # Kafka's library takes None for no headers, and no partition as -1.
                put(topic, value, key, partition, report, None, timestamp, headers)
            except BufferError:
                self.poll(ROOM)
            else:
                return
