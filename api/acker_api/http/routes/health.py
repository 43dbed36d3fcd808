"""Probes; open to everyone."""

from typing import Annotated

from fastapi import APIRouter

from acker_api.http.access import Details
from acker_api.http.routes.answers import answers
from acker_api.http.services import Shared
from acker_api.shapes.status import Live, Ready

router = APIRouter(tags=["health"])


@router.get("/livez", responses=answers())
async def livez() -> Live:
    """Whether the process answers. It depends on nothing, Redis neither."""
    return Live()


@router.get("/readyz", responses=answers(503))
async def readyz(services: Shared, details: Annotated[bool, Details]) -> Ready:
    """Whether Redis takes trees and tells of them, and every namespace is rotated in time.

    A tree of the service's own is tracked and acked, and its verdict read and taken, in a namespace
    that is not listed; where its user in Redis may only read, `canary` is `denied`. The answer is
    kept for a second. What is wrong is told to who may read namespaces.
    """
    readiness = await services.readiness.get()
    if not readiness.ready:
        raise readiness.problem(details)
    flight = readiness.canary.state
    assert flight != "failed"  # noqa: S101 - for mypy
    return Ready(namespaces=readiness.namespaces, canary=flight)
