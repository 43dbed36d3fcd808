"""HTTP requests to a FastAPI service, tracked and untracked: requests per second.

An order of 1 kB is two requests: ``/orders`` prices it and calls ``/parcels`` of the same service,
which runs in another process under uvicorn. The client keeps some orders in flight. Its requests
have ids in both cases, and their trees exist before the clock starts; only the tracked service has
the middleware and the transport. The two take turns.
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from acker_redis import Acker, Batch, emit
from acker_redis.aio import AsyncAcker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.http import TrackedAsyncTransport, TrackedRequests


def make(url: str, port: int, tracked: bool) -> FastAPI:
    """Return the service."""
    app = FastAPI()
    transport: Any = httpx.AsyncHTTPTransport()
    if tracked:
        app.add_middleware(TrackedRequests, acker=AsyncAcker.from_url(url, "bench", timeout=60))
        transport = TrackedAsyncTransport(hosts=["*"])
    client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", transport=transport, timeout=60)

    @app.post("/orders")
    async def price(order: dict[str, Any]) -> None:
        order["total"] = order["items"] * order["price"]
        (await client.post("/parcels", json=order)).raise_for_status()

    @app.post("/parcels")
    async def ship(order: dict[str, Any]) -> None:
        pass

    return app


async def rate(port: int, headers: list[dict[str, str]], in_flight: int) -> float:
    """Return the orders per second: one order for each of ``headers``."""
    order = {"items": 7, "price": 12.5, "note": "x" * 940}
    waiting = iter(headers)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:

        async def send() -> None:
            for each in waiting:
                (await client.post("/orders", json=order, headers=each)).raise_for_status()

        began = time.perf_counter()
        await asyncio.gather(*[send() for _ in range(in_flight)])
        return len(headers) / (time.perf_counter() - began)


def track(acker: Acker, count: int) -> list[dict[str, str]]:
    """Track records; return the headers of their requests."""
    found = []
    batch = Batch("shop")
    for number in range(count):
        tree = emit(str(number))
        batch.add(tree.row)
        found.append(tree.ids[0].to_headers())
        if batch.full:
            acker.apply(batch)
            batch = Batch("shop")
    acker.apply(batch)
    return found


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--orders", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        port, tracked = args.serve
        url = os.environ["BENCH_URL"]
        uvicorn.run(make(url, int(port), tracked == "True"), port=int(port), log_level="critical")
        return
    found: dict[bool, list[float]] = {False: [], True: []}
    with (
        EmbeddedRedis(tcp=True) as server,
        Acker.from_url(server.url, "bench", timeout=60) as acker,
    ):
        acker.create()
        services, ports = [], {}
        for tracked in (False, True):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = ports[tracked] = free.getsockname()[1]
            command = [sys.executable, __file__, "--serve", str(port), str(tracked)]
            environment = {**os.environ, "BENCH_URL": server.url}
            services.append(subprocess.Popen(command, env=environment))
            with socket.socket() as tried:
                while tried.connect_ex(("127.0.0.1", port)):
                    time.sleep(0.05)
        for number in range(args.rounds + 1):  # the first warms up
            for tracked in (False, True) if number % 2 else (True, False):
                headers = track(acker, args.orders)
                each = asyncio.run(rate(ports[tracked], headers, args.in_flight))
                if number:
                    found[tracked].append(each)
        for service in services:
            service.terminate()
            service.wait()
    print(f"{args.orders:,} orders of 1 kB, two requests each, {args.in_flight} in flight, "
          f"{args.rounds} rounds")  # fmt: skip
    untracked, with_ids = (statistics.median(found[each]) for each in (False, True))
    print(f"untracked    {untracked:7,.0f} orders/s")
    print(f"tracked      {with_ids:7,.0f} orders/s   {with_ids / untracked:.2f} of untracked")


if __name__ == "__main__":
    main()
