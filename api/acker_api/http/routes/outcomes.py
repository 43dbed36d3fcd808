"""Untaken verdicts, and how many each source has."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from acker_api.auth.tokens import Role, Who
from acker_api.http.access import require
from acker_api.http.routes.answers import READS, answers
from acker_api.http.routes.names import Namespace
from acker_api.http.services import Shared, client_of
from acker_api.reading.verdicts import After, Meant, choose, newest, oldest
from acker_api.shapes.verdicts import Backlog, Outcomes, Waiting
from acker_redis.operate import NAME, Reason, ShardKeys, VerdictKind, backlog_ratio

router = APIRouter(prefix="/namespaces/{namespace}", tags=["outcomes"])

Viewer = Annotated[Who, require(Role.VIEWER)]


@router.get("/outcomes", responses=answers(*READS))
async def list_outcomes(
    services: Shared,
    who: Viewer,
    request: Request,
    namespace: Namespace,
    source: Annotated[str, Query(description="Only of this source", pattern=rf"^({NAME})?$")] = "",
    verdict: Annotated[VerdictKind | None, Query()] = None,
    reason: Annotated[Reason | None, Query()] = None,
    limit: Annotated[int, Query(description="Maximum number of verdicts", ge=1, le=1000)] = 100,
    before: Annotated[str, Query(description="`next` of the previous page", max_length=160)] = "",
) -> Outcomes:
    """List the untaken verdicts, newest first. A source deletes the verdicts that it takes.

    Without `source`, it reads the sources with the most untaken verdicts. An answer reads a bounded
    number of entries; with filters few of them may match, and `next` continues.
    """
    status = await services.reader.status(namespace)
    shards = [ShardKeys(namespace, shard.shard) for shard in status.shards]
    sources = [source] if source else choose(status.backlog, len(shards))
    begin = After.parse(before) if before else None
    flow = newest(shards, sources, limit, begin, Meant(verdict, reason), status.config.edges)
    async with services.scans.of(client_of(services, who, request)):
        page = await services.reader.scan_flow(flow)
    return Outcomes.of(page, sources, who.sees_ids(namespace))


@router.get("/backlog", responses=answers(*READS))
async def get_backlog(
    services: Shared,
    who: Viewer,
    namespace: Namespace,
    limit: Annotated[int, Query(description="Maximum number of sources", ge=1, le=1000)] = 100,
) -> Backlog:
    """Return how many verdicts wait for each source, and since when."""
    status = await services.reader.status(namespace)
    shards = [ShardKeys(namespace, shard.shard) for shard in status.shards]
    since = await services.reader.drive(oldest(shards, choose(status.backlog, len(shards))[:limit]))
    ratios = backlog_ratio(status)
    ranked = sorted(status.backlog.items(), key=lambda item: (-item[1], item[0]))
    return Backlog(
        sources=[
            Waiting(
                source=source,
                waiting=waiting,
                oldest_at_ms=since.get(source),
                ratio=ratios.get(source, 0.0),
                limit=status.config.outcomes_limit,
            )
            for source, waiting in ranked[:limit]
        ],
        total=len(ranked),
    )
