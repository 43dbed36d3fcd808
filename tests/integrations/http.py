"""A FastAPI service for tests: ``python -m tests.integrations.http URL NAMESPACE FILE PORT``.

Each handler writes a line ``<anchor> <step>`` to the file before it returns.
"""

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import BackgroundTasks, FastAPI, HTTPException, Request, Response
from fastapi.responses import StreamingResponse

from acker_redis import MessageId
from acker_redis.aio import AsyncAcker
from acker_redis.integrations.http import (
    TrackedAsyncTransport,
    TrackedRequests,
    TrackedTransport,
    current_handle,
)
from tests.waiting import wait_until

HOSTS = ["127.0.0.1"]


def make(
    url: str,
    namespace: str,
    file: str | Path,
    base: str,
    elsewhere: str = "",
    patience: float = 10.0,
) -> FastAPI:
    """Return the service. It calls itself at ``base``, and another service at ``elsewhere``."""
    app = FastAPI()
    acker = AsyncAcker.from_url(url, namespace, timeout=60, retry_for=patience)
    app.add_middleware(TrackedRequests, acker=acker)
    client = httpx.AsyncClient(
        base_url=base, transport=TrackedAsyncTransport(hosts=HOSTS), timeout=60
    )
    blocking = httpx.Client(base_url=base, transport=TrackedTransport(hosts=HOSTS), timeout=60)

    def did(request: Request, step: str) -> None:
        anchors = [*MessageId.from_headers(request.headers), "untracked"]
        with Path(file).open("a") as out:
            out.write(f"{anchors[0]} {step}\n")

    @app.post("/price/{name}")
    async def price(name: str, request: Request) -> None:
        if name == "poison":
            raise ValueError("no such address")
        sent = [client.post("/ship", extensions={"acker_edge": "ship"}) for _ in range(2)]
        for answer in await asyncio.gather(*sent):
            answer.raise_for_status()
        did(request, "priced")

    @app.post("/ship")
    def ship(request: Request) -> None:
        did(request, "shipped")

    @app.post("/blocking")
    def in_a_thread(request: Request) -> None:
        blocking.post("/ship").raise_for_status()
        did(request, "blocking")

    @app.post("/later")
    async def later(request: Request, tasks: BackgroundTasks) -> None:
        async def after() -> None:
            await client.post("/ship")
            did(request, "later")

        tasks.add_task(after)

    @app.post("/late-failure")
    async def late_failure(tasks: BackgroundTasks) -> None:
        def after() -> None:
            raise ValueError("no ink")

        tasks.add_task(after)

    @app.post("/refused")
    async def refused() -> None:
        raise HTTPException(422, "no such address")

    @app.post("/calls")
    async def calls(path: str, request: Request) -> None:
        await client.post(path, headers=request.headers)
        did(request, "called")

    @app.post("/careless")
    async def careless(at: str, request: Request) -> None:
        try:
            await client.post(at, timeout=0.2)
        except httpx.TransportError:
            did(request, "careless")

    @app.post("/moved")
    async def moved(request: Request) -> None:
        await client.post("/from", follow_redirects=True)
        did(request, "moved")

    @app.post("/from")
    async def from_here() -> Response:
        return Response(status_code=307, headers={"location": "/ship"})

    @app.post("/elsewhere")
    async def ask(request: Request, path: str = "/ok") -> None:
        await client.post(elsewhere + path)
        did(request, "asked")

    @app.post("/torn")
    async def torn() -> StreamingResponse:
        async def parts() -> Any:
            yield b"x"
            raise ValueError("torn")

        return StreamingResponse(parts())

    @app.post("/cut")
    async def cut(request: Request) -> StreamingResponse:
        async def parts() -> Any:
            yield b"x"
            await asyncio.sleep(600)
            did(request, "streamed")

        return StreamingResponse(parts())

    @app.post("/impatient")
    async def impatient(request: Request) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.post(elsewhere + "/slow")
        did(request, "impatient")

    inner = FastAPI()
    inner.add_middleware(TrackedRequests, acker=AsyncAcker.from_url(url, namespace, timeout=60))
    app.mount("/mounted", inner)

    @inner.post("/ship")
    def ship_inside(request: Request) -> None:
        did(request, "shipped")

    @app.post("/slow")
    async def slow() -> None:
        await asyncio.sleep(600)

    @app.post("/settled")
    async def settled() -> None:
        await current_handle().reset_timeout()
        await current_handle().fail("no such address")

    return app


def untracked() -> FastAPI:
    """Return a service without the middleware."""
    app = FastAPI()

    @app.post("/ok")
    def ok() -> None:
        pass

    @app.post("/gateway")
    def gateway() -> Response:
        return Response(status_code=502)  # as a proxy answers when its service has died

    @app.post("/slow")
    async def slow() -> StreamingResponse:
        async def parts() -> Any:
            yield b"x"
            await asyncio.sleep(600)

        return StreamingResponse(parts())

    @app.post("/torn")
    async def torn() -> StreamingResponse:
        async def parts() -> Any:
            yield b"x"
            raise ValueError("torn")

        return StreamingResponse(parts())

    return app


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    """Return whether a server accepts connections at a port."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(app: FastAPI, port: int) -> Iterator[None]:
    """Serve an app in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started, "the server")
    yield
    server.should_exit = server.force_exit = True
    thread.join()


@asynccontextmanager
async def started(app: FastAPI) -> AsyncIterator[None]:
    """Send an app the lifespan events of a server."""
    wanted, done = asyncio.Queue[Any](), asyncio.Queue[Any]()
    server = asyncio.create_task(app({"type": "lifespan"}, wanted.get, done.put))
    for event in ("startup", "shutdown"):
        await wanted.put({"type": f"lifespan.{event}"})
        assert (await done.get())["type"] == f"lifespan.{event}.complete"
        if event == "startup":
            yield
    await server


def main(url: str, namespace: str, file: str, port: str) -> None:
    """Run the service until it is ended."""
    app = make(url, namespace, file, f"http://127.0.0.1:{port}")
    uvicorn.run(app, port=int(port), log_level="critical")


if __name__ == "__main__":
    main(*sys.argv[1:])
