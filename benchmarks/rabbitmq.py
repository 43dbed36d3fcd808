"""The consumer of examples/rabbitmq, tracked and untracked: messages per second of 1 kB each.

Both programs consume all messages of a queue with a prefetch of 100, price each, publish the result
to another queue and ack the delivery. They take turns, on one broker and one Redis. The trees of
the messages exist before the clock starts.
"""

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pika

from acker_redis import Acker, Batch, emit
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.rabbitmq import TrackedChannel
from tests.integrations import rabbitmq

EXAMPLE = Path(__file__).parents[1] / "examples/rabbitmq"


def price(program: str) -> Any:
    """Return the handler of ``before.py`` or ``after.py``."""
    spec = importlib.util.spec_from_file_location(program, EXAMPLE / f"{program}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.price


def fill(acker: Acker, channel: Any, count: int) -> None:
    """Track ``count`` records, and publish an order of 1 kB for each."""
    for queue in ("orders", "priced"):
        channel.queue_declare(queue)
        channel.queue_purge(queue)
    batch = Batch("shop")
    for number in range(count):
        order = {"order": number, "items": number % 7, "price": 12.5, "note": "x" * 940}
        tree = emit(str(number))
        batch.add(tree.row)
        properties = pika.BasicProperties(headers=tree.ids[0].to_headers())
        channel.basic_publish("", "orders", json.dumps(order), properties)
        if batch.full:
            acker.apply(batch)
            batch = Batch("shop")
    acker.apply(batch)
    while rabbitmq.count(channel, "orders") < count:
        time.sleep(0.01)


def rate(acker: Acker, url: str, count: int, program: str) -> float:
    """Return the messages per second of one run, from the first delivery to the last ack."""
    handler, done = price(program), 0

    def counted(channel: Any, *message: Any) -> None:
        nonlocal done
        handler(channel, *message)
        done += 1
        if done == count:
            channel.stop_consuming()

    connection = rabbitmq.connect(url)
    channel: Any = connection.channel()
    if program == "after":
        channel = TrackedChannel(acker, channel)
    channel.basic_qos(prefetch_count=100)
    began = time.perf_counter()
    channel.basic_consume("orders", counted)
    channel.start_consuming()
    found = count / (time.perf_counter() - began)
    channel.close()
    other = connection.channel()
    while rabbitmq.count(other, "priced") < count:
        time.sleep(0.01)
    assert rabbitmq.count(other, "orders") == 0
    connection.close()
    return found


def profile(acker: Acker, url: str, count: int) -> None:
    """Print the profile of a tracked run."""
    import cProfile
    import pstats

    with cProfile.Profile() as found:
        rate(acker, url, count, "after")
    pstats.Stats(found).sort_stats("tottime").print_stats(22)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="profile a tracked run, at the end")
    args = parser.parse_args()
    if lacks := rabbitmq.lacks():
        print(f"{lacks} is missing")
        return
    programs = "before", "after"
    found: dict[str, list[float]] = {program: [] for program in programs}
    with (
        tempfile.TemporaryDirectory() as folder,
        rabbitmq.broker(Path(folder)) as url,
        EmbeddedRedis(tcp=True) as server,
        Acker.from_url(server.url, "bench", timeout=60) as acker,
    ):
        acker.create()
        for number in range(args.rounds + args.profile):
            for program in programs if number % 2 else programs[::-1]:
                connection = rabbitmq.connect(url)
                fill(acker, connection.channel(), args.messages)
                connection.close()
                if number == args.rounds:
                    profile(acker, url, args.messages)
                    break
                found[program].append(rate(acker, url, args.messages, program))
    print(f"pika {pika.__version__}, {args.messages:,} messages of 1 kB, {args.rounds} rounds")
    untracked, tracked = (statistics.median(found[each]) for each in programs)
    print(f"untracked   {untracked:9,.0f} messages/s")
    print(f"tracked     {tracked:9,.0f} messages/s   {tracked / untracked:.2f} of untracked")


if __name__ == "__main__":
    main()
