"""Event streams of the service in this process: httpx would wait for their end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import FastAPI

from acker_api.http.services import Services
from acker_api.live import feed as live_feed
from acker_api.live import hub as live
from tests.api.service import app_of
from tests.waiting import LIMIT


@dataclass
class Got:
    """One event."""

    event: str
    data: Any
    id: str | None = None


@dataclass
class Stream:
    """A client that reads as fast as ``window`` allows."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    comments: int = 0
    retry: str = ""
    chunks: "asyncio.Queue[bytes | None]" = field(default_factory=asyncio.Queue)
    window: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(10**9))
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None

    async def receive(self) -> dict[str, Any]:
        if not self.begun.is_set():
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            self.begun.set()
            return
        await self.window.acquire()
        self.body += message.get("body", b"") if self.status != 200 else b""
        self.chunks.put_nowait(message.get("body", b""))
        if not message.get("more_body"):
            self.chunks.put_nowait(None)

    async def next(self) -> Got | None:
        """Return the next event; None at the end."""
        while True:
            chunk = await asyncio.wait_for(self.chunks.get(), LIMIT)
            if chunk is None:
                return None
            if not chunk:
                continue
            lines = chunk.decode().split("\n")
            assert lines[-2:] == ["", ""], "a frame is whole"
            if chunk.startswith(b":"):
                self.comments += 1
                continue
            fields = dict(line.split(": ", 1) for line in lines[:-2])
            self.retry = fields.get("retry", self.retry)
            return Got(fields["event"], json.loads(fields["data"]), fields.get("id"))

    async def wait_for(self, event: str) -> Got:
        """Return the next event of a kind."""
        while got := await self.next():
            if got.event == event:
                return got
        raise AssertionError(f"the stream ended before {event}")

    async def leave(self) -> None:
        """Close the connection."""
        self.gone.set()
        if self.task:
            await asyncio.wait_for(self.task, LIMIT)


@dataclass
class Service:
    """The app, with its event streams."""

    app: FastAPI
    streams: list[Stream] = field(default_factory=list)

    @property
    def services(self) -> Services:
        services: Services = self.app.state.services
        return services

    async def open(
        self, path: str, window: int | None = None, address: str = "127.0.0.1", **headers: str
    ) -> Stream:
        """Begin a stream; it may be refused."""
        stream = Stream()
        if window is not None:
            stream.window = asyncio.Semaphore(window)
        named = {"host": "127.0.0.1", **{k.replace("_", "-"): v for k, v in headers.items()}}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path.partition("?")[0],
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": path.partition("?")[2].encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in named.items()],
            "client": (address, 1),
            "server": ("127.0.0.1", 8000),
        }
        stream.task = asyncio.ensure_future(self.app(scope, stream.receive, stream.send))
        begun = asyncio.ensure_future(stream.begun.wait())
        await asyncio.wait({stream.task, begun}, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        self.streams.append(stream)
        return stream


@asynccontextmanager
async def streaming(url: str, **fields: Any) -> AsyncIterator[Service]:
    """Yield a service for the Redis at a URL; its streams end with it."""
    app = app_of(url, **fields)
    with pytest.MonkeyPatch.context() as patch:
        # Wait for the first state, and keep the subscription: a slow machine would lose events.
        patch.setattr(live, "FIRST", LIMIT)
        patch.setattr(live_feed, "SILENCE", LIMIT)
        async with app.router.lifespan_context(app):
            service = Service(app)
            yield service
            await asyncio.gather(*(stream.leave() for stream in service.streams))
