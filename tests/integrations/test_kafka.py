"""The consumer and the producer of Kafka on a mock cluster: acks, failures, commits, rebalances."""

import os
import signal
import threading
from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from acker_redis import Acker, Batch, ConfigError, InvalidBatchError, MessageId, emit
from acker_redis.integrations.kafka import TrackedConsumer, TrackedProducer
from acker_redis.integrations.kafka_messages.partitions import Partitions
from tests.integrations.kafka import (
    PARTITIONS,
    RawName,
    committed,
    group,
    partitions,
    put,
    put_raw,
    read,
)
from tests.waiting import wait_until


def track(acker: Acker, *names: str) -> list[tuple[str, str, Any]]:
    """Track a record per name; return the messages to produce."""
    batch, messages = Batch("shop"), []
    for name in names:
        tree = emit(name, edge="orders", ids=acker.ids)
        batch.add(tree.row)
        messages.append((name, name, tree.ids[0].to_headers()))
    acker.apply(batch)
    return messages


def verdicts(acker: Acker) -> dict[str, tuple[str, str]]:
    return {each.source_id: (each.verdict, each.why) for each in acker.outcomes("shop")}


def consumer_of(acker: Acker, servers: str, topic: str, **more: Any) -> TrackedConsumer:
    """Return a consumer with all partitions of the topic, in the group of the same name."""
    consumer = TrackedConsumer(acker, group(servers, topic), **more)
    consumer.assign(partitions(topic))
    return consumer


def run(consumer: TrackedConsumer, handler: Any, count: int) -> None:
    """Run until the handler has been called ``count`` times."""
    left = [count]

    def counted(message: Any) -> None:
        left[0] -= 1
        if not left[0]:
            consumer.stop()
        handler(message)

    consumer.run(counted)


def done(servers: str, topic: str) -> int:
    """Return the number of committed messages of the group of a topic."""
    return sum(committed(servers, topic, topic).values())


def test_messages_are_acked_and_committed_when_their_handler_returned(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, track(orders, "a", "b", "c"))
    seen: list[str] = []
    run(consumer_of(orders, servers, topic), lambda m: seen.append(m.key().decode()), 3)
    assert sorted(seen) == ["a", "b", "c"]
    assert verdicts(orders) == dict.fromkeys("abc", ("ack", ""))
    assert done(servers, topic) == 3


def test_children_hold_their_tree_open_and_carry_their_edge(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, track(orders, "a"))
    producer = TrackedProducer(orders, {"bootstrap.servers": servers})
    reports: list[Any] = []

    def handler(message: Any) -> None:
        producer.produce(
            f"{topic}-priced",
            "two",
            "a",
            headers=[("trace", b"x"), *message.headers()],
            on_delivery=lambda error, _: reports.append(error),
            edge="priced",
        )

    run(consumer_of(orders, servers, topic), handler, 1)
    assert verdicts(orders) == {}
    assert reports == [None]
    (child,) = read(servers, f"{topic}-priced", 1)
    assert [name for name, _ in child.headers()] == ["trace", "acker-tuple"]
    ids = MessageId.from_headers(child.headers())
    (anchor,) = ids
    assert orders.ids.edges_of(ids[anchor]) == ("priced",)
    run(consumer_of(orders, servers, f"{topic}-priced"), lambda _: None, 1)
    assert verdicts(orders) == {"a": ("ack", "")}


def test_message_that_fails_fails_its_tree_and_does_not_stop_the_others(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, track(orders, "a", "bad", "c"))

    def handler(message: Any) -> None:
        if message.value() == b"bad":
            raise ValueError("no such address")

    run(consumer_of(orders, servers, topic), handler, 3)
    assert verdicts(orders) == {
        "a": ("ack", ""),
        "bad": ("nack", "ValueError: no such address"),
        "c": ("ack", ""),
    }
    assert done(servers, topic) == 3


def test_poison_message_goes_to_a_dead_letter_topic_before_its_offset_is_committed(
    orders: Acker, servers: str, topic: str
) -> None:
    put(
        servers,
        topic,
        [*track(orders, "bad"), ("no", "id", None), ("torn", "x", {"acker-tuple": "7"})],
    )
    producer = TrackedProducer(orders, {"bootstrap.servers": servers})
    errors: list[str] = []

    def park(message: Any, error: BaseException) -> None:
        errors.append(type(error).__name__)
        producer.produce(f"{topic}-dead", message.value(), message.key())

    def handler(message: Any) -> None:
        raise ValueError("poison")

    consumer = consumer_of(orders, servers, topic, on_failure=park)
    thread = threading.Thread(target=consumer.run, args=(handler,))
    thread.start()
    wait_until(lambda: len(errors) == 3)
    consumer.stop()
    thread.join()
    dead = read(servers, f"{topic}-dead", 3)
    assert sorted(each.key() for each in dead) == [b"bad", b"no", b"torn"]
    assert not any(each.headers() for each in dead)
    assert sorted(errors) == ["InvalidBatchError", "ValueError", "ValueError"]
    assert verdicts(orders) == {"bad": ("nack", "ValueError: poison")}
    assert done(servers, topic) == 3


def test_message_whose_failure_cannot_be_told_stays_open_and_is_delivered_again(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, track(orders, "a"))

    def poison(_: Any) -> None:
        raise ValueError("poison")

    def park(*_: Any) -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        consumer_of(orders, servers, topic, on_failure=park).run(poison)
    assert (verdicts(orders), done(servers, topic)) == ({}, 0)
    run(consumer_of(orders, servers, topic), lambda _: None, 1)
    assert verdicts(orders) == {"a": ("ack", "")}


def test_message_without_a_header_that_fails_ends_the_run_and_stays(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, [("a", "a", None)])

    def handler(message: Any) -> None:
        raise ValueError("untold")

    with pytest.raises(ValueError, match="untold"):
        consumer_of(orders, servers, topic).run(handler)
    assert done(servers, topic) == 0
    run(consumer_of(orders, servers, topic), lambda _: None, 1)
    assert done(servers, topic) == 1


def test_children_of_messages_without_a_header_are_not_tracked(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, [("a", "a", None)])
    producer = TrackedProducer(orders, {"bootstrap.servers": servers})
    run(
        consumer_of(orders, servers, topic),
        lambda m: producer.produce(f"{topic}-priced", m.value()),
        1,
    )
    (child,) = read(servers, f"{topic}-priced", 1)
    assert child.headers() is None
    assert done(servers, topic) == 1


@pytest.mark.parametrize("when", ["at once", "in the report"])
def test_message_whose_child_kafka_refuses_fails_and_is_never_acked(
    when: str, orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, track(orders, "a"))
    config: dict[str, Any] = {"bootstrap.servers": servers, "message.timeout.ms": 100}
    if when == "in the report":
        config["bootstrap.servers"] = "127.0.0.1:1"  # no broker listens there
        config["log_level"] = 0
    producer = TrackedProducer(orders, config)

    def handler(message: Any) -> None:
        value = b"x" * (2_000_000 if when == "at once" else 1)
        try:
            producer.produce(f"{topic}-priced", value)
        except KafkaException:
            assert when == "at once"

    run(consumer_of(orders, servers, topic), handler, 1)
    ((verdict, why),) = verdicts(orders).values()
    assert verdict == "nack"
    assert ("MSG_SIZE_TOO_LARGE" if when == "at once" else "MSG_TIMED_OUT") in why
    assert done(servers, topic) == 1


def test_offset_whose_child_has_no_report_holds_the_commit_back(
    orders: Acker, servers: str, topic: str
) -> None:
    put(
        servers,
        topic,
        [(k, v, h) for (_, v, h), k in zip(track(orders, *"abc"), "kkk", strict=True)],
    )
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    silent = TrackedProducer(orders, config)
    consumer = consumer_of(orders, servers, topic)
    seen: list[Any] = []

    def handler(message: Any) -> None:
        seen.append(message)
        if message.value() == b"b":
            silent.produce(f"{topic}-priced", b"x")

    wait_until(
        lambda: (
            ([consumer.handle(m, handler) for m in consumer.consume(10, 0.05)] and False)
            or len(seen) == 3
        )
    )
    consumer.commit(asynchronous=False)
    assert [m.value() for m in seen] == [b"a", b"b", b"c"]
    assert done(servers, topic) == 1
    assert verdicts(orders) == {"a": ("ack", ""), "c": ("ack", "")}
    silent.purge()
    consumer.close()
    assert done(servers, topic) == 3
    assert verdicts(orders)["b"][0] == "nack"


def test_derived_id_of_a_child_is_the_same_when_its_message_is_delivered_again(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, track(orders, "a"))
    producer = TrackedProducer(orders, {"bootstrap.servers": servers})

    def handler(message: Any) -> None:
        producer.produce(f"{topic}-priced", b"x", child="priced")

    def interrupted(message: Any) -> None:
        handler(message)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consumer_of(orders, servers, topic).run(interrupted)
    assert done(servers, topic) == 0
    run(consumer_of(orders, servers, topic), handler, 1)
    one, other = read(servers, f"{topic}-priced", 2)
    assert one.headers() == other.headers()
    # A consumer that processes only one of them completes the tree.
    run(consumer_of(orders, servers, f"{topic}-priced"), lambda _: None, 1)
    assert verdicts(orders) == {"a": ("ack", "")}


def test_signal_ends_the_run_after_the_handler_and_commits(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, [("k", v, h) for _, v, h in track(orders, "a", "b", "c")])
    before = signal.getsignal(signal.SIGTERM)
    seen: list[bytes] = []

    def handler(message: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        seen.append(message.value())

    consumer_of(orders, servers, topic).run(handler)
    assert seen == [b"a"]
    assert done(servers, topic) == 1
    assert verdicts(orders) == {"a": ("ack", "")}
    assert signal.getsignal(signal.SIGTERM) is before


class Pair:
    """Two consumers of one group, each in its own thread, and what happened to them."""

    def __init__(self, acker: Acker, servers: str, topic: str) -> None:
        KafkaProducer({"bootstrap.servers": servers}).list_topics(topic)  # creates it
        self.seen: tuple[list[bytes], list[bytes]] = [], []
        self.shares, self.revoked = [0, 0], [0, 0]
        self.consumers: list[TrackedConsumer] = []
        self.threads: list[threading.Thread] = []
        config = group(servers, topic, **{"heartbeat.interval.ms": 100})
        for number in range(2):
            self._start(TrackedConsumer(acker, config), topic, number)

    def _start(self, consumer: TrackedConsumer, topic: str, number: int) -> None:
        def assigned(_: Any, given: list[Any]) -> None:
            self.shares[number] = len(given)

        def taken(_: Any, given: list[Any]) -> None:
            self.revoked[number] += 1

        def work() -> None:
            consumer.run(lambda m: self.seen[number].append(m.key()), commit_every=3600)

        consumer.subscribe([topic], on_assign=assigned, on_revoke=taken)
        self.consumers.append(consumer)
        self.threads.append(threading.Thread(target=work, daemon=True))
        self.threads[-1].start()

    def have_joined_together(self) -> bool:
        """Return whether each has half of the partitions; if not, one came later than the other.

        The mock cluster waits 3 seconds for the members of a new group. If one comes later, the
        next assignment takes 44 seconds, and sometimes one more has to follow.
        """
        half = PARTITIONS // 2
        wait_until(lambda: self.shares == [half, half] or PARTITIONS in self.shares, "partitions")
        return self.shares == [half, half]

    def stop(self) -> None:
        for consumer in self.consumers:
            consumer.stop()
        for thread in self.threads:
            thread.join()


@pytest.mark.full
def test_partitions_are_shared_and_committed_when_a_member_leaves(
    orders: Acker, servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The mock cluster revokes when a member leaves, and does not assign again.

    Unlike Kafka it refuses commits meanwhile: the messages would be delivered again.
    """
    names = [str(n) for n in range(100)]
    # On a machine that stalls, the second consumer may come too late: then try a new group.
    while not (pair := Pair(orders, servers, topic)).have_joined_together():
        pair.stop()
        topic += "-again"
    put(servers, topic, track(orders, *names))
    wait_until(lambda: sum(map(len, pair.seen)) == 100, "all messages")
    before = pair.revoked[1]
    caplog.clear()
    pair.consumers[0].stop()
    wait_until(lambda: pair.revoked[1] > before, "the rebalance")
    refused = "delivered again" in caplog.text
    assert done(servers, topic) == (len(pair.seen[0]) if refused else 100)
    assert pair.threads[1].is_alive()
    pair.stop()
    assert verdicts(orders) == dict.fromkeys(names, ("ack", ""))


def test_offset_that_kafka_refused_later_is_committed_again(
    orders: Acker, servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer to an asynchronous commit comes with a later poll."""
    told: list[Any] = []
    config = group(servers, topic, on_commit=lambda error, offsets: told.append((error, offsets)))
    consumer = TrackedConsumer(orders, config)
    consumer.assign(partitions(topic))
    missing = Mock(**{
        "error.return_value": None, "topic.return_value": topic, "partition.return_value": 99,
        "offset.return_value": 0, "headers.return_value": track(orders, "a")[0][2],
    })  # fmt: skip
    consumer._partitions.assign([(topic, 99)])
    consumer._arrived([missing])
    consumer.handle(missing, lambda _: None)
    consumer.commit()

    def answered() -> bool:
        consumer.poll(0.1)
        return bool(told)

    wait_until(answered, "the answer")
    assert "the next commit follows" in caplog.text
    with pytest.raises(KafkaException, match="Unknown topic or partition"):
        consumer.commit(asynchronous=False)
    consumer.close()
    assert "delivered again" in caplog.text


def test_offset_is_committed_once(orders: Acker, servers: str, topic: str) -> None:
    put(servers, topic, track(orders, "a"))
    told: list[Any] = []
    config = group(servers, topic, on_commit=lambda error, offsets: told.append((error, offsets)))
    consumer = TrackedConsumer(orders, config)
    consumer.assign(partitions(topic))
    message = None
    while message is None:
        message = consumer.poll(0.1)
    consumer.handle(message, lambda _: None)
    consumer.commit()

    def answered() -> bool:
        consumer.poll(0.1)
        return bool(told)

    wait_until(answered, "the answer")
    ((error, (offset,)),) = told
    assert (error, offset.error, offset.offset) == (None, None, 1)
    assert consumer.commit(asynchronous=False) == []
    consumer.close()


def test_lost_partition_is_neither_committed_nor_processed_further(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, track(orders, "a"))
    consumer = consumer_of(orders, servers, topic)
    message = None
    while message is None:
        message = consumer.poll(0.1)
    consumer.handle(message, lambda _: None)
    consumer.assign([])
    consumer.handle(message, lambda _: pytest.fail("the partition was given away"))
    consumer.close()
    assert done(servers, topic) == 0


def test_commit_above_messages_in_process_is_refused(
    orders: Acker, servers: str, topic: str
) -> None:
    consumer = consumer_of(orders, servers, topic)
    with pytest.raises(ConfigError, match="neither message nor offsets"):
        consumer.commit(offsets=[TopicPartition(topic, 0, 7)])
    consumer.close()
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit"):
        TrackedConsumer(orders, {**group(servers, topic), "enable.auto.commit": True})


def test_produce_outside_of_a_handler_is_an_error(orders: Acker, servers: str) -> None:
    producer = TrackedProducer(orders, {"bootstrap.servers": servers})
    with pytest.raises(ConfigError, match="needs a message in process"):
        producer.produce("priced", b"x")


def test_seek_back_begins_a_new_frontier(orders: Acker, servers: str, topic: str) -> None:
    put(servers, topic, [("k", v, None) for v in "abc"])
    consumer = consumer_of(orders, servers, topic)
    seen: list[Any] = []

    def read_all(count: int) -> None:
        while len(seen) < count:
            for message in consumer.consume(10, 0.05):
                consumer.handle(message, seen.append)
        consumer.commit(asynchronous=False)

    read_all(3)
    consumer.seek(TopicPartition(topic, seen[0].partition(), 1))
    read_all(5)
    consumer.close()
    assert [m.offset() for m in seen] == [0, 1, 2, 1, 2]
    assert done(servers, topic) == 3


def test_partition_begins_again_where_kafka_goes_back(
    orders: Acker, servers: str, topic: str
) -> None:
    """A topic was created again, or truncated: to the consumer, it is a seek of another's."""
    put(servers, topic, track(orders, "a"))
    put(servers, topic, [("a", v, None) for v in "bcde"])
    consumer, seen = consumer_of(orders, servers, topic), list[int]()

    def handler(message: Any) -> None:
        seen.append(message.offset())
        if seen == [0, 1, 2, 3, 4]:
            KafkaConsumer.seek(consumer, TopicPartition(topic, message.partition(), 1))
        if len(seen) == 8:
            consumer.stop()

    consumer.run(handler, commit_every=0)
    assert seen == [0, 1, 2, 3, 4, 1, 2, 3]
    assert done(servers, topic) == 4
    assert verdicts(orders) == {"a": ("ack", "")}


def test_messages_in_process_below_the_offset_to_which_kafka_goes_back_hold_the_commits() -> None:
    partitions = Partitions()
    partitions.assign([("orders", 0)])
    frontiers = {}
    for offset in (5, 6, 7, 8, 7):
        partitions.arrived(("orders", 0), offset)
    for offset in (5, 6, 7, 8):
        frontiers[offset] = partitions.read(("orders", 0), offset)
    again = partitions.read(("orders", 0), 7)
    assert again is not frontiers[7]
    again.complete(7)
    for offset in (6, 7, 8):
        assert partitions.moved() == []
        frontiers[offset].complete(offset)
    frontiers[5].complete(5)
    (position,) = (each.position for each in partitions.moved())
    assert position == 8
    with pytest.raises(ConfigError, match="offset 6 is handled after offset 7"):
        partitions.read(("orders", 0), 6)


def test_header_whose_name_is_not_utf_8_is_a_malformed_id(
    orders: Acker, servers: str, topic: str
) -> None:
    """Also in a process that has read many headers: see ``kafka/messages.py``."""
    messages: list[tuple[str, list[Any]]] = [("plain", [("trace", b"x")])] * 100
    for name, value, headers in track(orders, "torn", "a"):
        ours = [(key, text.encode()) for key, text in headers.items()]
        messages.append((value, [(RawName("\xff"), b"1"), *ours] if name == "torn" else ours))
    put_raw(servers, topic, messages)
    with pytest.raises(InvalidBatchError, match="not UTF-8"):
        consumer_of(orders, servers, topic).run(lambda _: None)
    assert done(servers, topic) == 100
    parked: list[Any] = []

    def park(message: Any, error: BaseException) -> None:
        parked.append((message.value(), message.headers(), type(error)))

    consumer = consumer_of(orders, servers, topic, on_failure=park)
    consumer.run(lambda _: consumer.stop())
    assert parked == [(b"torn", [], InvalidBatchError)]
    assert verdicts(orders) == {"a": ("ack", "")}
    assert done(servers, topic) == 102


def test_header_whose_name_is_not_utf_8_fails_its_message_in_a_batch(
    orders: Acker, servers: str, topic: str
) -> None:
    """confluent-kafka reads no headers of it, neither does a second look."""
    messages: list[tuple[str, list[Any]]] = []
    for name, value, headers in track(orders, "torn", "a"):
        ours = [(key, text.encode()) for key, text in headers.items()]
        messages.append((value, [(RawName("\xff"), b"1"), *ours] if name == "torn" else ours))
    put_raw(servers, topic, messages)
    handled: list[bytes] = []
    parked: list[type] = []
    consumer = consumer_of(
        orders, servers, topic, on_failure=lambda _, error: parked.append(type(error))
    )

    def handle(messages: Any) -> None:
        handled.extend(message.value() for message in messages)
        if b"a" in handled:
            consumer.stop()

    consumer.run_batches(handle)
    assert (handled, parked) == ([b"a"], [InvalidBatchError])
    assert verdicts(orders) == {"a": ("ack", "")}
    assert done(servers, topic) == 2


def test_messages_out_of_order_are_refused(orders: Acker, servers: str, topic: str) -> None:
    """Otherwise the message at offset 2 would be taken for a gap, and a commit would skip it."""
    put(servers, topic, [("k", v, None) for v in "abc"])
    consumer = consumer_of(orders, servers, topic)
    messages: list[Any] = []
    while len(messages) < 3:
        messages += consumer.consume(10, 0.05)
    consumer.handle(messages[2], lambda _: None)
    with pytest.raises(ConfigError, match="offset 0 is handled after offset 2"):
        consumer.handle(messages[0], lambda _: None)
    consumer.close()


def test_other_kafka_programs_read_the_header(orders: Acker, servers: str, topic: str) -> None:
    """A consumer of confluent-kafka, without this package, has the text of the id."""
    (message,) = track(orders, "a")
    put(servers, topic, [message])
    (found,) = read(servers, topic, 1)
    assert dict(found.headers())["acker-tuple"].decode() == message[2]["acker-tuple"]
    assert isinstance(KafkaProducer({"bootstrap.servers": servers}), KafkaProducer)


def test_seek_in_a_handler_gives_up_the_messages_that_were_read_before(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, [("k", value, None) for value in "abcd"])
    consumer, tried = consumer_of(orders, servers, topic), list[bytes]()

    def again(message: Any) -> None:
        tried.append(message.value())
        if tried == [b"a", b"b"]:
            consumer.seek(TopicPartition(topic, message.partition(), message.offset()))
        if tried[-1] == b"d":
            consumer.stop()

    consumer.run(again)
    assert tried == [b"a", b"b", b"b", b"c", b"d"]
    assert done(servers, topic) == 4


def test_partition_that_is_assigned_later_is_processed(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, track(orders, "a"))
    consumer = TrackedConsumer(orders, group(servers, topic))
    consumer.incremental_assign(partitions(topic))
    run(consumer, lambda _: None, 1)
    assert verdicts(orders) == {"a": ("ack", "")}


def test_handler_whose_work_goes_on_in_a_pool_fails_its_message(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, track(orders, "a"))
    consumer = consumer_of(orders, servers, topic, on_failure=lambda *_: consumer.stop())
    consumer.run(lambda _: Future())
    ((verdict, why),) = verdicts(orders).values()
    assert verdict == "nack"
    assert "has not done its work" in why


@pytest.mark.parametrize("kind", ["coroutine", "generator"])
def test_handler_that_only_returns_a_coroutine_or_generator_fails_its_message(
    orders: Acker, servers: str, topic: str, kind: str
) -> None:
    async def later(_: Any) -> None:
        """Never awaited."""

    put(servers, topic, track(orders, "a"))
    consumer = consumer_of(orders, servers, topic, on_failure=lambda *_: consumer.stop())
    with pytest.raises(ConfigError, match="handler= of run.. is a coroutine function"):
        consumer.run(later)
    consumer.run(lambda _: later(_) if kind == "coroutine" else (each for each in ()))
    ((verdict, why),) = verdicts(orders).values()
    assert verdict == "nack"
    assert "was not run" in why


def test_coroutine_function_cannot_be_told_of_a_failure(
    orders: Acker, servers: str, topic: str
) -> None:
    async def park(*_: Any) -> None:
        """Never awaited."""

    def poison(_: Any) -> None:
        raise ValueError("no such address")

    put(servers, topic, [("k", "x", None)])
    with pytest.raises(ConfigError, match="on_failure= of a TrackedConsumer"):
        consumer_of(orders, servers, topic, on_failure=park)
    consumer = consumer_of(orders, servers, topic, on_failure=lambda *_: park())
    with pytest.raises(ConfigError, match="was not run"):
        consumer.run(poison)
    assert done(servers, topic) == 0


def test_message_that_its_handler_has_settled_is_left_as_it_is(
    orders: Acker, servers: str, topic: str
) -> None:
    put(servers, topic, track(orders, "failed", "acked", "acked, then failed"))
    consumer = consumer_of(orders, servers, topic)

    def settle(message: Any) -> None:
        if message.value() == b"failed":
            consumer.current.fail("no such address")
        else:
            consumer.current.ack()
        if message.value() == b"acked, then failed":
            raise ValueError("too late")

    run(consumer, settle, 3)
    found = verdicts(orders)
    assert found["failed"] == ("nack", "no such address")
    assert found["acked"] == ("ack", "")
    assert done(servers, topic) == 3


def test_batch_of_messages_without_ids_is_refused(orders: Acker, servers: str, topic: str) -> None:
    producer = TrackedProducer(orders, {"bootstrap.servers": servers})
    with pytest.raises(ConfigError, match="produce_batch"):
        producer.produce_batch(topic, [{"value": b"x"}])
