"""What was done, and by whom."""

from typing import Annotated

from fastapi import APIRouter, Query

from acker_api.auth.tokens import Role, Who
from acker_api.http.access import require
from acker_api.http.routes.answers import answers
from acker_api.http.services import Shared
from acker_api.shapes.actions import AuditEntry, AuditLog

router = APIRouter(tags=["audit"])


@router.get("/audit", responses=answers(401, 403, 422, 502, 503))
async def list_audit(
    services: Shared,
    who: Annotated[Who, require(Role.VIEWER)],
    limit: Annotated[int, Query(description="So many at most", ge=1, le=1000)] = 100,
    before: Annotated[str, Query(description="`next` of the page before", max_length=100)] = "",
) -> AuditLog:
    """What was done by this service, refused and failed, the newest first.

    A token for some namespaces sees the entries of these. Actions that changed nothing have none.
    """
    records, next_ = await services.audit.read(who, limit, before)
    return AuditLog(entries=[AuditEntry.of(record) for record in records], next=next_)
