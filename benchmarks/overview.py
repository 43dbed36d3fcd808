"""Measure what it costs to judge all namespaces, as the overview of the dashboard does.

    python benchmarks/overview.py [--rounds 8] [--most 1000]

Each namespace has forty trees, of which five are acked and no verdict is taken. The benchmark
judges all of them several times, one judgement after the other. It prints medians of the duration
of a judgement, of the time until the next one, of the processor time of Redis by INFO, and the
share of Redis during that time. In each round, the ages of ten namespaces per second are read
again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time

from acker_api.reading.ages import Ages
from acker_api.reading.overview import Overview
from acker_api.reading.reader import Reader
from acker_redis import Acker, AckerConfig, Batch, new_anchor, new_tuple_id
from acker_redis.embedded import EmbeddedRedis
from acker_redis.transport.connect import connect_async

SIZES = ((44, 1), (300, 1), (300, 4), (1000, 1))
"""Numbers of namespaces, and of shards of each."""
TREES, ACKED = 40, 5
PATIENCE = 60.0
"""Timeout of a survey, in seconds."""
HEAD = ("namespaces", "shards", "judged in", "every", "Redis", "of a core", "event")


def fill(url: str, name: str, shards: int) -> None:
    """Create a namespace with some trees and verdicts."""
    with Acker.from_url(url, name) as acker:
        acker.create(AckerConfig(shards=shards))
        batch = Batch("shop")
        for number in range(TREES):
            anchor, message = new_anchor(), new_tuple_id()
            batch.track(anchor, f"order-{number}", [message])
            if number < ACKED:
                batch.ack(anchor, message)
        acker.apply(batch)


async def judge(url: str, rounds: int) -> tuple[list[float], list[float], list[float], int]:
    """Return durations, pauses and seconds of Redis by round, and the bytes of an event."""
    client = connect_async(url, PATIENCE)
    reader = Reader(client, PATIENCE, PATIENCE)
    ages = Ages(reader.aged, sys.maxsize)
    overview = Overview(lambda: reader.survey(ages.see), ages)
    took, every, spent = list[float](), list[float](), list[float]()

    async def cpu() -> float:
        info = await client.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    judged = await overview.judge()  # connects, and reads all ages
    for _ in range(rounds):
        await asyncio.sleep(1.0)
        before, began = await cpu(), time.monotonic()
        judged = await overview.judge()
        took.append(time.monotonic() - began)
        every.append(judged.every)
        spent.append(await cpu() - before)
    await reader.close()
    return took, every, spent, len(json.dumps(judged.body()))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8, help="judgements of each size")
    parser.add_argument("--most", type=int, default=1000, help="largest number of namespaces")
    args = parser.parse_args()
    print("".join(f"{title:>12}" for title in HEAD))
    for namespaces, shards in SIZES:
        if namespaces > args.most:
            continue
        with EmbeddedRedis(tcp=True) as server:
            for number in range(namespaces):
                fill(server.url, f"n-{number:04}", shards)
            took, every, spent, size = asyncio.run(judge(server.url, args.rounds))
        share = statistics.median(cost / pause for cost, pause in zip(spent, every, strict=True))
        cells = (
            f"{namespaces:,}",
            str(shards),
            f"{1000 * statistics.median(took):,.0f} ms",
            f"{statistics.median(every):,.1f} s",
            f"{1000 * statistics.median(spent):,.1f} ms",
            f"{100 * share:.2f} %",
            f"{size / 1024:,.0f} KiB",
        )
        print("".join(f"{cell:>12}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
