"""What is served where. Everything but the probes and ``/metrics`` is under ``/api/v1``."""

from fastapi import APIRouter, FastAPI

from acker_api.routes import health, metrics, namespaces
from acker_api.routes.paths import V1


def install(app: FastAPI, with_metrics: bool) -> None:
    """Add all routes."""
    v1 = APIRouter(prefix=V1)
    v1.include_router(namespaces.router)
    app.include_router(health.router)
    if with_metrics:
        app.include_router(metrics.router)
    app.include_router(v1)
