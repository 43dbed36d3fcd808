"""The consumer of examples/kafka, tracked and untracked: messages per second of 1 kB each.

A mock cluster in another process holds the messages. All programs read them in batches of 500,
price each, and commit; the first two also produce the result, and wait for its delivery. They take
turns. The trees of the tracked messages exist before the clock starts. ``batches`` is a handler of
batches, and ``read`` the same program untracked.
"""

import json
import subprocess
import sys
import time
import uuid
from functools import partial
from typing import Any

import confluent_kafka
from side_by_side import Clock, Measured, arguments, in_turns, price, profile, show, tracked

from acker_redis import Acker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.kafka import TrackedConsumer, TrackedProducer

HOST = """
import sys
from confluent_kafka import Producer
host = Producer({"test.mock.num.brokers": 1, "log_level": 0})
print(*[f"{b.host}:{b.port}" for b in host.list_topics(timeout=60).brokers.values()], flush=True)
sys.stdin.read()
"""
PARTITIONS = 4


def fill(acker: Acker, servers: str, topic: str, count: int) -> None:
    """Track ``count`` records, and produce an order of 1 kB for each."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number, (order, headers) in enumerate(tracked(acker, count)):
        given: Any = headers
        producer.produce(topic, order, str(number), headers=given)
        producer.poll(0)
    assert producer.flush(60) == 0


def rate(acker: Acker, servers: str, count: int, program: str) -> Measured:
    """Measure one run, from the first message to the last commit."""
    topic, with_ids = f"orders-{uuid.uuid4().hex}", program in ("tracked", "batches")
    fill(acker, servers, topic, count)
    config: dict[str, Any] = {"bootstrap.servers": servers}
    group = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer: Any
    producer: Any
    if with_ids:
        producer = TrackedProducer(acker, config)
        consumer = TrackedConsumer(acker, {**config, **group})
    else:
        producer = confluent_kafka.Producer(config)
        consumer = confluent_kafka.Consumer({**config, **group, "enable.auto.commit": False})
    handler = price("kafka", "after" if with_ids else "before")
    consumer.assign([confluent_kafka.TopicPartition(topic, n) for n in range(PARTITIONS)])
    done, committed = 0, 0.0
    clock: Clock | None = None
    every = 1.0 if program in ("read", "batches") else 0.0
    """Seconds between two commits; that of run_batches()."""
    while done < count:
        messages = consumer.consume(500, 0.1)
        clock = clock or (Clock() if messages else None)
        if program == "batches":
            consumer.handle_batch(messages, prices)
        elif program == "read":
            prices(messages)
        else:
            for message in messages:
                if with_ids:
                    consumer.handle(message, handler, producer)
                else:
                    handler(message, producer)
        producer.flush()
        done += len(messages)
        if messages and (done == count or time.perf_counter() - committed > every):
            consumer.commit(asynchronous=False)
            committed = time.perf_counter()
    assert clock
    found = clock.stop(count)
    consumer.close()
    return found


def prices(messages: Any) -> None:
    """Price orders, as the handler of the example does, and write them nowhere."""
    for message in messages:
        order = json.loads(message.value())
        order["total"] = order["items"] * order["price"]
        json.dumps(order)


def main() -> None:
    """Read the arguments and measure."""
    parser = arguments(__doc__, "messages", 15_000, rounds=7)  # the cluster keeps 20 MB
    parser.add_argument("--profile", action="store_true", help="profile a tracked run, at the end")
    args = parser.parse_args()
    command = [sys.executable, "-c", HOST]
    with (
        EmbeddedRedis(tcp=True) as server,
        Acker.from_url(server.url, "bench", timeout=60) as acker,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host,
    ):
        assert host.stdout
        assert host.stdin
        run = partial(rate, acker, host.stdout.readline().strip(), args.messages)
        acker.create()
        found = in_turns(("untracked", "tracked"), args.rounds, run)
        batches = in_turns(("read", "batches"), args.rounds, run)
        version = confluent_kafka.version()
        print(
            f"confluent-kafka {version}, {args.messages:,} messages of 1 kB, {args.rounds} rounds"
        )
        show(found, "messages/s")
        show(batches, "messages/s")
        if args.profile:
            profile(lambda: run("tracked"))
        host.stdin.close()


if __name__ == "__main__":
    main()
