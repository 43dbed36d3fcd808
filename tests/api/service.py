"""The service in this process, asked as over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from acker_api import ApiSettings, create_app
from acker_redis.settings import Settings

HOST = "http://127.0.0.1:8000"
TOKEN = "t" * 20
METRICS_TOKEN = "m" * 20


def api(**fields: Any) -> ApiSettings:
    """Settings of the API; secrets may be plain text."""
    return ApiSettings(**fields)


@asynccontextmanager
async def service(url: str, **fields: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service for the Redis at a URL, with these settings of the API."""
    app = create_app(Settings.read(url=url), api(**fields))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=HOST) as client,
    ):
        yield client


def asked(url: str, talk: Callable[[httpx.AsyncClient], Awaitable[None]], **fields: Any) -> None:
    """Run a talk with a service."""

    async def run() -> None:
        async with service(url, **fields) as client:
            await talk(client)

    asyncio.run(run())


def get(url: str, path: str, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    """One request, and the response."""
    found: list[httpx.Response] = []

    async def talk(client: httpx.AsyncClient) -> None:
        found.append(await client.get(path, headers=headers))

    asked(url, talk, **fields)
    return found[0]


def bearer(token: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {token}"}


def is_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that a response is this problem; its object."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == f"urn:acker-redis:problem:{code}"
    assert body["status"] == status
    assert body["title"]
    return body
