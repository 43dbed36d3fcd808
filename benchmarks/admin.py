"""Measure the admin service and its dashboard with a million pending trees on 16 shards.

    python benchmarks/admin.py [--trees 1000000] [--calls 300] [--seconds 20] [--rounds 2]

A tenth of the trees are in blocks, the others are loose. They are in all buckets and of several
sources, and some have failed before they were tracked. The service is a separate process. The
benchmark measures everything twice: idle, and while a producer process applies 50 batches a second,
each of 1000 rows. Calls go over one persistent connection at a steady pace. They are compared with
PING over another connection, and with ``/livez``, which does not query Redis.

In chromium (Playwright's package, Debian's browser) a new profile opens the page of the namespace.
The benchmark prints the time from the navigation until all figures are shown, until verdicts are
listed, and until a filter that was then chosen is applied. The cost of open pages is the difference
of the processor time of Redis, from INFO, with and without them, in turns.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import socket
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any
from urllib.parse import urlsplit

from dashboard import browsing, costs, interactive, spend
from events import serving

from acker_redis import Acker, AckerConfig, Batch, Rotator, new_anchor, new_tuple_id
from acker_redis.embedded import EmbeddedRedis
from acker_redis.protocol import server_version
from acker_redis.protocol.history import Point
from acker_redis.protocol.keys import ShardKeys

NAMESPACE = "bench-admin"
ROOT = f"/api/v1/namespaces/{NAMESPACE}"
SHARDS, BUCKETS = 16, 4
ROWS = 1000
"""Rows of a batch."""
SOURCES = ("flights", "imports", "orders", "web.clicks", "nightly-export")
BLOCK = 500
"""Trees of a block."""
UNTRACKED = 1000
"""Failed rows of trees that were not tracked, at most."""
TOLD = 100
"""Acks, and nacks, that wait for the first source."""
BATCHES = 50
"""Batches of the producer per second."""
MESSAGES = 4
"""Messages of a tree of the producer, each acked in a separate batch."""
SCANNERS = 6
"""Clients that read all pending trees at the same time."""
PAUSE = 0.05
"""Seconds between calls."""
KEPT = 3.0
"""Seconds that a connection may be idle: the service closes it after five."""
PATIENCE = 120.0
"""Timeout of a response, in seconds."""


def fill(acker: Acker, trees: int) -> None:
    """Track ``trees`` trees, a part before each tick, and produce some verdicts."""
    rotator, number = Rotator([acker]), 0
    for bucket in range(BUCKETS):
        until = trees * (bucket + 1) // BUCKETS
        for label in range(max(1, (until - number) // 10 // BLOCK)):
            acker.track_block(
                SOURCES[label % len(SOURCES)], f"page-{bucket}-{label}",
                [new_tuple_id() for _ in range(BLOCK)],
            )  # fmt: skip
            number += BLOCK
        while number < until:
            batch = Batch(SOURCES[number // ROWS % len(SOURCES)])
            for _ in range(min(ROWS, until - number)):
                batch.track(new_anchor(), f"2013-01-01/{number:09}", [new_tuple_id()])
                number += 1
            acker.apply(batch)
        batch = Batch()
        for _ in range(min(UNTRACKED, trees // 100) // BUCKETS):
            batch.fail(new_anchor(), "no such address")
        acker.apply(batch)
        if bucket + 1 < BUCKETS:
            rotator.step(force=True)
    batch = Batch(SOURCES[0])
    for told in range(2 * TOLD):
        anchor = new_anchor()
        batch.track(anchor, f"told-{told}", [])
        if told % 2:
            batch.fail(anchor, "no such address")
    acker.apply(batch)


def produce(url: str, ended: Event, rows: Any) -> None:
    """Track trees and ack their messages at a steady rate; take verdicts; count rows."""
    with Acker.from_url(url, NAMESPACE, timeout=60) as acker:
        outcomes, due = acker.outcomes("bench-producer"), time.monotonic()
        sent: deque[list[tuple[int, list[int]]]] = deque()
        while not ended.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / BATCHES, time.monotonic() - 1)
            batch = Batch("bench-producer")
            for trees in sent:
                for anchor, messages in trees:
                    batch.ack(anchor, messages.pop())
            if len(sent) == MESSAGES:
                sent.popleft()
            sent.append([])
            for number in range(ROWS // (1 + MESSAGES)):
                anchor, messages = new_anchor(), [new_tuple_id() for _ in range(MESSAGES)]
                batch.track(anchor, f"order-{number}", messages)
                sent[-1].append((anchor, messages))
            acker.apply(batch)
            rows.value += len(batch)
            outcomes.take(outcomes.read())


@contextmanager
def producing(url: str) -> Iterator[Callable[[], int]]:
    """Run a producer in a separate process; yield a function that returns its applied rows."""
    spawn = multiprocessing.get_context("spawn")
    ended, rows = spawn.Event(), spawn.Value("q", 0)
    producer = spawn.Process(target=produce, args=(url, ended, rows))
    producer.start()
    try:
        while not rows.value:  # it imports, and connects
            if not producer.is_alive():
                raise RuntimeError("the producer has died; its output is above")
            time.sleep(0.05)
        yield lambda: int(rows.value)
    finally:
        ended.set()
        producer.join()


class Api:
    """One persistent connection to the service."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._asked = 0.0

    def get(self, path: str) -> bytes:
        """Return the body of the response; raise RuntimeError unless its status is 200.

        A 503 and a 429 are retried, and their time counts: on a busy machine Redis may take longer
        than the second that the service waits for it, and other scans are in progress.
        """
        deadline = time.monotonic() + PATIENCE
        if time.monotonic() - self._asked > KEPT:
            self._line.close()  # the service has closed it too; the next request connects again
        while True:
            status, body = self._ask(path)
            if status == 200:
                return body
            if status not in (429, 503, None) or time.monotonic() > deadline:
                raise RuntimeError(f"GET {path} returned {status}: {body[:300]!r}")

    def _ask(self, path: str) -> tuple[int | None, bytes]:
        """Return status and body; the status is None if the service has closed the connection."""
        try:
            self._line.request("GET", path)
            answer = self._line.getresponse()
            return answer.status, answer.read()
        except ConnectionError as error:
            self._line.close()
            return None, str(error).encode()
        finally:
            self._asked = time.monotonic()

    def told(self, path: str) -> dict[str, Any]:
        """Return the parsed body of the response."""
        found: dict[str, Any] = json.loads(self.get(path))
        return found


def pings(url: str) -> Callable[[], object]:
    """Return a function that sends PING over a plain socket."""
    parts = urlsplit(url)
    line = socket.create_connection((parts.hostname, parts.port))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(f"AUTH {parts.password}\r\n".encode())
    if line.recv(64) != b"+OK\r\n":
        raise RuntimeError("Redis refused the password")

    def ping() -> None:
        line.sendall(b"PING\r\n")
        if line.recv(64) != b"+PONG\r\n":
            raise RuntimeError("Redis did not reply PONG to PING")

    return ping


@dataclass(frozen=True)
class Case:
    """A request that is measured repeatedly."""

    words: str
    ask: Callable[[], object]
    target: str = ""


def compare(cases: Sequence[Case], calls: int) -> None:
    """Run all cases in turn, at a steady pace, and print the milliseconds."""
    took: dict[str, list[float]] = {case.words: [] for case in cases}
    for case in cases:
        case.ask()
    for _ in range(calls):
        for case in cases:
            time.sleep(PAUSE / len(cases))
            begun = time.perf_counter()
            case.ask()
            took[case.words].append(1000 * (time.perf_counter() - begun))
    for case in cases:
        every = took[case.words]
        parts = every * 99
        if len(every) > 1:
            parts = statistics.quantiles(every, n=100, method="inclusive")
        figures = "".join(f"{each:9.2f}" for each in (parts[49], parts[98], max(every)))
        print(f"  {case.words:32}{len(every):6}{figures}  {case.target}".rstrip(), flush=True)


def remember(acker: Acker) -> None:
    """Write a point for each minute of the last day, and for each hour of the last 30 days."""
    client, key = acker.connection.client, ShardKeys(NAMESPACE, 0).history
    now = Point.of(acker.status())
    pipe = client.pipeline(transaction=False)
    for minutes in (*range(720 * 60, 1440, -60), *range(1440, 0, -1)):
        done = now.tracked * (720 * 60 - minutes)
        counts = {"tracked": done + 20, "acked": done - done // 1000, "expired": done // 1000}
        ended = (done // len(SOURCES), (done - done // 500) // len(SOURCES))
        sources = dict.fromkeys(SOURCES, ended)
        point = replace(now, at_ms=now.at_ms - minutes * 60_000, sources=sources, **counts)
        pipe.hset(key, mapping=point.fields())
    pipe.execute()
    print(f"history: {client.hlen(key):,} fields, {client.memory_usage(key, samples=0):,} bytes")


def answers(api: Api, ping: Callable[[], object], calls: int) -> None:
    """Print the response times."""
    pages = {"": api.told(f"{ROOT}/trees")}
    tree = next(each for each in pages[""]["trees"] if each["state"] == "open")
    anchor, there, absent = tree["anchor"], tree["source_id"], "absent-source-id"
    for source_id in (there, absent):
        pages[source_id] = api.told(f"{ROOT}/trees?source_id={source_id}")
    first, looked = len(pages[""]["trees"]), {name: each["looked"] for name, each in pages.items()}
    if not pages[there]["trees"] or pages[absent]["trees"]:
        raise RuntimeError("the filter returned wrong trees, so its times would be wrong")
    print(f"  {'milliseconds':32}{'calls':>6}{'p50':>9}{'p99':>9}{'max':>9}  target")
    compare(
        [
            Case("PING", ping),
            Case("/livez", lambda: api.get("/livez")),
            Case("status", lambda: api.get(ROOT), "p99 < 50"),
        ],
        calls,
    )
    compare(
        [
            Case(
                f"first page, {first} trees",
                lambda: api.get(f"{ROOT}/trees"),
                "p99 < 100",
            ),
            Case("one tree", lambda: api.get(f"{ROOT}/trees/{anchor}")),
            Case("outcomes", lambda: api.get(f"{ROOT}/outcomes")),
            Case("history of 15 minutes", lambda: api.get(f"{ROOT}/history?range=15m")),
        ],
        calls,
    )
    compare(
        [
            Case("history of 24 hours", lambda: api.get(f"{ROOT}/history?range=24h")),
            Case("history of 30 days", lambda: api.get(f"{ROOT}/history?range=30d")),
            Case("objectives", lambda: api.get(f"{ROOT}/slo")),
        ],
        max(1, calls // 10),
    )
    compare(
        [
            Case(
                words.format(looked[source_id]),
                partial(api.get, f"{ROOT}/trees?source_id={source_id}"),
            )
            for words, source_id in (
                ("a source id, {:,} looked at", there),
                ("none has it, {:,} looked at", absent),
            )
        ],
        max(1, calls // 10),
    )


def scans(acker: Acker, port: int, calls: int) -> None:
    """Print the times of a producer's small batches, and the rate of scans beside them."""
    print(f"  {'a batch of one tree, ms':32}{'calls':>6}{'p50':>9}{'p99':>9}{'max':>9}")
    for scanners in (0, 1, SCANNERS):
        ended, done = threading.Event(), [0] * scanners

        def scan(number: int, ended: threading.Event, done: list[int]) -> None:
            api, cursor = Api(port), ""
            while not ended.is_set():
                page = api.told(f"{ROOT}/trees?source_id=absent&limit=1000&cursor={cursor}")
                done[number] += page["looked"]
                cursor = page["next"] or ""

        def produce() -> None:
            batch = Batch("bench-producer")
            batch.track(new_anchor(), "order-1", [])
            acker.apply(batch)

        threads = [
            threading.Thread(target=scan, args=(number, ended, done)) for number in range(scanners)
        ]
        for thread in threads:
            thread.start()
        begun = time.monotonic()
        compare([Case(f"beside {scanners} scans", produce)], calls)
        rate = sum(done) / (time.monotonic() - begun)
        ended.set()
        for thread in threads:
            thread.join()
        if scanners:
            print(f"    the scans read {rate:,.0f} records/s")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trees", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="seconds of one measurement of Redis"
    )
    parser.add_argument(
        "--rounds", type=int, default=2, help="rounds of measurements of open pages; 0: none"
    )
    args = parser.parse_args()
    with (
        EmbeddedRedis(tcp=True) as server,
        Acker.from_url(server.url, NAMESPACE, timeout=60) as acker,
    ):
        acker.create(
            AckerConfig(
                shards=SHARDS, buckets=BUCKETS, tick_ms=3_600_000, high_water=4 * args.trees
            )
        )
        client = acker.connection.client
        fill(acker, args.trees)
        remember(acker)
        status = acker.status()
        print(
            f"{server_version.of_info(client.info('server'))}, {status.pending:,} pending, "
            f"{status.in_blocks:,} in blocks; by bucket "
            + ", ".join(f"{each:,}" for each in status.pending_by_bucket),
            flush=True,
        )
        with serving(server.url, rate_limit="0") as (port, service), browsing() as browser:
            api, ping = Api(port), pings(server.url)
            if api.told(ROOT)["pending"] != status.pending:
                raise RuntimeError(
                    "the service and Redis report different numbers of pending trees"
                )
            url = f"http://127.0.0.1:{port}/#/ns/{NAMESPACE}"

            def measure(rows: Callable[[], int]) -> None:
                answers(api, ping, args.calls)
                if browser:
                    interactive(browser, url, max(1, args.calls // 40))
                if browser and args.rounds:
                    costs(
                        browser, url,
                        lambda: spend(client, service, rows, args.seconds), args.rounds,
                    )  # fmt: skip

            print("idle")
            measure(int)
            with producing(server.url) as rows:
                print(f"busy: {BATCHES} batches a second, {BATCHES * ROWS:,} rows")
                before, begun = rows(), time.monotonic()
                measure(rows)
                rate = (rows() - before) / (time.monotonic() - begun)
                print(f"  the producer applied {rate:,.0f} rows/s")
            print("scans")
            scans(acker, port, args.calls)


if __name__ == "__main__":
    main()
