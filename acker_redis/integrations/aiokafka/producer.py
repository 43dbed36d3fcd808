"""A Kafka producer for asyncio whose messages carry their ids in the header ``acker-tuple``."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer

from acker_redis.errors import ConfigError
from acker_redis.integrations.core.headers import Headers, with_id
from acker_redis.integrations.core.work import Work, in_process
from acker_redis.integrations.kafka_messages.in_process import Read
from acker_redis.trees.message_id import MessageId
from acker_redis.trees.record import Record

INSTEAD = "sender() for first messages, aiokafka.AIOKafkaProducer for untracked ones"


class Got(Read):
    """A message that a :class:`TrackedAsyncConsumer` has read."""

    __slots__ = ()


class TrackedAsyncProducer(AIOKafkaProducer):
    """A producer of aiokafka that emits each message it sends.

    The asyncio twin of :class:`acker_redis.integrations.kafka.TrackedProducer`, with the same
    guarantees. In a handler of a :class:`TrackedAsyncConsumer`, ``send()`` and ``send_and_wait()``
    emit a child of the message that is being processed, also in tasks that the handler creates.
    :meth:`sender` sends the first messages of an :class:`AsyncSource`.

    The arguments are those of :class:`aiokafka.AIOKafkaProducer`. Batches that a program builds
    itself (``send_batch()``) are refused, because their messages have no ids.

    Examples:
        >>> from acker_redis.aio import AsyncAcker, AsyncSource
        >>> from acker_redis.integrations.aiokafka import TrackedAsyncProducer
        >>> async def shop(servers):
        ...     async with (
        ...         AsyncAcker.from_url(url, "orders") as acker,
        ...         TrackedAsyncProducer(bootstrap_servers=servers) as producer,
        ...         AsyncSource(acker, "shop", producer.sender("orders")) as source,
        ...     ):
        ...         await source.emit("order-1", b"a hat")
        ...         await source.join()

    """

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._encodes_keys = not config.get("key_serializer")
        self._encodes_values = not config.get("value_serializer")

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
        *,
        child: str | None = None,
        edge: str = "",
    ) -> "asyncio.Future[Any]":
        """Send a message that the message in process has caused; return the future of its delivery.

        The arguments up to ``headers`` are those of :meth:`aiokafka.AIOKafkaProducer.send`. An
        ``acker-tuple`` in ``headers`` is replaced, so a handler may pass on the headers it got.
        A handler need not await the future: its message is acked after the delivery.

        Args:
            topic: The topic.
            value: The payload.
            key: Kafka's key, which chooses the partition.
            partition: The partition; by default that of the key.
            timestamp_ms: Milliseconds since 1970; by default now.
            headers: Further headers.
            child: Says which child of the processed message this is. Its id is then derived, and
                the same when the message is delivered again: see :meth:`AsyncHandle.emit`.
            edge: The name of the edge that the message travels on.

        Raises:
            ConfigError: No handler of a TrackedAsyncConsumer runs in this context.
            ClosedError: The processed message is settled.
            KafkaError: Kafka refuses the message at once. The tree fails, too.
            AckerError: With ``child``, Redis has not answered for ``retry_for`` seconds, and the
                namespace was never read.

        """
        work = in_process(Got, "send()", INSTEAD)
        if child is not None and work.tracked:
            # An id is derived from the salt: wait for it.
            await work.message.consumer.acker.ids()
        ids = work.emit(child, edge, reported=True)
        try:
            sent: asyncio.Future[Any] = await super().send(
                topic, value, key, partition, timestamp_ms, with_id(headers, str(ids).encode())
            )
        except BaseException as error:
            work.report(error)
            raise
        sent.add_done_callback(partial(_report, work))
        return sent

    async def send_and_wait(self, *args: Any, **kwargs: Any) -> Any:
        """Send a message as :meth:`send`, and wait for its delivery.

        Raises:
            KafkaError: Kafka refuses the message. The tree fails, too.

        """
        return await (await self.send(*args, **kwargs))

    async def send_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Raise ConfigError: the messages of such a batch would have no ids."""
        raise ConfigError(
            "send_batch() gives no message an id: call send() for each message, or use "
            "aiokafka.AIOKafkaProducer for messages that are not tracked"
        )

    def sender(
        self, topic: str
    ) -> Callable[[Record, Sequence[MessageId]], Coroutine[Any, Any, None]]:
        """Return the ``send`` of an :class:`AsyncSource` whose records go to a topic.

        Each first message has the record's ``value`` (text, bytes or None) and its ``source_id`` as
        the key. If Kafka refuses a message, the attempt fails with Kafka's words.

        Args:
            topic: The topic.

        """
        put = super().send

        async def send(record: Record, ids: Sequence[MessageId]) -> None:
            key: Any = record.source_id
            value = record.value
            if self._encodes_keys:
                key = key.encode()
            if self._encodes_values and isinstance(value, str):
                value = value.encode()
            headers = [with_id(None, str(each).encode()) for each in ids]
            sent = [await put(topic, value, key, headers=each) for each in headers]
            await asyncio.gather(*sent)

        return send


def _report(work: Work[Any], sent: "asyncio.Future[Any]") -> None:
    if sent.cancelled():
        work.report(asyncio.CancelledError("the future of send() was cancelled"))
    else:
        work.report(sent.exception())
