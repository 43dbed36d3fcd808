"""Measure a bolt that polls batches: messages one by one, and as columns.

    python benchmarks/process_batch.py [--messages 200000] [--batch 5000] [--rounds 5]

Each message has one child. The bolt reads the ids as bytes of a header, makes the texts of the
children's ids, and acks. The sides take turns, round by round, on the same server:

- ``process``: ``bolt.process()`` for each message; the Producer sends rows while the next are made.
- ``process_batch``: one thread, which waits for Redis after each batch.
- ``2 threads``: two threads share the batches, so one computes while the other waits.
- ``without Redis``: ``process_batch`` up to the packed rows, which are not sent.

The benchmark prints messages a second, and the processor time of Python for each message.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from acker_redis import (
    Acker,
    AckerConfig,
    Bolt,
    ColumnBatch,
    MessageId,
    Producer,
    new_anchor,
    new_tuple_id,
)
from acker_redis.embedded import EmbeddedRedis
from acker_redis.trees.processing_batch import ProcessingBatch

CONFIG = AckerConfig(tick_ms=3_600_000, high_water=10**9, outcomes_limit=10**9)
Batches = list[list[bytes]]


def one_by_one(acker: Acker, batches: Batches, url: str = "") -> None:
    """Process each message on its own."""
    with Producer(acker) as producer:
        bolt = Bolt(producer)
        for batch in batches:
            for text in batch:
                with bolt.process(MessageId.parse(text.decode())) as handle:
                    str(handle.emit())


def by_batch(acker: Acker, batches: Batches, url: str = "") -> None:
    """Process each batch as columns."""
    with Producer(acker) as producer:
        bolt = Bolt(producer)
        for batch in batches:
            with bolt.process_batch(batch) as handle:
                _ = handle.emit().texts


def by_two_threads(acker: Acker, batches: Batches, url: str = "") -> None:
    """Process the batches in two threads, each with its own client."""
    halves = [batches[::2], batches[1::2]]
    with (
        Acker.from_url(url, acker.namespace, timeout=60) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        list(pool.map(by_batch, (acker, other), halves))


def without_redis(acker: Acker, batches: Batches, url: str = "") -> None:
    """Compute the packed rows of each batch."""
    for batch in batches:
        processing = ProcessingBatch(batch, ids=acker.ids)
        _ = processing.emit().texts
        ColumnBatch(*processing.acked()).parts()


SIDES: dict[str, Callable[[Acker, Batches, str], None]] = {
    "process": one_by_one,
    "process_batch": by_batch,
    "2 threads": by_two_threads,
    "without Redis": without_redis,
}


def measure(messages: int, size: int, rounds: int) -> None:
    """Print the table."""
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    costs: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for name, run in SIDES.items():
            with (
                EmbeddedRedis(tcp=True) as server,
                Acker.from_url(server.url, "bench", timeout=60) as acker,
            ):
                acker.create(CONFIG)
                made = [b"%d:%d" % (new_anchor(), new_tuple_id()) for _ in range(messages)]
                batches = [made[at : at + size] for at in range(0, messages, size)]
                run(acker, batches[:1], server.url)
                began, used = time.perf_counter(), time.process_time()
                run(acker, batches, server.url)
                rates[name].append(messages / (time.perf_counter() - began))
                costs[name].append((time.process_time() - used) / messages * 1e6)
    print(f"{messages:,} messages in batches of {size:,}, medians of {rounds} rounds")
    print(f"{'':14} {'messages/s':>12} {'us of Python':>13} {'messages per core':>18}")
    for name, found in rates.items():
        cost = statistics.median(costs[name])
        print(f"{name:14} {statistics.median(found):12,.0f} {cost:13.2f} {1e6 / cost:16,.0f}/s")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    measure(args.messages, args.batch, args.rounds)


if __name__ == "__main__":
    main()
