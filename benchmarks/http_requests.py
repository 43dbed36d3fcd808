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
import subprocess
import sys
import time
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from side_by_side import ORDER, Clock, Measured, arguments, in_turns, show, tracked

from acker_redis import Acker
from acker_redis.aio import AsyncAcker
from acker_redis.embedded import EmbeddedRedis
from acker_redis.integrations.http import TrackedAsyncTransport, TrackedRequests

PROGRAMS = "untracked", "tracked"


def make(url: str, port: int, with_ids: bool) -> FastAPI:
    """Return the service."""
    app = FastAPI()
    transport: Any = httpx.AsyncHTTPTransport()
    if with_ids:
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


async def rate(port: int, headers: list[dict[str, str]], in_flight: int) -> Measured:
    """Return the orders per second: one order for each of ``headers``."""
    waiting = iter(headers)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:

        async def send() -> None:
            for each in waiting:
                (await client.post("/orders", json=ORDER, headers=each)).raise_for_status()

        clock = Clock()
        await asyncio.gather(*[send() for _ in range(in_flight)])
        return Measured(clock.stop(len(headers)).rate)  # the services are other processes


def main() -> None:
    """Read the arguments and measure."""
    parser = arguments(__doc__, "orders", 500, rounds=7)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        port, program = args.serve
        url = os.environ["BENCH_URL"]
        uvicorn.run(
            make(url, int(port), program == "tracked"), port=int(port), log_level="critical"
        )
        return
    with (
        EmbeddedRedis(tcp=True) as server,
        Acker.from_url(server.url, "bench", timeout=60) as acker,
    ):
        acker.create()
        services, ports = [], {}
        for program in PROGRAMS:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = ports[program] = free.getsockname()[1]
            command = [sys.executable, __file__, "--serve", str(port), program]
            environment = {**os.environ, "BENCH_URL": server.url}
            services.append(subprocess.Popen(command, env=environment))
            with socket.socket() as tried:
                while tried.connect_ex(("127.0.0.1", port)):
                    time.sleep(0.05)

        def run(program: str) -> Measured:
            headers = [each for _, each in tracked(acker, args.orders)]
            return asyncio.run(rate(ports[program], headers, args.in_flight))

        found = in_turns(PROGRAMS, args.rounds, run, warm=True)
        for service in services:
            service.terminate()
            service.wait()
    print(f"{args.orders:,} orders of 1 kB, two requests each, {args.in_flight} in flight, "
          f"{args.rounds} rounds")  # fmt: skip
    show(found, "orders/s")


if __name__ == "__main__":
    main()
