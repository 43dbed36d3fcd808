"""The audit log: who did what."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from acker_api.auth.tokens import Role, Who
from acker_api.http.access import require
from acker_api.http.routes.answers import answers
from acker_api.http.services import Shared, client_of
from acker_api.shapes.actions import AuditEntry, AuditLog

router = APIRouter(tags=["audit"])


@router.get("/audit", responses=answers(401, 403, 422, 502, 503))
async def list_audit(
    services: Shared,
    who: Annotated[Who, require(Role.VIEWER)],
    request: Request,
    limit: Annotated[int, Query(description="Maximum number of entries", ge=1, le=1000)] = 100,
    before: Annotated[str, Query(description="`next` of the previous page", max_length=100)] = "",
) -> AuditLog:
    """List the actions of this service, also refused and failed ones, newest first.

    A token for some namespaces sees only their entries. Actions that changed nothing have none.
    """
    async with services.scans.of(client_of(services, who, request)):
        records, next_ = await services.audit.read(who, limit, before)
    return AuditLog(entries=[AuditEntry.of(record) for record in records], next=next_)
