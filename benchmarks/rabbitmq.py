"""The consumer of examples/rabbitmq, tracked and untracked: messages per second of 1 kB each.

Both programs consume all messages of a queue with a prefetch of 100, price each, publish the result
to another queue and ack the delivery. They take turns, on one broker and one Redis. The trees of
the messages exist before the clock starts.
"""

import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pika
from side_by_side import Clock, Measured, arguments, in_turns, price, profile, show, tracked

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from acker_redis import Acker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.rabbitmq import TrackedChannel
from tests.integrations import rabbitmq


def fill(acker: Acker, channel: Any, count: int) -> None:
    """Track ``count`` records, and publish an order of 1 kB for each."""
    for queue in ("orders", "priced"):
        channel.queue_declare(queue)
        channel.queue_purge(queue)
    for order, headers in tracked(acker, count):
        channel.basic_publish("", "orders", order, pika.BasicProperties(headers=headers))
    while rabbitmq.count(channel, "orders") < count:
        time.sleep(0.01)


def rate(acker: Acker, url: str, count: int, program: str) -> Measured:
    """Return the messages per second of one run, from the first delivery to the last ack."""
    with_ids, done = program == "tracked", 0
    handler = price("rabbitmq", "after" if with_ids else "before")

    def counted(channel: Any, *message: Any) -> None:
        nonlocal done
        handler(channel, *message)
        done += 1
        if done == count:
            channel.stop_consuming()

    connection = rabbitmq.connect(url)
    channel: Any = connection.channel()
    fill(acker, channel, count)
    if with_ids:
        channel = TrackedChannel(acker, channel)
    channel.basic_qos(prefetch_count=100)
    clock = Clock()
    channel.basic_consume("orders", counted)
    channel.start_consuming()
    found = clock.stop(count)
    channel.close()
    other = connection.channel()
    while rabbitmq.count(other, "priced") < count:
        time.sleep(0.01)
    assert rabbitmq.count(other, "orders") == 0
    connection.close()
    return found


def main() -> None:
    """Read the arguments and measure."""
    parser = arguments(__doc__, "messages", 5000, rounds=5)
    parser.add_argument("--profile", action="store_true", help="profile a tracked run, at the end")
    args = parser.parse_args()
    if lacks := rabbitmq.lacks():
        print(f"{lacks} is missing")
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        rabbitmq.broker(Path(folder)) as url,
        EmbeddedRedis(tcp=True) as server,
        Acker.from_url(server.url, "bench", timeout=60) as acker,
    ):
        acker.create()
        run = partial(rate, acker, url, args.messages)
        found = in_turns(("untracked", "tracked"), args.rounds, run)
        print(f"pika {pika.__version__}, {args.messages:,} messages of 1 kB, {args.rounds} rounds")
        show(found, "messages/s")
        if args.profile:
            profile(lambda: run("tracked"))


if __name__ == "__main__":
    main()
