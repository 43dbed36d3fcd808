"""Measure rows per second of all clients with batches, on one server in one run.

    python benchmarks/languages.py [--rows 200000] [--rounds 3] [--lanes 2] [--only node go]

Each client packs and applies batches of 1000 rows, on 10,000 trees that stay pending. ``--lanes``
calls are in flight, each on a separate lane; ids are drawn before. The clients take turns, round by
round, because machines are noisy. The benchmark prints the median and the range. Server and client
share the machine, so the server limits a fast client. The first line is the rate of the server
alone: the same calls, packed before the clock starts and sent over plain sockets.
"""

import argparse
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from acker_redis import Acker, AckerConfig, Batch, new_anchor, new_tuple_id
from acker_redis.protocol import commands, scripts
from acker_redis.protocol.commands import Fence
from acker_redis.protocol.keys import ShardKeys
from tests.languages.clients import CLIENTS
from tests.languages.driver import Driver, DriverError
from tests.open_redis import OpenRedis

NAMESPACE = "bench"
BATCH, TREES = 1000, 10_000
SLOW = 10_000
"""Rows a second; a slower client is measured with few rows."""
Measure = Callable[[int, int], float]
"""Rows and lanes -> seconds."""


def anchors(acker: Acker) -> list[int]:
    """Track trees that stay pending, and return their anchors."""
    drawn = [new_anchor() for _ in range(TREES)]
    for first in range(0, TREES, BATCH):
        batch = Batch("bench")
        for anchor in drawn[first : first + BATCH]:
            batch.track(anchor, "bench", [new_tuple_id()])
        acker.apply(batch)
    return drawn


def batches(trees: list[int], rows: int) -> list[list[tuple[int, int, int]]]:
    """Return anchor, id and edge of each row, batch by batch."""
    drawn = [(trees[n % TREES], new_tuple_id(), new_tuple_id()) for n in range(rows)]
    return [drawn[first : first + BATCH] for first in range(0, rows, BATCH)]


def filled(rows: list[tuple[int, int, int]]) -> Batch:
    """Return a batch of acks."""
    batch = Batch()
    for anchor, tuple_id, edge in rows:
        batch.ack(anchor, tuple_id, [edge])
    return batch


def together(lanes: int, work: Callable[[int], None]) -> float:
    """Return the seconds that ``work`` takes in ``lanes`` threads."""
    threads = [threading.Thread(target=work, args=(lane,)) for lane in range(lanes)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def python(url: str) -> Measure:
    """Return a measurement of the Python client."""

    def measure(rows: int, lanes: int) -> float:
        ackers = [Acker.from_url(url, NAMESPACE, timeout=60) for _ in range(lanes)]
        all_ = batches(anchors(ackers[0]), rows)

        def work(lane: int) -> None:
            for rows in all_[lane::lanes]:
                ackers[lane].apply(filled(rows))

        try:
            return together(lanes, work)
        finally:
            for acker in ackers:
                acker.close()

    return measure


def server_alone(url: str, port: int) -> Measure:
    """Return a measurement of the server without a client: calls that were packed before."""

    def measure(rows: int, lanes: int) -> float:
        with Acker.from_url(url, NAMESPACE, timeout=60) as acker:
            all_ = batches(anchors(acker), rows)
        sha, keys = scripts.load("apply").sha, ShardKeys(NAMESPACE, 0)
        payloads: list[list[bytes]] = [[] for _ in range(lanes)]
        for number, some in enumerate(all_):
            fence = Fence(f"bench-{number % lanes}-{time.time_ns()}", number + 1, "aa")
            call = commands.apply(keys, filled(some).columns()[0], fence)
            payloads[number % lanes].append(resp("EVALSHA", sha, 2, *call.keys, *call.args))
        sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(lanes)]

        def work(lane: int) -> None:
            for payload in payloads[lane]:
                sockets[lane].sendall(payload)
                reply = b""
                while reply.count(b"\r\n") < 10:
                    reply += sockets[lane].recv(65536)
                    if reply.startswith(b"-"):
                        raise RuntimeError(reply.decode())

        try:
            return together(lanes, work)
        finally:
            for each in sockets:
                each.close()

    return measure


def resp(*words: object) -> bytes:
    """Return one command in RESP."""
    parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def other(driver: Driver, port: int) -> Measure:
    """Return a measurement of a client of any language; a slow one gets fewer rows and trees."""

    def seconds_for(rows: int, lanes: int, trees: int) -> float:
        answer = driver.ask("bench", rows=rows, batch=BATCH, lanes=lanes, trees=trees)
        seconds: float = answer["seconds"]
        return seconds

    def measure(rows: int, lanes: int) -> float:
        driver.connect(port)
        driver.begin(NAMESPACE)
        first = min(rows, lanes * BATCH)
        seconds = seconds_for(first, lanes, BATCH)
        if first / seconds > SLOW:
            first, seconds = rows, seconds_for(rows, lanes, TREES)
        return seconds * rows / first

    return measure


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="Rows per second of all clients")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="names of clients, and python")
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {}
    with OpenRedis() as server:
        acker = Acker.from_url(server.url, NAMESPACE, timeout=60)
        sides: dict[str, Measure] = {"the server alone": server_alone(server.url, server.port)}
        drivers = []
        if not arguments.only or "python" in arguments.only:
            sides["Python (redis-py)"] = python(server.url)
        for client in CLIENTS.values():
            if arguments.only and client.name not in arguments.only:
                continue
            if lacks := client.lacks():
                print(f"{client.language} is skipped: {lacks} is missing")
                continue
            for library in client.libraries:
                drivers.append(Driver(client.fast(), library))
                name = f"{client.language} ({library})" if library else client.language
                sides[name] = other(drivers[-1], server.port)
        try:
            for _ in range(arguments.rounds):
                for name, measure in sides.items():
                    # Each side starts with new trees, and without fences.
                    acker.connection.client.flushall()
                    acker.create(AckerConfig(tick_ms=3_600_000))
                    try:
                        seconds = measure(arguments.rows, arguments.lanes)
                    except DriverError as error:
                        print(f"{name} has failed: {error}")
                        continue
                    rates.setdefault(name, []).append(arguments.rows / seconds)
        finally:
            for driver in drivers:
                driver.close()
            acker.close()
        print(f"{server.description}, {arguments.rows} rows, {arguments.lanes} calls in flight\n")
    print(f"{'':24}{'rows/s':>10}{'least':>10}{'most':>10}")
    for name, found in rates.items():
        median = statistics.median(found)
        print(f"{name:24}{median:10,.0f}{min(found):10,.0f}{max(found):10,.0f}")


if __name__ == "__main__":
    main()
