"""RabbitMQ: copies of a message, second deliveries and streams never cause a false ack."""

import contextvars
import time
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError

from acker_redis import ClosedError, ConfigError, InvalidBatchError, MessageId
from acker_redis.integrations.rabbitmq import RabbitSender, TrackedChannel
from acker_redis.trees.record import Record
from tests.integrations import rabbitmq
from tests.integrations.rabbitmq_shop import Shop, left


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_copies_that_a_header_sends_are_acked_each(shop: Shop, name: str) -> None:
    copy, refused = f"copy-{shop.orders}", []
    shop.raw.queue_declare(copy)

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        properties.headers[name] = [copy]
        try:
            channel.basic_publish("", shop.priced, body, properties)
        except ConfigError as error:
            refused.append(str(error))
        channel.basic_publish("", shop.priced, body, properties, queues=[shop.priced, copy])

    shop.channel.basic_consume(shop.orders, price, auto_ack=True)
    shop.channel.basic_consume(shop.priced, lambda *_: None, auto_ack=True)
    shop.order("order-1")
    shop.run_until(lambda: rabbitmq.count(shop.raw, copy) == 1)
    shop.channel.settle()
    assert len(refused) == 1
    assert shop.verdicts() == {}
    shop.channel.basic_consume(copy, lambda *_: None, auto_ack=True)
    shop.until(**{"order-1": "ack"})


def test_a_sender_refuses_properties_that_copy_its_messages() -> None:
    with pytest.raises(ConfigError, match="CC and BCC"):
        RabbitSender(
            pika.ConnectionParameters(),
            "orders",
            properties=pika.BasicProperties(headers={"BCC": ["audit"]}),
        )


@pytest.mark.parametrize("child", [None, "priced"])
def test_a_message_that_is_requeued_after_it_has_published_fails(
    shop: Shop, child: str | None
) -> None:
    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if method.redelivered:  # its work is done: this delivery publishes nothing
            channel.basic_ack(method.delivery_tag)
        else:
            channel.basic_publish("", shop.priced, body, child=child)
            channel.basic_nack(method.delivery_tag)

    shop.channel.basic_consume(shop.orders, price)
    shop.order("order-1")
    shop.until(**{"order-1": "requeued after it had published messages"})


@pytest.mark.parametrize("requeue", [False, True])
def test_a_rejection_after_an_ack_fails_the_message(shop: Shop, requeue: bool) -> None:
    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        channel.basic_nack(method.delivery_tag, requeue=requeue)

    shop.channel.basic_consume(shop.orders, price)
    shop.order("order-1")
    shop.until(**{"order-1": "rejected"})


def test_a_message_that_was_requeued_publishes_no_more(shop: Shop) -> None:
    first: list[contextvars.Context] = []

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if method.redelivered:
            with pytest.raises(ClosedError):
                first[0].run(channel.basic_publish, "", shop.priced, body)
            channel.basic_ack(method.delivery_tag)
        else:
            first.append(contextvars.copy_context())
            channel.basic_nack(method.delivery_tag)

    shop.channel.basic_consume(shop.orders, price)
    shop.order("order-1")
    shop.until(**{"order-1": "ack"})
    assert rabbitmq.count(shop.raw, shop.priced) == 0


def test_a_tracked_message_of_a_stream_is_refused(shop: Shop) -> None:
    # Each consumer of a stream gets each message: the first ack would count for all.
    stream = f"stream-{shop.orders}"
    shop.raw.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    shop.channel.basic_qos(prefetch_count=10)
    from_start = {"x-stream-offset": "first"}
    shop.channel.basic_consume(stream, lambda *_: None, auto_ack=True, arguments=from_start)
    shop.order("order-1", stream)
    with pytest.raises(InvalidBatchError, match="of a stream is not tracked"):
        shop.channel.start_consuming()
    assert shop.verdicts() == {}


def test_an_open_message_does_not_make_the_channel_keep_later_tags(shop: Shop) -> None:
    tags: list[int] = []

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        tags.append(method.delivery_tag)
        if len(tags) > 1:
            channel.basic_ack(method.delivery_tag)

    shop.channel.basic_consume(shop.orders, price)
    for _ in range(20):
        shop.put(shop.orders, "a hat")
    shop.run_until(lambda: len(tags) == 20)
    shop.channel.settle()
    values = [*vars(shop.channel).values(), *vars(shop.channel._settling).values()]
    kept = [value for value in values if isinstance(value, set | list | dict)]
    assert sum(map(len, kept)) == 1
    assert left(shop, shop.orders) == 1


def test_a_sender_closes_although_its_connection_is_lost(shop: Shop) -> None:
    sender = RabbitSender(pika.URLParameters(shop.url), shop.orders)
    sender(Record("order-1", "a hat"), [MessageId()])
    sender._connection._impl._transport._sock.shutdown(2)  # as a broker that is killed
    sender.close()
    assert sender._connection is None


def test_two_channels_share_one_channel_of_pika(shop: Shop) -> None:
    other = TrackedChannel(shop.acker, shop.raw)
    mine = TrackedChannel(shop.acker, shop.raw)
    open_tags: list[int] = []
    other.basic_consume(shop.priced, lambda *each: open_tags.append(each[1].delivery_tag))
    mine.basic_consume(shop.orders, lambda *_: None, auto_ack=True)
    for n in range(6):
        shop.order(f"order-{n}")
        shop.order(f"priced-{n}", shop.priced)
    shop.until(**{f"order-{n}": "ack" for n in range(6)})
    shop.run_until(lambda: len(open_tags) == 6)
    assert left(shop, shop.priced) == 6


@pytest.mark.parametrize("caught", [False, True])
def test_a_connection_that_is_lost_in_a_handler_raises_as_in_pika(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caught: bool
) -> None:
    monkeypatch.setattr("acker_redis.integrations.rabbitmq.settling.SETTLE", 3600)
    shop.channel._settling._settled_at = time.monotonic()

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        shop.connection._impl._transport._sock.shutdown(2)  # as a broker that is killed
        try:
            channel.basic_publish("", shop.priced, body)
        except AMQPError:
            if not caught:
                raise
        channel.basic_ack(method.delivery_tag)

    shop.channel.basic_consume(shop.orders, price)
    shop.order("order-1")
    with pytest.raises(AMQPError):
        shop.channel.start_consuming()
    (why,) = shop.verdicts().values()
    assert why.startswith(f"not published to {shop.priced}: ")
    assert left(shop, shop.orders) == 1
