"""The history of a namespace, and its objectives, as JSON and CSV."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response

from acker_api.auth.tokens import Role, Who
from acker_api.http.access import require
from acker_api.http.routes.answers import READS, answers
from acker_api.http.routes.names import Namespace
from acker_api.http.services import Shared
from acker_api.shapes.history import NamespaceHistory, Slo
from acker_redis.operate import (
    Range,
    history_csv,
    history_of,
    losses_of,
    merged_buckets,
    objectives_csv,
    objectives_of,
    read_history,
    read_slo,
)

router = APIRouter(prefix="/namespaces", tags=["history"])

BUCKETS = 300
"""Maximum number of buckets in JSON, for a chart; CSV has all points."""

Viewer = Annotated[Who, require(Role.VIEWER)]
Format = Annotated[
    Literal["json", "csv"] | None, Query(description="By default, as the header Accept prefers")
]
Accept = Annotated[str, Header(include_in_schema=False)]
_CSV: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}}
}


@router.get(
    "/{namespace}/history",
    response_model=NamespaceHistory,
    responses={**_CSV, **answers(*READS)},
)
async def get_history(
    services: Shared,
    who: Viewer,
    namespace: Namespace,
    wanted: Annotated[Range, Query(alias="range", description="Time up to now")] = "1h",
    format: Format = None,
    accept: Accept = "",
) -> NamespaceHistory | Response:
    """Return what happened to the trees of a namespace, from the points that the rotators write.

    Points are written once a minute. They are kept for 24 hours, and one an hour for 30 days. CSV
    has all of them; in JSON, neighbours are added up to at most 300 buckets.
    """
    flows = services.reader.acker(namespace).flows
    readings = await services.reader.drive(read_history(flows, wanted))
    # To parse the points of a day would hold up all other requests for some 10 ms.
    found = await asyncio.to_thread(history_of, readings, wanted)
    if _wants_csv(format, accept):
        text = await asyncio.to_thread(history_csv, found.buckets)
        return _csv(text, f"{namespace}-{wanted}.csv")
    return NamespaceHistory.of(found, merged_buckets(found.buckets, BUCKETS))


@router.get("/{namespace}/slo", response_model=Slo, responses={**_CSV, **answers(*READS)})
async def get_slo(
    services: Shared,
    who: Viewer,
    namespace: Namespace,
    format: Format = None,
    accept: Accept = "",
) -> Slo | Response:
    """Return how many trees of a namespace completed in time, over 30 days and by source.

    `nacks` says how many trees were nacked in the last 15 minutes, and since when there are nacks.
    The objective is set by `slo_target` and `slo_ms`. Gaps of the history count: the number of
    trees that ended in a gap is known.
    """
    readings = await services.reader.drive(read_slo(services.reader.acker(namespace).flows))
    found = await asyncio.to_thread(objectives_of, readings)
    now_ms = readings.status.shards[0].now_ms
    if _wants_csv(format, accept):
        return _csv(objectives_csv(namespace, found, now_ms), f"{namespace}-slo.csv")
    return Slo.of(namespace, now_ms, found, await asyncio.to_thread(losses_of, readings))


def _wants_csv(format: str | None, accept: str) -> bool:
    return format == "csv" or (format is None and accept.lower().startswith("text/csv"))


def _csv(text: str, name: str) -> Response:
    # The name of a namespace has no character that the header would have to escape.
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)
