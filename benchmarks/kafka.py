"""The consumer of examples/kafka, tracked and untracked: messages per second of 1 kB each.

A mock cluster in another process holds the messages. Both programs read all of them in batches of
500, price each, produce the result, wait for its delivery, and commit. The two take turns. The
trees of the tracked messages exist before the clock starts.
"""

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import confluent_kafka

from acker_redis import Acker, Batch, emit
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.kafka import TrackedConsumer, TrackedProducer

EXAMPLE = Path(__file__).parents[1] / "examples/kafka"
HOST = """
import sys
from confluent_kafka import Producer
host = Producer({"test.mock.num.brokers": 1, "log_level": 0})
print(*[f"{b.host}:{b.port}" for b in host.list_topics(timeout=60).brokers.values()], flush=True)
sys.stdin.read()
"""
PARTITIONS = 4


def price(program: str) -> Any:
    """Return the handler of ``before.py`` or ``after.py``."""
    spec = importlib.util.spec_from_file_location(program, EXAMPLE / f"{program}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.price


def fill(acker: Acker, servers: str, topic: str, count: int) -> None:
    """Track ``count`` records, and produce an order of 1 kB for each."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    batch = Batch("shop")
    for number in range(count):
        order = {"order": number, "items": number % 7, "price": 12.5, "note": "x" * 940}
        tree = emit(str(number))
        batch.add(tree.row)
        headers: Any = tree.ids[0].to_headers()
        producer.produce(topic, json.dumps(order), str(number), headers=headers)
        if batch.full:
            acker.apply(batch)
            batch = Batch("shop")
        producer.poll(0)
    acker.apply(batch)
    assert producer.flush(60) == 0


def rate(acker: Acker, servers: str, topic: str, count: int, tracked: bool) -> float:
    """Return the messages per second of one run, from the first message to the last commit."""
    config: dict[str, Any] = {"bootstrap.servers": servers}
    group = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer: Any
    producer: Any
    if tracked:
        producer = TrackedProducer(acker, config)
        consumer = TrackedConsumer(acker, {**config, **group})
    else:
        producer = confluent_kafka.Producer(config)
        consumer = confluent_kafka.Consumer({**config, **group, "enable.auto.commit": False})
    handler = price("after" if tracked else "before")
    consumer.assign([confluent_kafka.TopicPartition(topic, n) for n in range(PARTITIONS)])
    done, began = 0, 0.0
    while done < count:
        messages = consumer.consume(500, 0.1)
        began = began or (time.perf_counter() if messages else 0.0)
        for message in messages:
            if tracked:
                consumer.handle(message, handler, producer)
            else:
                handler(message, producer)
        producer.flush()
        if messages:
            consumer.commit(asynchronous=False)
        done += len(messages)
    found = count / (time.perf_counter() - began)
    consumer.close()
    return found


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=15_000, help="the cluster keeps 20 MB")
    parser.add_argument("--rounds", type=int, default=7)
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
        servers = host.stdout.readline().strip()
        acker.create()
        found: dict[bool, list[float]] = {False: [], True: []}
        for number in range(args.rounds):
            for tracked in (False, True) if number % 2 else (True, False):
                topic = f"orders-{uuid.uuid4().hex}"
                fill(acker, servers, topic, args.messages)
                found[tracked].append(rate(acker, servers, topic, args.messages, tracked))
        version = confluent_kafka.version()
        print(
            f"confluent-kafka {version}, {args.messages:,} messages of 1 kB, {args.rounds} rounds"
        )
        untracked, with_ids = (statistics.median(found[each]) for each in (False, True))
        print(f"untracked    {untracked:9,.0f} messages/s")
        print(f"tracked      {with_ids:9,.0f} messages/s   {with_ids / untracked:.2f} of untracked")
        if args.profile:
            profile(acker, servers, args.messages)
        host.stdin.close()


def profile(acker: Acker, servers: str, count: int) -> None:
    """Print the profile of the thread that consumes."""
    import cProfile
    import pstats

    topic = f"orders-{uuid.uuid4().hex}"
    fill(acker, servers, topic, count)
    with cProfile.Profile() as found:
        rate(acker, servers, topic, count, True)
    pstats.Stats(found).sort_stats("tottime").print_stats(22)


if __name__ == "__main__":
    main()
