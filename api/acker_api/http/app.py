"""The app: middleware, routes and services."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from acker_api import problems
from acker_api.auth.guard import Guard
from acker_api.auth.hosts import Hosts, is_loopback
from acker_api.http import routes
from acker_api.http.gate import Gate
from acker_api.http.services import Services
from acker_api.settings import ApiSettings
from acker_redis.operate import Settings

DESCRIPTION = """State and pending trees of the namespaces of an acker-redis, and actions on them.

Times are milliseconds, counts are whole numbers, anchors are text, errors are
`application/problem+json`. If the service has tokens, send `Authorization: Bearer TOKEN`.
A viewer reads, an operator acts on trees and settings, an admin creates and drops namespaces.
Each change is written to the audit log before it is made."""


def create_app(settings: Settings, api_settings: ApiSettings | None = None) -> FastAPI:
    """Return the service for the Redis of ``settings``; it sends nothing before the first request.

    One app belongs to one event loop, and its lifespan closes the connections. It does not check
    its address: see :func:`acker_api.check_bind`. Raise ConfigError for an invalid URL, and for a
    token that is weak or cannot be read.
    """
    api_settings = api_settings or ApiSettings.read()
    services = Services.of(settings, api_settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await services.close()

    app = FastAPI(
        title="acker-redis",
        version=version("acker-redis"),
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,  # routes/docs.py has it, and a page that loads nothing from other hosts
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        servers=[{"url": api_settings.root_path}] if api_settings.root_path else None,
    )
    app.state.services = services
    problems.install(app)
    app.add_middleware(Gate, services=services)
    app.add_middleware(
        Guard,
        hosts=Hosts(api_settings),
        requests=services.requests,
        root_path=api_settings.root_path,
    )
    with_docs = is_loopback(api_settings.host) if api_settings.docs is None else api_settings.docs
    routes.install(app, with_metrics=api_settings.metrics, with_docs=with_docs)
    return app
