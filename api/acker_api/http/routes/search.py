"""Search of a namespace: pending trees, untaken verdicts, and verdicts that passed lately."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from acker_api.auth.tokens import Role, Who
from acker_api.http.access import require
from acker_api.http.routes.answers import READS, answers
from acker_api.http.routes.names import Namespace
from acker_api.http.services import Shared, client_of
from acker_api.live.recent import recent
from acker_api.live.watch import NamespaceWatch
from acker_api.reading.search import Position, Sought, search
from acker_api.shapes.search import FoundVerdict, LookedRecent, SearchResult

router = APIRouter(prefix="/namespaces/{namespace}/search", tags=["trees"])


@router.get("", responses=answers(*READS))
async def search_namespace(
    services: Shared,
    who: Annotated[Who, require(Role.VIEWER)],
    request: Request,
    namespace: Namespace,
    q: Annotated[
        str,
        Query(
            description="The beginning of a source id or of a label; an anchor; a message id "
            "`anchor:message`; or, for an operator, the id of a message, decimal or 16 hex digits",
            min_length=1,
            max_length=255,
            examples=["order-17"],
        ),
    ],
    cursor: Annotated[str, Query(description="`next` of the previous answer", max_length=360)] = "",
    limit: Annotated[
        int, Query(description="Approximate number for each place", ge=1, le=1000)
    ] = 50,
) -> SearchResult:
    """Search pending trees, untaken verdicts, and the verdicts that this process received lately.

    There is no index by source id, so a search reads all records. One answer takes as many calls of
    Redis as a page of trees and a page of verdicts; `places` tells how far it has read, and `next`
    continues. The first answer has the tree with that anchor, if one is pending.
    """
    ids = who.sees_ids(namespace)
    sought = Sought.parse(q, ids)
    at = Position.parse(cursor) if cursor else None
    async with services.scans.of(client_of(services, who, request)):
        found = await search(services.reader, namespace, sought, at, limit)
    watch = services.live.watch_of(namespace)
    passed, looked = _recent(watch, sought, limit, ids, first=at is None)
    return SearchResult.of(found, sought.anchor, passed, looked, ids)


def _recent(
    watch: NamespaceWatch | None, sought: Sought, limit: int, ids: bool, first: bool
) -> tuple[list[FoundVerdict], LookedRecent]:
    if watch is None or not first:
        since = watch.since_ms if watch else None
        return [], LookedRecent(looked=0, since_ms=since, complete=True)
    found = recent(watch.ring, sought, limit, ids)
    passed = [FoundVerdict.passed(each) for each in found.outcomes]
    passed += [each for told in found.blocks for each in FoundVerdict.of_block(told)]
    passed.sort(key=lambda each: -each.at_ms)
    complete = watch.ring.whole and not found.left_out
    return passed, LookedRecent(looked=found.looked, since_ms=watch.since_ms, complete=complete)
