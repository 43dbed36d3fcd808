"""The health of all namespaces."""

from typing import Annotated

from fastapi import APIRouter, Query

from acker_api.auth.tokens import Role, Who
from acker_api.http.access import require
from acker_api.http.routes.answers import answers
from acker_api.http.services import Shared
from acker_api.reading.overview import LISTED
from acker_api.shapes.overview import Overview

router = APIRouter(tags=["namespaces"])

Viewer = Annotated[Who, require(Role.VIEWER)]


@router.get("/overview", responses=answers(401, 403, 422, 502, 503))
async def get_overview(
    services: Shared,
    who: Viewer,
    search: Annotated[
        str, Query(description="Only names that contain this text, in any case", max_length=64)
    ] = "",
    limit: Annotated[int, Query(description="Maximum number listed", ge=1, le=LISTED)] = LISTED,
) -> Overview:
    """Judge all namespaces that the token may see, and list them, the worst first.

    The judgement is that of the doctor. One survey serves all callers; `every_ms` says how old it
    may become.
    """
    judged = await services.pulse.read(services.judged.get())
    text = search.lower()
    mine = (row for row in judged.rows if who.sees(row["name"]) and text in row["name"].lower())
    return Overview.model_validate(judged.body(mine, limit))
