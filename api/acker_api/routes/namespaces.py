"""Namespaces, and how each stands."""

from bisect import bisect_right
from typing import Annotated

from fastapi import APIRouter, Path, Query

from acker_api.access import require
from acker_api.routes.answers import answers
from acker_api.routes.paths import V1
from acker_api.schemas import Named, Namespaces, NamespaceStatus
from acker_api.security import Role
from acker_api.services import Shared

router = APIRouter(prefix="/namespaces", tags=["namespaces"], dependencies=[require(Role.VIEWER)])

Namespace = Annotated[
    str,
    Path(description="Name of a namespace", pattern=r"^[A-Za-z0-9_.-]{1,64}$", examples=["orders"]),
]


@router.get("", responses=answers(401, 403, 422, 502, 503))
async def list_namespaces(
    services: Shared,
    after: Annotated[str, Query(description="Names behind this one", max_length=64)] = "",
    limit: Annotated[int, Query(description="So many at most", ge=1, le=1000)] = 100,
) -> Namespaces:
    """Namespaces by name, a page at a time; one may just be created or dropped."""
    names = await services.reader.names()
    begin = bisect_right(names, after) if after else 0
    page = names[begin : begin + limit]
    return Namespaces(
        namespaces=[Named(name=name, href=f"{V1}/namespaces/{name}") for name in page],
        total=len(names),
        next=page[-1] if begin + limit < len(names) else None,
    )


@router.get("/{namespace}", responses=answers(401, 403, 404, 409, 422, 502, 503))
async def get_namespace(services: Shared, namespace: Namespace) -> NamespaceStatus:
    """How a namespace stands: pending trees, high-water mark, counters, rotation, backlog."""
    return NamespaceStatus.of(await services.reader.status(namespace))
