"""A channel of RabbitMQ that acks what its consumers have processed, first in Redis.

**Order of events**: see :mod:`acker_redis.integrations.core`. If Redis does not answer, the message
goes back into its queue. Messages that arrive together are settled together, in one round trip to
Redis.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pika import BasicProperties
from pika.exceptions import AMQPError

from acker_redis.arguments import check_blocking, check_is
from acker_redis.errors import ConfigError
from acker_redis.integrations.core.work import Work, begun, in_process
from acker_redis.integrations.rabbitmq.deliveries import Decision, Delivery, emit, unpublished
from acker_redis.integrations.rabbitmq.headers import id_of, is_copied, stamped
from acker_redis.integrations.rabbitmq.settling import Direct, Settling
from acker_redis.sync.bolt import Current, Handle
from acker_redis.sync.client import Acker

log = logging.getLogger(__name__)

INSTEAD = "a RabbitSender for first messages, the channel of pika for untracked ones"

Handler = Callable[[Any, Any, Any, bytes], object]


class TrackedChannel:
    """A :class:`pika.adapters.blocking_connection.BlockingChannel` that tracks messages.

    It has the methods of that channel. Handlers get this channel, so they need no change:

    - ``basic_ack()`` of a delivery acks its message, in the handler or later. The broker is told
      after Redis.
    - ``basic_nack()`` and ``basic_reject()`` fail the message. With ``requeue=True`` it stays open,
      and the broker delivers it again; it fails, too, if it has published children before.
    - A handler that raises an Exception fails its message with the exception's words, and consuming
      continues. The delivery is rejected: the broker drops it, or moves it to a dead-letter
      exchange, and the source decides about a replay.
    - :meth:`basic_publish` in a handler publishes a child of the message.

    **Without a header** a message is processed and not tracked, and so are its children. If its
    handler raises, no source is told: the exception ends ``start_consuming()``, as without this
    class. The same holds for a header that is no message id.

    **Threads.** As in pika, one thread uses a connection. Other threads settle by
    ``connection.add_callback_threadsafe``. To publish there they run in a copy of the handler's
    context, ``contextvars.copy_context().run``.

    Args:
        acker: The client of the namespace.
        channel: The channel of pika. Its deliveries to consumers without this class stay as they
            are.

    Raises:
        ConfigError: ``acker`` is no Acker.

    Examples:
        >>> import pika
        >>> from acker_redis.integrations.rabbitmq import TrackedChannel
        >>> def price(channel, method, properties, body):
        ...     channel.basic_publish("", "priced", body, properties)
        ...     channel.basic_ack(method.delivery_tag)
        >>> connection = pika.BlockingConnection()  # doctest: +SKIP
        >>> acker = Acker.from_url(url, "orders")
        >>> channel = TrackedChannel(acker, connection.channel())  # doctest: +SKIP
        >>> channel.basic_consume("orders", price)  # doctest: +SKIP
        >>> channel.start_consuming()  # doctest: +SKIP

    """

    def __init__(self, acker: Acker, channel: Any) -> None:
        check_is(acker, Acker, "a TrackedChannel")
        self.acker = acker
        self._channel = channel
        self._ids = acker.fresh_ids
        self._settling = Settling(acker, channel)
        self._open: dict[int, Work[Delivery]] = {}
        """Deliveries about which nothing is decided, by tag, in their order."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    @property
    def current(self) -> Handle:
        """The handle of the message in process, for ``reset_timeout()``; its rows go at once.

        Raises:
            ConfigError: No handler runs in this context.

        """
        return Current(in_process(Delivery, "current").processing, Direct(self.acker))

    def basic_consume(
        self,
        queue: str,
        on_message_callback: Handler,
        auto_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> Any:
        """Consume a queue, as pika does; ``on_message_callback`` gets this channel.

        With ``auto_ack`` a message is acked when the handler has returned, and not, as in pika,
        when the broker has sent it.
        """
        check_blocking("basic_consume()", on_message_callback=on_message_callback)

        def deliver(_: object, method: Any, properties: Any, body: bytes) -> None:
            ids_of = partial(id_of, properties.headers, queue)
            work = begun(Delivery(method.delivery_tag), ids_of, self._ids)
            self._open[work.message.tag] = work
            self._handle(work, auto_ack, on_message_callback, method, properties, body)

        return self._channel.basic_consume(
            queue, deliver, False, exclusive, consumer_tag, arguments
        )

    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: str | bytes,
        properties: Any = None,
        mandatory: bool = False,
        *,
        child: str | None = None,
        edge: str = "",
        queues: Sequence[str] = (),
    ) -> None:
        """Publish a message that the message in process has caused.

        The first arguments are those of pika. An ``acker-tuple`` in the headers is replaced, so a
        handler may pass on the properties it got. If the broker returns or refuses the message, the
        message in process fails. That does not depend on ``mandatory``. It needs no publisher
        confirms: with ``confirm_delivery()`` the call waits, and raises what the broker answers.

        Args:
            exchange: The exchange, '' for the default one.
            routing_key: The routing key; for the default exchange the queue.
            body: The body.
            properties: ``pika.BasicProperties``; they are copied.
            mandatory: Only used for children of a message without an id.
            child: Says which child of the processed message this is. Its id is then derived, and
                the same when the message is delivered again: see :meth:`Handle.emit`.
            edge: The name of the edge that the message travels on.
            queues: The tracked queues into which another than the default exchange, or a header CC
                or BCC, puts the message. All copies must be acked. Copies in other queues are not
                tracked.

        Raises:
            ConfigError: No handler runs in this context, or ``queues`` is missing.
            ClosedError: The processed message is settled.
            pika.exceptions.AMQPError: The broker refuses the message. The tree fails, too.

        """
        work = in_process(Delivery, "basic_publish()", INSTEAD)
        properties = BasicProperties() if properties is None else properties
        copied = bool(exchange) or is_copied(properties)
        properties = stamped(properties, emit(work, copied, queues, child, edge))
        mandatory = mandatory or work.tracked
        try:
            self._channel.basic_publish(exchange, routing_key, body, properties, mandatory)
        except BaseException as error:
            work.failed(unpublished(exchange, routing_key, error))
            raise

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Ack a message, or all up to it: it was processed. The broker is told after Redis."""
        self._decide(Decision.ACK, delivery_tag, multiple)

    def basic_nack(
        self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True
    ) -> None:
        """Fail a message, or all up to it; with ``requeue`` let the broker deliver it again."""
        self._decide(Decision.REQUEUE if requeue else Decision.REJECT, delivery_tag, multiple)

    def basic_reject(self, delivery_tag: int = 0, requeue: bool = True) -> None:
        """Fail a message; with ``requeue`` let the broker deliver it again."""
        self._decide(Decision.REQUEUE if requeue else Decision.REJECT, delivery_tag, False)

    def basic_get(self, *_: object, **__: object) -> Any:
        """Raise ConfigError: messages are tracked in handlers.

        Raises:
            ConfigError: Always.

        """
        raise ConfigError("a TrackedChannel takes messages by basic_consume() only")

    consume = basic_get

    def settle(self) -> None:
        """Apply the rows of decided deliveries to Redis, then tell the broker.

        It is called in time while the connection processes events.

        Raises:
            pika.exceptions.AMQPError: The connection is lost: the broker delivers again what it was
                not told.

        """
        self._settling.settle()

    def start_consuming(self) -> None:
        """Process messages until all consumers are cancelled, as pika does; then settle.

        Raises:
            pika.exceptions.AMQPError: The connection or the channel is lost.
            Exception: The failure of a message without an id: see the class.

        """
        try:
            self._channel.start_consuming()
        finally:
            self._settling.settle_last()

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Settle, and close the channel, as pika does."""
        self._settling.settle_last()
        self._channel.close(*args, **kwargs)

    def __enter__(self) -> "TrackedChannel":
        return self

    def __exit__(self, *error: object) -> None:
        if self._channel.is_open:
            self.close()

    def _handle(
        self,
        work: Work[Delivery],
        auto_ack: bool,
        handler: Handler,
        method: Any,
        properties: Any,
        body: bytes,
    ) -> None:
        delivery = work.message
        raised = work.error  # of a malformed id
        try:
            if raised is None:
                raised = work.run(handler, self, method, properties, body)
            if isinstance(raised, Exception):
                self._reject(work, raised, method.routing_key)
            elif auto_ack:
                delivery.decision = delivery.decision or Decision.ACK
        except BaseException as error:
            # Without a decision the message stays open. After an ack, the handler was not through.
            if delivery.decision is Decision.ACK:
                work.failed(error)
            raise
        finally:
            delivery.running = False
            self._finish(work)

    def _reject(self, work: Work[Delivery], error: Exception, key: str) -> None:
        if not work.tracked:
            raise error
        log.warning("a message of %s failed: %r", key, error)
        work.message.decision = work.message.decision or Decision.REJECT
        if isinstance(error, AMQPError) and not self._channel.is_open:
            raise error  # nothing can be consumed: the program connects again

    def _decide(self, decision: Decision, tag: int, multiple: bool) -> None:
        tags = [each for each in self._open if each <= tag or not tag] if multiple else [tag]
        found = [self._open[each] for each in tags if each in self._open]
        if not found and not multiple:
            # It belongs to other code, or it is unknown: then the broker closes the channel.
            self.settle()
            self._settling.tell(tag, decision)
        for work in found:
            before = work.message.decision
            if decision is Decision.REJECT or (
                decision is Decision.REQUEUE and before is Decision.ACK
            ):
                work.failed("rejected")
            work.message.decision = before or decision
            self._finish(work)

    def _finish(self, work: Work[Delivery]) -> None:
        """Settle a delivery soon, if it is decided and its handler has returned."""
        if work.message.decision is None or work.message.running:
            return
        del self._open[work.message.tag]
        work.returned()
        self._settling.add(work)
