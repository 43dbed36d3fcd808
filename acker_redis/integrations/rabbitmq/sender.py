"""The records of a source as messages of a queue."""

from contextlib import suppress
from typing import Any

import pika
from pika.exceptions import AMQPError

from acker_redis.errors import AckerError, ConfigError
from acker_redis.flows.forks import reset_in_children
from acker_redis.integrations.rabbitmq.deliveries import unpublished
from acker_redis.integrations.rabbitmq.headers import is_copied, stamped
from acker_redis.trees.record import Record


class RabbitSender:
    """The ``send`` of a :class:`Source` whose records go to a queue, on a separate connection.

    The value of a record is the body of its message, text or bytes. The broker confirms each
    message. If the broker refuses it, if there is no such queue, or if the connection is lost, the
    attempt fails with the queue's name and the broker's words. The next attempt connects again.

    Args:
        parameters: The parameters of the connection, such as ``pika.URLParameters(url)``.
        queue: The name of the queue.
        properties: The properties of each message; by default it is persistent.

    Raises:
        ConfigError: A header CC or BCC would put copies of one id into several queues.

    Examples:
        >>> from acker_redis.integrations.rabbitmq import RabbitSender
        >>> nowhere = pika.ConnectionParameters("127.0.0.1", 1)
        >>> def on_fail(record, reason, why):
        ...     print(record.source_id, why)
        >>> send = RabbitSender(nowhere, "orders")
        >>> acker = Acker.from_url(url, "orders")
        >>> with Source(acker, "shop", send, on_fail=on_fail, attempts=1) as source:
        ...     source.emit("order-1", b"a hat")
        ...     source.join()
        order-1 AckerError: not published to orders: AMQPConnectionError
        True

    """

    def __init__(
        self, parameters: pika.connection.Parameters, queue: str, *, properties: Any = None
    ) -> None:
        self._parameters, self._queue = parameters, queue
        persistent = pika.BasicProperties(delivery_mode=2)
        self._properties = persistent if properties is None else properties
        if is_copied(self._properties):
            raise ConfigError("a RabbitSender sends to one queue: remove the headers CC and BCC")
        self.reset_after_fork()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Begin without a connection: a forked child calls this, its parent has the socket."""
        self._connection: Any = None
        self._channel: Any = None

    def __call__(self, record: Record, ids: Any) -> None:
        """Publish the messages of a record.

        Raises:
            AckerError: The broker did not take a message.

        """
        try:
            channel = self._ready()
            for each in ids:
                properties = stamped(self._properties, each)
                channel.basic_publish("", self._queue, record.value, properties, mandatory=True)
        except AMQPError as error:
            raise AckerError(unpublished("", self._queue, error)) from error

    def close(self) -> None:
        """Close the connection; a later record opens another."""
        connection = self._connection
        self.reset_after_fork()
        if connection is not None and connection.is_open:
            with suppress(AMQPError):  # the broker has closed it
                connection.close()

    def _ready(self) -> Any:
        if self._connection is not None and self._connection.is_open:
            try:
                # An idle connection notices now that the broker has closed it.
                self._connection.process_data_events(0)
            except AMQPError:
                self.reset_after_fork()
        if self._connection is None or not self._connection.is_open:
            self.reset_after_fork()
            self._connection = pika.BlockingConnection(self._parameters)
        if self._channel is None or not self._channel.is_open:
            self._channel = self._connection.channel()
            self._channel.confirm_delivery()
        return self._channel
