"""Probes; they need no token."""

from typing import Annotated

from fastapi import APIRouter

from acker_api.http.access import Details
from acker_api.http.routes.answers import answers
from acker_api.http.services import Shared
from acker_api.shapes.problem import Live, Ready

router = APIRouter(tags=["health"])


@router.get("/livez", responses=answers())
async def livez() -> Live:
    """Check that the process answers. It depends on nothing, not even on Redis."""
    return Live()


@router.get("/readyz", responses=answers(503))
async def readyz(services: Shared, details: Annotated[bool, Details]) -> Ready:
    """Check that Redis accepts trees and returns verdicts, and that a rotator runs.

    The service tracks and acks a canary tree, and reads and takes its verdict, in a namespace that
    is not listed. If its user in Redis may only read, `canary` is `denied`. The answer is cached
    for a second, a good one for up to ten. Callers who may read all namespaces get details.
    """
    readiness = await services.readiness.get()
    if not readiness.ready:
        raise readiness.problem(details)
    flight = readiness.canary.state
    assert flight != "failed"  # noqa: S101 - for mypy
    return Ready(namespaces=readiness.namespaces, canary=flight)
