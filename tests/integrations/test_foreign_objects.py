"""Objects that are not ours may be false: no message, error or callback is tested for its truth."""

from typing import Any

import httpx

from acker_redis import Acker
from acker_redis.integrations.core.work import Work
from acker_redis.integrations.http import TrackedAsyncTransport, TrackedTransport
from acker_redis.integrations.kafka import TrackedProducer
from acker_redis.trees.record import Record, Verdict
from acker_redis.trees.source_settings import SourceSettings
from tests.integrations.kafka import put, read
from tests.integrations.test_kafka import consumer_of, done, run, track, verdicts


class Invalid(Exception):
    """An error without details: some libraries let it count them."""

    def __len__(self) -> int:
        return 0


class Parked(list[Any]):
    """A callback that keeps its arguments: false before the first call."""

    def __call__(self, *told: Any) -> None:
        self.append(told)


def test_kafka_messages_without_a_value_are_handled(
    orders: Acker, servers: str, topic: str
) -> None:
    """A message of confluent-kafka is as long as its value, and a tombstone has none."""
    values = [None, "", "a", None]
    tracked = zip(values, track(orders, *"0123"), strict=True)
    put(servers, topic, [("k", value, headers) for value, (_, _, headers) in tracked])
    put(servers, topic, [("k", value, None) for value in (None, "", "end")])
    consumer, seen = consumer_of(orders, servers, topic), list[Any]()

    def handler(message: Any) -> None:
        seen.append(message.value())
        if message.value() == b"end":
            consumer.stop()

    consumer.run(handler, batch=1)
    assert seen == [None, b"", b"a", None, None, b"", b"end"]
    assert done(servers, topic) == 7
    assert verdicts(orders) == dict.fromkeys("0123", ("ack", ""))


def test_kafka_message_whose_handler_raised_an_empty_error_is_not_acked_by_a_later_report(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, track(orders, "a"))
    producer = TrackedProducer(orders, {"bootstrap.servers": servers})

    def handler(message: Any) -> None:
        producer.produce(f"{topic}-priced", message.value())
        raise Invalid

    run(consumer_of(orders, servers, topic), handler, 1)
    assert read(servers, f"{topic}-priced", 1)
    assert verdicts(orders) == {"a": ("nack", "Invalid")}


def test_kafka_failure_is_parked_by_a_callback_that_is_empty(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, [("k", "a", None)])
    parked = Parked()

    def handler(message: Any) -> None:
        raise ValueError("poison")

    run(consumer_of(orders, servers, topic, on_failure=parked), handler, 1)
    (((message, error),)) = parked
    assert message.value() == b"a"
    assert str(error) == "poison"


def test_first_error_counts_although_it_is_empty() -> None:
    work, first = Work(None, "7:40"), Invalid()
    work.failed(first)
    work.failed(ValueError("second"))
    assert work.error is first


def test_callable_list_of_a_source_is_called_while_it_is_empty() -> None:
    settings = SourceSettings(on_ack=Parked(), on_fail=Parked(), dead_letter=Parked())
    record = Record("a", attempt=1)
    ack = Verdict(record, "ack", "completed", "", 9, final=True, anchor=7)
    nack = Verdict(record, "nack", "failed", "", 9, final=True, anchor=7)
    assert settings.calls_back
    assert [len(settings.callbacks(each)) for each in (ack, nack)] == [1, 2]


def test_transport_of_length_0_sends_requests() -> None:
    class Sent(list[Any], httpx.MockTransport):
        """Keeps the requests that it is given."""

    for kind in (TrackedTransport, TrackedAsyncTransport):
        given = Sent()
        assert kind(given, hosts=[])._transport is given
