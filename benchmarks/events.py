"""Measure two hundred dashboards that listen to the events of a busy namespace.

    python benchmarks/events.py [--listeners 200] [--seconds 30] [--rate 50] [--trees 20]

The service is a separate process with a separate Redis. A producer applies ``--rate`` batches a
second, each of which tracks and acks ``--trees`` trees. First no dashboard listens, then one, then
all; one in ten reads nothing. The benchmark prints the events per listener, the processor time of
the service and of Redis as a share of one core, the memory of the service at the start and after
each third of the time, and the number of subscriptions in Redis.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event

import psutil

from acker_redis import Acker, AckerConfig, Batch, new_anchor
from acker_redis.embedded import EmbeddedRedis

NAMESPACE = "bench-events"
SLOW = 10
"""One in this number of listeners reads nothing."""
LOOKS = 3
"""Number of readings of the memory of the service, after the first."""


@contextmanager
def serving(url: str, **fields: str) -> Iterator[tuple[int, psutil.Process]]:
    """Run the service in a separate process with these settings; yield its port and process."""
    environment = {
        **{name: value for name, value in os.environ.items() if "ACKER" not in name},
        "ACKER_REDIS_URL": url,
        "ACKER_REDIS_API_PORT": "0",
        **{f"ACKER_REDIS_API_{name.upper()}": value for name, value in fields.items()},
    }
    with subprocess.Popen(
        [sys.executable, "-m", "acker_api"], env=environment, stderr=subprocess.PIPE, text=True
    ) as service:
        assert service.stderr
        try:
            said = []
            for line in service.stderr:
                said.append(line)
                if found := re.search(r"serving url=\S*:(\d+)", line):
                    break
            else:
                raise RuntimeError("the service did not start: " + "".join(said))
            threading.Thread(target=service.stderr.read, daemon=True).start()
            yield int(found[1]), psutil.Process(service.pid)
        finally:
            service.terminate()


def produce(url: str, rate: float, trees: int, ended: Event) -> None:
    """Track and ack at a steady rate, and take the verdicts."""
    with Acker.from_url(url, NAMESPACE, timeout=60) as acker:
        outcomes = acker.outcomes("shop")
        while not ended.wait(1 / rate):
            batch = Batch("shop")
            for number in range(trees):
                batch.track(new_anchor(), f"order-{number}", [])
            acker.apply(batch)
            outcomes.take(outcomes.read())


class Listener(asyncio.Protocol):
    """A connection that counts events, or reads nothing."""

    def __init__(self, slow: bool) -> None:
        self.slow, self.bytes, self.events, self.status = slow, 0, 0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Request the events."""
        assert isinstance(transport, asyncio.Transport)
        path = f"/api/v1/namespaces/{NAMESPACE}/events"
        transport.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        if self.slow:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Count the events."""
        self.status = self.status or data[:12]
        self.bytes += len(data)
        self.events += data.count(b"event: ")


def spent(process: psutil.Process) -> float:
    """Return the processor time of a process, in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure(
    words: str,
    port: int,
    listeners: int,
    seconds: float,
    processes: list[psutil.Process],
    subscriptions: Callable[[], int],
) -> None:
    """Listen for a while, and print a line."""
    loop = asyncio.get_running_loop()
    opened = []
    for number in range(listeners):
        slow = number % SLOW == SLOW - 1
        line = socket.socket()
        if slow:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        line.connect(("127.0.0.1", port))
        opened.append(
            await loop.create_connection(lambda slow=slow: Listener(slow), sock=line)  # type: ignore[misc]
        )
    await asyncio.sleep(min(5.0, seconds))  # ring buffers and socket buffers fill
    quick = [listener for _, listener in opened if not listener.slow]
    while not all(each.status for each in quick):
        await asyncio.sleep(0.05)
    before = [spent(each) for each in processes], sum(each.events for each in quick)
    begun = time.monotonic()
    memory = [processes[0].memory_info().rss]
    for _ in range(LOOKS):
        await asyncio.sleep(seconds / LOOKS)
        memory.append(processes[0].memory_info().rss)
    took = time.monotonic() - begun
    service, redis = (
        100 * (spent(each) - was) / took for each, was in zip(processes, before[0], strict=True)
    )
    each = (sum(each.events for each in quick) - before[1]) / took / max(1, len(quick))
    print(
        f"{words:14}{each:10.1f}{service:12.1f}{redis:10.1f}  "
        + "".join(f"{each / 1e6:8.1f}" for each in memory)
        + f"{subscriptions():15}"
    )
    assert all(each.status.endswith(b"200") for each in quick), "a stream was refused"
    for transport, _ in opened:
        transport.close()


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--listeners", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--trees", type=int, default=20)
    args = parser.parse_args()
    with (
        EmbeddedRedis(tcp=True) as server,
        Acker.from_url(server.url, NAMESPACE, timeout=60) as acker,
    ):
        acker.create(AckerConfig(shards=16, tick_ms=3_600_000, high_water=10**6))
        client = acker.connection.client
        spawn = multiprocessing.get_context("spawn")
        ended = spawn.Event()
        producer = spawn.Process(target=produce, args=(server.url, args.rate, args.trees, ended))
        with serving(server.url) as (port, service):
            processes = [service, psutil.Process(client.info("server")["process_id"])]
            producer.start()
            try:
                looks = "".join(
                    f"{f'+{args.seconds * look / LOOKS:.3g} s':>8}" for look in range(1, LOOKS + 1)
                )
                print(f"{'':14}  events/s   service %   redis %        MB{looks}  subscriptions")
                for words, number in (
                    ("none", 0), ("one", 1), (f"{args.listeners}", args.listeners),
                ):  # fmt: skip
                    asyncio.run(
                        measure(
                            words, port, number, args.seconds, processes,
                            lambda: len(client.client_list(_type="pubsub")),
                        )
                    )  # fmt: skip
            finally:
                ended.set()
                producer.join()


if __name__ == "__main__":
    main()
