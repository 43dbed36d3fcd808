"""RabbitMQ: consumers ack what they have processed, in Redis first, and children are tracked."""

import contextvars
from concurrent.futures import Future
from typing import Any

import pika
import pytest

from acker_redis import Backoff, ConfigError, MessageId, RedisUnavailableError, Source
from acker_redis.integrations.rabbitmq import RabbitSender, TrackedChannel
from acker_redis.protocol.ids import ANCHOR_MAX, TUPLE_MAX
from tests.integrations import rabbitmq
from tests.integrations.rabbitmq_shop import Shop, left


def test_ack_of_the_delivery_acks_the_tree_of_the_order_and_its_child(shop: Shop) -> None:
    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish("", shop.priced, body, properties, edge="priced")
        channel.basic_ack(method.delivery_tag)

    shipped = []

    def ship(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        shipped.append(properties.headers["other"])
        channel.basic_ack(method.delivery_tag)

    shop.channel.basic_qos(prefetch_count=2)
    shop.channel.basic_consume(shop.orders, price)
    for n in range(5):
        shop.order(f"order-{n}")
    shop.run_until(lambda: rabbitmq.count(shop.raw, shop.priced) == 5)
    assert shop.verdicts() == {}
    shop.channel.basic_consume(shop.priced, ship)
    shop.until(**{f"order-{n}": "ack" for n in range(5)})
    assert shipped == [7] * 5
    shop.channel.close()
    assert left(shop, shop.orders) == 0


def test_a_delivery_that_is_acked_later_is_open_until_then(shop: Shop) -> None:
    later: list[Any] = []

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        later.append((contextvars.copy_context(), method.delivery_tag))

    shop.channel.basic_consume(shop.orders, price)
    for n in range(3):
        shop.order(f"order-{n}")
    shop.run_until(lambda: len(later) == 3)
    assert shop.verdicts() == {}
    context, tag = later[0]
    context.run(shop.channel.basic_publish, "", shop.priced, b"late")
    shop.channel.basic_ack(tag)
    shop.channel.basic_ack(later[2][1], multiple=True)
    shop.channel.basic_ack(multiple=True)  # no others
    shop.until(**{"order-1": "ack", "order-2": "ack"})
    shop.channel.basic_consume(shop.priced, lambda *_: None, auto_ack=True)
    shop.until(**{f"order-{n}": "ack" for n in range(3)})


def test_acks_of_messages_that_arrive_together_leave_other_deliveries_open(shop: Shop) -> None:
    inner, seen = shop.channel._channel, []
    inner.basic_consume(shop.priced, lambda *each: seen.append(each[1].delivery_tag))
    shop.put(shop.priced, "first")
    shop.run_until(lambda: seen == [1])

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if body != b"order-3":
            channel.basic_ack(method.delivery_tag)

    shop.channel.basic_consume(shop.orders, price)
    names = [f"order-{n}" for n in range(6)]
    for name in names:
        shop.order(name)
        shop.put(shop.priced, "others")
    shop.until(**{name: "ack" for name in names if name != "order-3"})
    shop.run_until(lambda: len(seen) == 7)
    shop.channel.settle()
    assert left(shop, shop.priced) == 7


def test_auto_ack_acks_when_the_handler_has_returned(shop: Shop) -> None:
    seen = []

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if body == b"poison":
            raise ValueError("no such address")
        seen.append(rabbitmq.count(shop.raw, shop.orders))

    shop.channel.basic_consume(shop.orders, price, auto_ack=True)
    shop.order("order-1", kind=bytes)
    shop.order("poison")
    shop.until(**{"order-1": "ack", "poison": "ValueError: no such address"})
    assert seen
    assert left(shop, shop.orders) == 0


def test_a_failed_message_goes_to_the_dead_letter_exchange(shop: Shop) -> None:
    dead, queue = f"dead-{shop.orders}", f"rejecting-{shop.orders}"
    shop.raw.queue_declare(dead)
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    shop.raw.queue_declare(queue, arguments=to_dead)

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if body == b"raised":
            channel.basic_ack(method.delivery_tag)  # what happens later in the handler counts
            raise ValueError("no such address")
        channel.basic_reject(method.delivery_tag, requeue=False)

    shop.channel.basic_consume(queue, price)
    shop.order("raised", queue)
    shop.order("rejected", queue)
    shop.until(raised="ValueError: no such address", rejected="rejected")
    shop.run_until(lambda: rabbitmq.count(shop.raw, dead) == 1)


def test_a_requeued_message_stays_open_and_its_redelivery_is_acked(shop: Shop) -> None:
    deliveries = []

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        deliveries.append(method.redelivered)
        if method.redelivered:
            channel.basic_ack(method.delivery_tag)
        else:
            channel.basic_nack(method.delivery_tag)

    shop.channel.basic_consume(shop.orders, price)
    shop.order("order-1")
    shop.until(**{"order-1": "ack"})
    assert deliveries == [False, True]


@pytest.mark.parametrize("confirms", [False, True])
def test_a_child_that_no_queue_takes_fails_the_tree_by_name(shop: Shop, confirms: bool) -> None:
    if confirms:
        shop.channel.confirm_delivery()

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        try:
            channel.basic_publish("", "nowhere", body)
        except pika.exceptions.UnroutableError:
            assert confirms  # a handler that continues does not get its message acked
        channel.basic_ack(method.delivery_tag)

    shop.channel.basic_consume(shop.orders, price)
    shop.order("order-1")
    shop.run_until(shop.verdicts)
    (why,) = shop.verdicts().values()
    words = "UnroutableError: 1 unroutable message(s) returned" if confirms else "NO_ROUTE"
    assert why == f"not published to nowhere: {words}"


def test_a_child_that_the_broker_refuses_fails_the_tree_by_name(shop: Shop) -> None:
    full = f"full-{shop.orders}"
    shop.raw.queue_declare(full, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    shop.channel.confirm_delivery()

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish("", full, body)

    shop.channel.basic_consume(shop.orders, price)
    shop.order("order-1")
    shop.run_until(shop.verdicts)
    (why,) = shop.verdicts().values()
    assert "NackError" in why


def test_copies_of_an_exchange_are_acked_each(shop: Shop) -> None:
    exchange = f"fan-{shop.orders}"
    shop.raw.exchange_declare(exchange, "fanout")
    audit, untracked = f"audit-{shop.orders}", f"untracked-{shop.orders}"
    for queue in (shop.priced, audit, untracked):
        shop.raw.queue_declare(queue)
        shop.raw.queue_bind(queue, exchange)
    refused: list[str] = []

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        try:
            channel.basic_publish(exchange, "", body)
        except ConfigError as error:
            refused.append(str(error))
        channel.basic_publish(exchange, "", body, queues=[shop.priced, audit])

    seen: list[str] = []

    def copies(queue: str) -> Any:
        return lambda *_: seen.append(queue)

    shop.channel.basic_consume(shop.orders, price, auto_ack=True)
    shop.channel.basic_consume(untracked, copies(untracked), auto_ack=True)
    shop.channel.basic_consume(shop.priced, copies(shop.priced), auto_ack=True)
    shop.order("order-1")
    shop.run_until(lambda: {untracked, shop.priced} <= set(seen))
    shop.channel.settle()
    assert shop.verdicts() == {}
    shop.channel.basic_consume(audit, copies(audit), auto_ack=True)
    shop.until(**{"order-1": "ack"})
    assert len(refused) == 1


def test_messages_without_an_id_are_processed_as_before(shop: Shop) -> None:
    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if body == b"poison":
            raise ValueError("no such address")
        channel.basic_publish("", shop.priced, body, properties)
        channel.basic_ack(method.delivery_tag)

    shop.put(shop.orders, "a hat", {"other": 7})
    shop.put(shop.orders, "a coat")
    shop.put(shop.orders, "poison")
    shop.channel.basic_consume(shop.orders, price)
    with pytest.raises(ValueError, match="no such address"):
        shop.channel.start_consuming()
    shop.run_until(lambda: rabbitmq.count(shop.raw, shop.priced) == 2)
    found = [shop.raw.basic_get(shop.priced, auto_ack=True) for _ in range(2)]
    assert [(properties.headers, body) for _, properties, body in found] == [
        ({"other": 7}, b"a hat"),
        (None, b"a coat"),
    ]
    assert left(shop, shop.orders) == 1


@pytest.mark.parametrize("value", [7, "7:x", b"\xff", {"x": 1}, 2**40])
def test_a_header_that_is_no_id_ends_the_loop_and_its_message_stays(shop: Shop, value: Any) -> None:
    queue = "x" if isinstance(value, dict) else shop.orders
    shop.raw.queue_declare(queue)
    shop.put(queue, "a hat", {"acker-tuple": value})
    shop.channel.basic_consume(queue, lambda *_: None, auto_ack=True)
    with pytest.raises(ValueError, match="text or bytes|anchored tuple"):
        shop.channel.start_consuming()
    assert left(shop, queue) == 1


def test_the_largest_ids_travel(shop: Shop) -> None:
    ids = MessageId({ANCHOR_MAX: TUPLE_MAX})
    found = []

    def look(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        (each,) = shop.channel.current.processing.inputs
        found.append(each)

    shop.channel.basic_consume(shop.orders, look)
    shop.put(shop.orders, "a hat", ids.to_headers())
    shop.run_until(lambda: found)
    assert found == [ids]


def test_in_doubt_the_delivery_goes_back_into_its_queue(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied, redelivered = shop.acker.apply, []

    def away(batch: Any) -> Any:
        if len(redelivered) < 2:
            raise RedisUnavailableError("Redis is away")
        return applied(batch)

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        redelivered.append(method.redelivered)
        channel.basic_ack(method.delivery_tag)

    shop.order("order-1")
    monkeypatch.setattr(shop.acker, "apply", away)
    shop.channel.basic_consume(shop.orders, price)
    shop.until(**{"order-1": "ack"})
    assert redelivered == [False, True]


def test_a_message_that_is_acked_in_redis_only_is_delivered_again_and_ignored(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if body == b"order-2":
            channel.basic_publish("", shop.priced, body)
        channel.basic_ack(method.delivery_tag)

    shop.channel.basic_consume(shop.orders, price)
    anchor = shop.order("order-2")
    shop.order("order-1")
    monkeypatch.setattr(shop.channel._settling, "_tell_all", lambda done: None)
    shop.until(**{"order-1": "ack"})
    assert left(shop, shop.orders) == 2
    again = Shop(shop.url, shop.acker)
    redelivered: list[bool] = []

    def price_again(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        redelivered.append(method.redelivered)
        price(channel, method, properties, body)

    again.channel.basic_consume(shop.orders, price_again)
    again.channel.basic_consume(shop.priced, lambda *_: None, auto_ack=True)
    again.run_until(lambda: len(redelivered) == 2)
    again.run_until(lambda: rabbitmq.count(again.raw, shop.priced) == 0)
    again.channel.close()
    again.connection.close()
    assert redelivered == [True, True]
    # The two acks of order-2 have cancelled each other: its tree will expire.
    assert again.verdicts() == {}
    assert shop.acker.show(anchor)


@pytest.mark.parametrize("acked", [False, True])
def test_an_interrupted_handler_does_not_ack(shop: Shop, acked: bool) -> None:
    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if acked:
            channel.basic_ack(method.delivery_tag)
        raise KeyboardInterrupt

    shop.channel.basic_consume(shop.orders, price)
    anchor = shop.order("order-1")
    with pytest.raises(KeyboardInterrupt):
        shop.channel.start_consuming()
    assert shop.verdicts() == ({"order-1": "KeyboardInterrupt"} if acked else {})
    assert (shop.acker.show(anchor) is None) is acked
    assert left(shop, shop.orders) == (0 if acked else 1)


def test_a_handler_may_settle_by_its_handle(shop: Shop) -> None:
    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.current.reset_timeout()
        channel.current.fail("no such address")
        channel.basic_ack(method.delivery_tag)

    shop.channel.basic_consume(shop.orders, price)
    shop.order("order-1")
    shop.until(**{"order-1": "no such address"})
    shop.channel.close()
    assert left(shop, shop.orders) == 0


def test_a_handler_that_only_returns_a_coroutine_fails(shop: Shop) -> None:
    async def price(*_: Any) -> None: ...

    shop.channel.basic_consume(shop.orders, lambda *each: price(*each), auto_ack=True)
    shop.order("order-1")
    shop.run_until(shop.verdicts)
    assert "was not run" in shop.verdicts()["order-1"]


def test_a_handler_whose_work_goes_on_in_a_pool_fails(shop: Shop) -> None:
    shop.channel.basic_consume(shop.orders, lambda *_: Future(), auto_ack=True)
    shop.order("order-1")
    shop.run_until(shop.verdicts)
    assert "has not done its work" in shop.verdicts()["order-1"]


def test_misuse_is_refused(shop: Shop) -> None:
    async def price(*_: Any) -> None: ...

    for wrong in (
        lambda: shop.channel.basic_publish("", shop.priced, b"a hat"),
        lambda: shop.channel.current,
        lambda: shop.channel.basic_get(shop.orders),
        lambda: shop.channel.consume(shop.orders),
        lambda: shop.channel.basic_consume(shop.orders, price),
        lambda: TrackedChannel(None, shop.raw),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError):
            wrong()


def test_an_unknown_tag_closes_the_channel_as_without_tracking(shop: Shop) -> None:
    shop.channel.basic_ack(99)
    shop.run_until(lambda: not shop.channel.is_open)


def test_the_sender_of_a_source_connects_again_and_names_its_queue(shop: Shop) -> None:
    parameters = pika.URLParameters(shop.url)
    sender = RabbitSender(parameters, shop.orders)
    nowhere = RabbitSender(parameters, "nowhere")
    said: list[str] = []

    def price(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        assert properties.delivery_mode == 2
        if len(said) == 0:
            sender._connection.close()  # as a broker that restarts
        said.append(body.decode())

    def send(record: Any, ids: Any) -> None:
        (nowhere if record.source_id == "lost" else sender)(record, ids)

    source = Source(
        shop.acker, "shop", send, attempts=2, backoff=Backoff(0.01, 0.01),
        on_ack=lambda record: said.append(f"{record.source_id} acked"),
        dead_letter=lambda record, reason, why: said.append(why),
    )  # fmt: skip
    shop.channel.basic_consume(shop.orders, price, auto_ack=True)
    source.emit("order-1", "a hat")

    def step() -> bool:
        source.step()
        return not source.pending

    shop.run_until(step)
    source.emit("order-2", b"a coat")
    shop.run_until(step)
    source.emit("lost", b"a scarf")
    shop.run_until(step)
    assert said == [
        "a hat", "order-1 acked", "a coat", "order-2 acked",
        "AckerError: not published to nowhere: UnroutableError: 1 unroutable message(s) returned",
    ]  # fmt: skip
    sender.close()
    nowhere.close()
