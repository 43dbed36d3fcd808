"""Measure the Python API: one operation, and batches by linger.

    python benchmarks/producer.py [--operations 20000]

Each figure has a baseline in the same run: an operation has a bare EVALSHA of the same client, and
producers have one call per operation. Everything runs in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from acker_redis import Acker, AckerConfig, Batch, Producer, new_anchor, new_tuple_id
from acker_redis.aio import AsyncAcker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import scripts
from acker_redis.protocol.keys import ShardKeys

CONFIG = AckerConfig(tick_ms=3_600_000, high_water=10**9, outcomes_limit=10**9)
KEYS = ShardKeys("bench", 0).both
LINGERS = (0.0, 0.002, 0.010)
ROUNDS = 5


def microseconds(run: Callable[[], Any], count: int) -> float:
    """Return the median microseconds of ``count`` calls."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


async def microseconds_async(run: Callable[[], Awaitable[Any]], count: int) -> float:
    """Return the median microseconds of ``count`` calls."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await run()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def one_track() -> tuple[bytes, bytes]:
    """Return anchor and id of a tree, as they are sent."""
    return new_anchor().to_bytes(8, "big"), new_tuple_id().to_bytes(8, "big")


def batch_of_one() -> Batch:
    """Return a batch of the library with the same row."""
    batch = Batch("t")
    batch.track(new_anchor(), "order-1", (new_tuple_id(),))
    return batch


def single(url: str, count: int) -> None:
    """Measure one operation with one round trip."""
    sha = scripts.load("apply").sha
    with Acker.from_url(url, "bench", timeout=60) as acker:
        acker.apply(batch_of_one())  # loads the script
        client, numbers = acker.connection.client, iter(range(1, 10**9))

        def bare() -> None:
            row = one_track()
            client.evalsha(sha, 2, *KEYS, "bare", str(next(numbers)), b"\1", *row, "t", "order-1")

        rounds = [
            (
                microseconds(bare, count // 4),
                microseconds(lambda: acker.apply(batch_of_one()), count // 4),
            )
            for _ in range(4)
        ]
    show_single("threads", rounds)

    async def by_asyncio() -> list[tuple[float, float]]:
        async with AsyncAcker.from_url(url, "bench", timeout=60) as acker:
            await acker.apply(batch_of_one())
            client, numbers = acker.connection.client, iter(range(1, 10**9))

            def bare() -> Any:
                row = one_track()
                return client.evalsha(
                    sha, 2, *KEYS, "bare-a", str(next(numbers)), b"\1", *row, "t", "order-1"
                )

            return [
                (
                    await microseconds_async(bare, count),
                    await microseconds_async(lambda: acker.apply(batch_of_one()), count),
                )
                for _ in range(ROUNDS)
            ]

    show_single("asyncio", asyncio.run(by_asyncio()))


def show_single(name: str, rounds: list[tuple[float, float]]) -> None:
    """Print one line, with the medians of all rounds."""
    bare, ours = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(
        f"  {name:8} EVALSHA {bare:7.1f} us   Acker.apply {ours:7.1f} us   {ours / bare - 1:+.0%}"
    )


class Timed:
    """Records calls, and the time of each row until its reply."""

    def __init__(self, acker: Acker) -> None:
        self.began: deque[float] = deque()
        self.took: list[float] = []
        self.calls = 0
        self._run = acker.connection.run
        acker.connection.run = self  # type: ignore[method-assign]

    def __call__(self, call: Any) -> Any:
        """Send a call, as the connection would."""
        reply = self._run(call)
        if call.script == "apply":
            now, rows = time.perf_counter(), len(call.args[2])
            self.calls += 1
            self.took += [now - self.began.popleft() for _ in range(rows)]
        return reply


def lingers(url: str, count: int) -> None:
    """Print throughput flat out, and the time from call to reply at 2,000 operations a second."""
    heads = f"{'p50':>8} {'p99':>8} {'rows/call':>10}"
    print(f"  {'':16} {'flat out':>11} {'rows/call':>10}   at 2,000/s: {heads}")
    with Acker.from_url(url, "bench", timeout=60) as acker:
        acker.apply(batch_of_one())
        began = time.perf_counter()
        for _ in range(count // 10):
            acker.apply(batch_of_one())
        rate = count / 10 / (time.perf_counter() - began)
        print(f"  {'no producer':16} {rate:9,.0f}/s {1:10}")
    for linger in LINGERS:
        with Acker.from_url(url, "bench", timeout=60) as acker:
            timed = Timed(acker)
            with Producer(acker, "t", linger=linger) as producer:
                began = time.perf_counter()
                for _ in range(count):
                    timed.began.append(time.perf_counter())
                    producer.track(new_anchor(), "order-1", (new_tuple_id(),))
                producer.flush()
                rate, rows = count / (time.perf_counter() - began), count / timed.calls
                timed.took.clear()
                timed.calls, began = 0, time.perf_counter()
                for number in range(count // 5):
                    while (wait := began + number / 2000 - time.perf_counter()) > 0:
                        time.sleep(wait)
                    timed.began.append(time.perf_counter())
                    producer.track(new_anchor(), "order-1", (new_tuple_id(),))
                producer.flush()
            took = sorted(timed.took)
            p50, p99 = took[len(took) // 2] * 1e3, took[int(0.99 * len(took))] * 1e3
            print(
                f"  linger {linger * 1e3:4.0f} ms   {rate:9,.0f}/s {rows:10.0f}   {'':11} "
                f"{p50:5.2f} ms {p99:5.2f} ms {count / 5 / timed.calls:10.1f}"
            )


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--operations", type=int, default=20_000)
    args = parser.parse_args()
    with EmbeddedRedis(tcp=True) as server:
        with Acker.from_url(server.url, "bench", timeout=60) as acker:
            acker.create(CONFIG)
            print(f"{acker.connection.version()}, one process, one server")
        print("one operation, one round trip (median):")
        single(server.url, max(1, args.operations // 20))
        print("a producer, one thread that calls it:")
        lingers(server.url, args.operations)


if __name__ == "__main__":
    main()
