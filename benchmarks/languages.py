"""Measure rows per second of all clients with batches, on one server in one run.

    python benchmarks/languages.py [--rows 200000] [--rounds 3] [--lanes 2] [--only node go]
    python benchmarks/languages.py --blocks [--rows 100000] [--rounds 5] [--lanes 1]

Each client packs and applies batches of 1000 rows, on 10,000 trees that stay pending. ``--lanes``
calls are in flight, each on a separate lane; ids are drawn before. The clients take turns, round by
round, because machines are noisy. The benchmark prints the median and the range. Server and client
share the machine, so the server limits a fast client. The first line is the rate of the server
alone: the same calls, packed before the clock starts and sent over plain sockets.

With ``--blocks`` each client tracks ``--rows`` trees and acks a row of each: loose trees and blocks
of 1000 trees, in turns. The table has how many times faster blocks are: to track, to ack, and both.
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

import numpy as np

from acker_redis import Acker, AckerConfig, Batch, ColumnBatch, new_anchor, new_tuple_id
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
Life = Callable[[int, bool], tuple[float, float]]
"""Trees, and whether they are in blocks -> seconds to track them, and to ack a row of each."""


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
    drawn = [(trees[n % len(trees)], new_tuple_id(), new_tuple_id()) for n in range(rows)]
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


def python_life(url: str, columns: bool) -> Life:
    """Return a measurement of the Python client: rows one by one, or as columns."""

    def measure(rows: int, blocks: bool) -> tuple[float, float]:
        ids = [new_tuple_id() for _ in range(rows)]
        anchors: list[int] = []
        with Acker.from_url(url, NAMESPACE, timeout=60) as acker:
            begun = time.perf_counter()
            for first in range(0, rows, BATCH):
                deltas = ids[first : first + BATCH]
                if blocks:
                    anchors += acker.track_block("bench", f"bench {ids[0]} {first}", deltas)
                    continue
                batch = Batch("bench")
                for id_ in deltas:
                    anchors.append(new_anchor())
                    batch.track(anchors[-1], "bench", [id_])
                acker.apply(batch)
            tracked = time.perf_counter()
            rows_of = batches(anchors, rows)
            drawn = time.perf_counter()
            for some in rows_of:
                if columns:
                    anchor, tuple_, edge = (
                        np.array(column, np.uint64) for column in zip(*some, strict=True)
                    )
                    acker.apply(ColumnBatch(anchor, tuple_ ^ edge))
                else:
                    acker.apply(filled(some))
            return tracked - begun, time.perf_counter() - drawn

    return measure


def other_life(driver: Driver, port: int) -> Life:
    """Return the same measurement of a client of any language; a slow one gets fewer rows."""

    def seconds_for(rows: int, blocks: bool) -> tuple[float, float]:
        answer = driver.ask("bench", rows=rows, batch=BATCH, lanes=1, trees=rows, blocks=blocks)
        return answer["tracking"], answer["seconds"]

    def measure(rows: int, blocks: bool) -> tuple[float, float]:
        driver.connect(port)
        driver.begin(NAMESPACE)
        tracking, acking = seconds_for(BATCH, blocks)
        if BATCH / acking > SLOW:
            return seconds_for(rows, blocks)
        return tracking * rows / BATCH, acking * rows / BATCH

    return measure


def compare(acker: Acker, lives: dict[str, Life], rows: int, rounds: int) -> None:
    """Print how many times faster blocks are than loose trees."""
    found: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, measure in lives.items():
            for blocks in (False, True):
                acker.connection.client.flushall()
                acker.create(AckerConfig(tick_ms=3_600_000, high_water=10**9))
                found.setdefault((name, blocks), []).append(measure(rows, blocks))
    print(f"{'thousand a second':22}{'track':>8}{'blocks':>8}{'gain':>6}", end="")
    print(f"{'ack':>8}{'blocks':>8}{'gain':>6}{'both':>6}{'least':>6}{'most':>6}")
    for name in lives:
        loose, inside = found[name, False], found[name, True]
        cells = ""
        for place in (0, 1):
            a, b = (statistics.median(each[place] for each in these) for these in (loose, inside))
            cells += f"{rows / a / 1000:8,.0f}{rows / b / 1000:8,.0f}{a / b:6.1f}"
        gains = [sum(a) / sum(b) for a, b in zip(loose, inside, strict=True)]
        for gain in (statistics.median(gains), min(gains), max(gains)):
            cells += f"{gain:6.1f}"
        print(f"{name:22}{cells}", flush=True)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="Rows per second of all clients")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--blocks", action="store_true", help="compare blocks with loose trees")
    parser.add_argument("--only", nargs="*", help="names of clients, and python")
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {}
    with OpenRedis() as server:
        acker = Acker.from_url(server.url, NAMESPACE, timeout=60)
        sides: dict[str, Measure] = {"the server alone": server_alone(server.url, server.port)}
        lives: dict[str, Life] = {}
        drivers = []
        if not arguments.only or "python" in arguments.only:
            sides["Python (redis-py)"] = python(server.url)
            lives["Python, Batch"] = python_life(server.url, columns=False)
            lives["Python, ColumnBatch"] = python_life(server.url, columns=True)
        for client in CLIENTS.values():
            if arguments.only and client.name not in arguments.only:
                continue
            if arguments.blocks and "blocks" not in client.can:
                continue
            if lacks := client.lacks():
                print(f"{client.language} is skipped: {lacks} is missing")
                continue
            for library in client.libraries:
                drivers.append(Driver(client.fast(), library))
                name = f"{client.language} ({library})" if library else client.language
                sides[name] = other(drivers[-1], server.port)
                lives[name] = other_life(drivers[-1], server.port)
        try:
            if arguments.blocks:
                compare(acker, lives, arguments.rows, arguments.rounds)
                return
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
