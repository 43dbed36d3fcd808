"""The service in this process, with an HTTP client.

Its timeouts are a minute in place of a second in production: a slow machine fails no test. Its rate
limits never refill: a refused call stays refused. A test of a timeout sets that timeout, and makes
sure that the answer never arrives.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute

from acker_api import ApiSettings, create_app
from acker_api.acting import actions
from acker_api.http import gate, routes
from acker_api.http.routes import install
from acker_redis.ops.settings import Settings
from tests.waiting import LIMIT

HOST = "http://127.0.0.1:8000"
TOKEN = "t" * 20
METRICS_TOKEN = "m" * 20


PATIENT = {"answer_within": 60.0, "scrape_within": 60.0}
"""Settings of the API under test, in seconds: their maximum."""


_ROUTES: dict[tuple[bool, bool], list[BaseRoute]] = {}


def _install_once(app: FastAPI, with_metrics: bool, with_docs: bool) -> None:
    """Give an app the routes of the first one like it: they are stateless and slow to create."""
    wanted = (with_metrics, with_docs)
    if wanted not in _ROUTES:
        install(app, with_metrics, with_docs)
        _ROUTES[wanted] = app.router.routes
    app.router.routes = _ROUTES[wanted]


def api(**fields: Any) -> ApiSettings:
    """Return settings of the API; secrets may be plain text."""
    return ApiSettings(**fields)


def app_of(url: str, **fields: Any) -> FastAPI:
    """Return the app for the Redis at a URL, with long timeouts, and rate limits never refill."""
    settings = api(**PATIENT | fields)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes, "install", _install_once)
        app = create_app(Settings.read(url=url, timeout=60), settings)
    services = app.state.services
    for limiter in (
        services.requests,
        services.files,
        services.logins,
        services.failures.limiter,
        services.audit._refusals,
    ):
        limiter._clock = lambda: 0.0
    return app


@asynccontextmanager
async def service(url: str, **fields: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a service for the Redis at a URL, with these settings of the API."""
    async with client_of(app_of(url, **fields)) as client:
        yield client


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of an app while the app runs."""
    transport = httpx.ASGITransport(app)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actions, "WITHIN", LIMIT)
        patch.setattr(gate, "BODY_WITHIN", LIMIT)
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


async def settled(client: httpx.AsyncClient, path: str) -> httpx.Response:
    """Return the first answer other than 503: for a service with a short timeout for Redis."""
    async with asyncio.timeout(LIMIT):
        while (answer := await client.get(path)).status_code == 503:
            pass
    return answer


def get(url: str, path: str, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    """Send one request, and return the response."""
    found: list[httpx.Response] = []

    async def talk(client: httpx.AsyncClient) -> None:
        found.append(await client.get(path, headers=headers))

    asked(url, talk, **fields)
    return found[0]


def bearer(token: str) -> dict[str, str]:
    """Return the header with a token."""
    return {"Authorization": f"Bearer {token}"}


def is_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that a response is this problem; return its object."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == f"urn:acker-redis:problem:{code}"
    assert body["status"] == status
    assert body["title"]
    return body
