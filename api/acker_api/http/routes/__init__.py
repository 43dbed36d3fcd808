"""All routes. Everything but the probes, ``/metrics`` and pages is under ``/api/v1``."""

from fastapi import APIRouter, FastAPI

from acker_api.http.routes import (
    audit,
    blocks,
    dashboard,
    docs,
    events,
    health,
    history,
    metrics,
    namespaces,
    outcomes,
    overview,
    search,
    session,
    trees,
)
from acker_api.http.routes.paths import V1


def install(app: FastAPI, with_metrics: bool, with_docs: bool) -> None:
    """Add all routes."""
    v1 = APIRouter(prefix=V1)
    parts = (session, namespaces, overview, history, trees, blocks, outcomes, search, events, audit)
    for part in parts:
        v1.include_router(part.router)
    app.include_router(health.router)
    app.include_router(dashboard.router)
    if with_docs:
        app.include_router(docs.router)
    if with_metrics:
        app.include_router(metrics.router)
    app.include_router(v1)
