"""Measure the drain of ten million pending trees in one bucket, while a producer runs.

    python benchmarks/drain.py [--trees 10000000] [--records 1000] [--batches 200] [--url ...]

Full calls over a plain socket fill the bucket. Then a separate process applies batches at a steady
rate, each of which tracks and acks ten trees: first alone, then while an unmodified rotator service
drains the bucket. The benchmark prints the trees drained per second, by the clock and by the CPU
time of the server (from INFO, with the producer's share), the time of a call of ``apply``, and the
memory of Redis. No source takes the verdicts: at the end they all wait in the stream.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import statistics
import struct
import threading
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

from apply import Wire, pack

from acker_redis import Acker, AckerConfig, Batch, new_anchor, new_tuple_id
from acker_redis.embedded import EmbeddedRedis
from acker_redis.logs import Event
from acker_redis.protocol import commands, scripts, server_version
from acker_redis.protocol.keys import ShardKeys
from acker_redis.protocol.rows import Columns
from acker_redis.rotator.jobs import Pace
from acker_redis.rotator.service import serve
from acker_redis.transport.connect import connect

NAMESPACE = "bench-drain"
KEYS = ShardKeys(NAMESPACE, 0)
ROWS = 1000
"""Trees of a call that fills the bucket."""
TREES = 10
"""Trees of a batch of the producer, each tracked and acked."""
BYTES = 250
"""Bytes of memory for a tree: its record, then its verdict, and temporary memory."""


def fill(url: str, trees: int) -> float:
    """Track ``trees`` trees and return the rate per second."""
    wire, begun = Wire(url), time.perf_counter()
    sha = scripts.load("apply").sha
    number = 0
    while number < trees:
        calls = []
        for _ in range(20):
            rows = min(ROWS, trees - number)
            anchors = struct.unpack(f">{ROWS}Q", os.urandom(8 * ROWS))[:rows]
            columns = Columns(
                flags=b"\1" * rows,
                anchors=struct.pack(f">{rows}Q", *(anchor >> 2 | 1 for anchor in anchors)),
                deltas=b"\1" * (8 * rows),
                task="bench-source",
                texts=tuple(b"2013-01-01/%09d" % n for n in range(number, number + rows)),
            )
            call = commands.apply(KEYS, columns, None)
            calls.append(pack("EVALSHA", sha, 2, *call.keys, *call.args))
            number += rows
            if number == trees:
                break
        wire.seconds(b"".join(calls))
    return trees / (time.perf_counter() - begun)


def produce(url: str, batches: int, pipe: Pipe) -> None:
    """Apply ``batches`` batches a second; send the seconds of the calls on request."""
    with Acker.from_url(url, NAMESPACE, timeout=60) as acker:
        took: list[float] = []
        due = time.perf_counter()
        while True:
            if pipe.poll():
                if pipe.recv() == "end":
                    return
                pipe.send(took)
                took = []
                due = time.perf_counter()
            batch = Batch("bench-producer")
            for _ in range(TREES):
                anchor, message = new_anchor(), new_tuple_id()
                batch.track(anchor, f"order-{anchor}", [message])
                batch.ack(anchor, message)
            due += 1 / batches
            time.sleep(max(0.0, due - time.perf_counter()))
            begun = time.perf_counter()
            acker.apply(batch)
            took.append(time.perf_counter() - begun)


class Ticks(logging.Handler):
    """A log handler that waits for the tick that drained ``trees`` trees."""

    def __init__(self, trees: int) -> None:
        super().__init__()
        self._trees = trees
        self.tick: dict[str, Any] = {}
        self.seen = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Check an event of the rotator."""
        if isinstance(record.msg, Event) and record.msg.fields.get("expired", 0) >= self._trees:
            self.tick = record.msg.fields
            self.seen.set()


def drain(url: str, trees: int, records: int) -> dict[str, Any]:
    """Run the rotator until it has drained the bucket; return the fields of its log event."""
    ticks, log, stop = (
        Ticks(trees),
        logging.getLogger("acker_redis.rotator"),
        threading.Event(),
    )
    log.addHandler(ticks)
    log.setLevel(logging.INFO)
    client = connect(url, 30.0)
    pace = Pace(records=records)
    how = {"stop": stop, "pace": pace}
    service = threading.Thread(target=serve, args=(client, [NAMESPACE]), kwargs=how)
    service.start()
    ticks.seen.wait()
    stop.set()
    service.join()
    log.removeHandler(ticks)
    client.close()
    return ticks.tick


def say(what: str, took: list[float]) -> None:
    """Print one line of the table, in ms."""
    if not took:
        print(f"{what:24}     none: the drain ended before a batch was applied; raise --trees")
        return
    parts = statistics.quantiles(took, n=100) if len(took) > 1 else took * 99
    figures = (parts[49], parts[98], max(took))
    print(f"{what:24} {len(took):8,}" + "".join(f"{1000 * f:10.2f}" for f in figures))


def measure(url: str, trees: int, records: int, batches: int, beside: float) -> None:
    """Print the table."""
    with Acker.from_url(url, NAMESPACE, timeout=60) as acker:
        client = acker.connection.client
        acker.create(
            AckerConfig(buckets=2, tick_ms=3_600_000, high_water=10**9, outcomes_limit=10**9)
        )
        client.script_load(scripts.load("apply").source)

        def memory() -> int:
            return int(client.info("memory")["used_memory"])

        def cpu() -> float:
            used = client.info("cpu")
            return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

        empty = memory()
        computed = -cpu()
        rate = fill(url, trees)
        computed += cpu()
        full = memory()
        version = server_version.of_info(client.info("server"))
        print(f"{version}, {trees:,} trees in one bucket")
        print(f"tracked {rate:,.0f} trees/s, {trees / computed:,.0f} per core")
        context = multiprocessing.get_context("spawn")
        pipe, other = context.Pipe()
        producer = context.Process(target=produce, args=(url, batches, other), daemon=True)
        producer.start()

        def asked() -> list[float]:
            pipe.send("times")
            took: list[float] = pipe.recv()
            return took

        time.sleep(1.0)
        asked()
        time.sleep(beside)
        alone = asked()
        # The next tick, by the rotator, makes the full bucket expire.
        acker.connection.run(commands.rotate(KEYS, force=True))
        client.hincrby(KEYS.meta, "ticked_ms", -3_600_000)
        computed = -cpu()
        tick = drain(url, trees, records)
        computed += cpu()
        busy = asked()
        pipe.send("end")
        producer.join()
        drained = memory()
        counters = acker.status().counters
        if counters["expired"] != trees or tick["expired"] != trees:
            raise RuntimeError(
                f"wrong number of expired trees, so the figures are wrong: {counters} {tick}"
            )
        client.delete(KEYS.outcomes("bench-source"), KEYS.outcomes("bench-producer"))
        rate = trees / (tick["drain_ms"] / 1000)
        print(
            f"drained {rate:,.0f} trees/s (250,000), {trees / computed:,.0f} per core, in "
            f"{tick['drain_ms'] / 1000:.1f} s by {tick['calls']:,} calls of {records}"
        )
        print(f"{'apply, ms':24} {'calls':>8}{'p50':>10}{'p99':>10}{'max':>10}")
        say(f"{batches} a second", alone)
        say("... during the drain", busy)
        print(
            f"memory, MB: {empty / 1e6:,.0f} empty, {full / 1e6:,.0f} full, "
            f"{drained / 1e6:,.0f} drained, {memory() / 1e6:,.0f} when the verdicts are taken"
        )
        for key in client.scan_iter("acker:{" + NAMESPACE + ":0}*"):
            client.unlink(key)


def free() -> int:
    """Return the available bytes of memory; a huge number if the system does not report them."""
    try:
        with open("/proc/meminfo") as file:  # noqa: PTH123 - not a regular file
            lines = dict(line.split(":") for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return 1 << 62


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trees", type=int, default=10_000_000)
    parser.add_argument("--records", type=int, default=Pace().records, help="per call of the drain")
    parser.add_argument("--batches", type=int, default=200, help="per second, of the producer")
    parser.add_argument("--beside", type=float, default=10.0, help="seconds of the producer alone")
    parser.add_argument("--url", help="a Redis to use; the benchmark adds keys and deletes them")
    args = parser.parse_args()
    if args.trees * BYTES > free():
        parser.error(f"{args.trees:,} trees need {args.trees * BYTES / 1e9:.1f} GB; --trees fewer")
    if args.url:
        measure(args.url, args.trees, args.records, args.batches, args.beside)
    else:
        with EmbeddedRedis(tcp=True) as server:
            measure(server.url, args.trees, args.records, args.batches, args.beside)


if __name__ == "__main__":
    main()
