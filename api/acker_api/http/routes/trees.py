"""Pending trees: list them, fail them, reset their timeouts."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Query, Request

from acker_api.acting.actions import not_pending
from acker_api.acting.fail_all import Failing
from acker_api.auth.tokens import Role, Who
from acker_api.http.access import require
from acker_api.http.routes.answers import ACTS, READS, answers
from acker_api.http.routes.names import Anchor, Namespace
from acker_api.http.services import Shared, client_of
from acker_api.problems import Problem
from acker_api.reading.walk import STEP, Filter, Kind, walk
from acker_api.shapes.trees import (
    Block,
    Failed,
    FailedTrees,
    FailTrees,
    Scan,
    Touched,
    Tree,
    Trees,
    Why,
)
from acker_redis import BlockEntry, PageCursor, TreeState
from acker_redis.aio import AsyncAcker
from acker_redis.operate import NAME, State

router = APIRouter(prefix="/namespaces/{namespace}/trees", tags=["trees"])

Viewer = Annotated[Who, require(Role.VIEWER)]
Operator = Annotated[Who, require(Role.OPERATOR)]
Source = Annotated[
    str, Query(description="Only trees that this source tracked", pattern=rf"^({NAME})?$")
]
SourceId = Annotated[str, Query(description="Only this source id; of a block: its label")]

PAGED = "one page of the pending trees: follow next until it is null to read all records"
SCANNED = (
    "there is no index by source or source id: every record is read, up to 36,000 a page, until "
    "next is null"
)


@router.get("", responses=answers(*READS))
async def list_trees(
    services: Shared,
    who: Viewer,
    request: Request,
    namespace: Namespace,
    cursor: Annotated[str, Query(description="`next` of the previous page", max_length=64)] = "",
    limit: Annotated[int, Query(description="Approximate number", ge=1, le=1000)] = 100,
    source_id: SourceId = "",
    source: Source = "",
    bucket: Annotated[int | None, Query(description="0 is the newest", ge=0, le=16)] = None,
    min_age_ms: Annotated[int, Query(description="Minimum age", ge=0, le=10**15)] = 0,
    state: Annotated[State | None, Query(description="Only loose trees in this state")] = None,
    kind: Annotated[Kind | None, Query(description="Only loose trees, or only blocks")] = None,
    tracked: Annotated[
        bool, Query(description="Leave out records of late or early rows, which no source tracked")
    ] = False,
) -> Trees:
    """List pending trees, the oldest of each shard first.

    An answer takes a bounded number of short calls. It may hold somewhat more than `limit`, because
    a small bucket is returned whole, and less. `bucket`, `min_age_ms`, `state`, `kind` and
    `tracked` filter a page after it was read, so few entries or none may be left; `next` continues.
    A full pagination returns every tree that stays pending for the whole scan, some perhaps twice.
    """
    acker, within = services.reader.scanner(namespace), services.reader.scan_within
    meant = Filter(source_id, source, bucket, min_age_ms, state, kind, tracked)
    at = PageCursor.parse(cursor) if cursor else None
    async with services.scans.of(client_of(services, who, request)):
        found = await services.reader.scan(lambda: _gather(acker, meant, at, limit, within))
    edges = (await services.reader.read(acker.config)).edges
    return Trees(
        trees=[Tree.seen(tree, edges, who.sees_ids(namespace)) for tree in found.trees.values()],
        blocks=[Block.of(block) for block in found.blocks.values()],
        next=str(found.next) if found.next else None,
        looked=found.looked,
        complete=found.next is None,
        scan=Scan(
            looked=found.looked,
            unreadable=found.unreadable,
            cost=SCANNED if source_id or source or tracked or meant.afterwards else PAGED,
        ),
    )


@dataclass
class _Gathered:
    """The matching entries of some pages, without duplicates."""

    trees: dict[int, TreeState] = field(default_factory=dict)
    blocks: dict[int, BlockEntry] = field(default_factory=dict)
    next: PageCursor | None = None
    looked: int = 0
    unreadable: int = 0


async def _gather(
    acker: AsyncAcker, meant: Filter, at: PageCursor | None, limit: int, within: float
) -> _Gathered:
    found = _Gathered()
    step = max(limit, STEP) if meant.afterwards else limit
    async for _, page, next_ in walk(acker, meant, at, step, within):
        found.trees.update((tree.anchor, tree) for tree in meant.trees(page))
        found.blocks.update((block.block, block) for block in meant.blocks(page))
        found.next = next_
        found.looked += page.looked
        found.unreadable += page.unreadable
        if len(found.trees) + len(found.blocks) >= limit:
            break
    return found


@router.post("/fail", responses=answers(*ACTS))
async def fail_trees(
    services: Shared, who: Operator, request: Request, namespace: Namespace, asked: FailTrees
) -> FailedTrees:
    """Fail all trees that match, also those in blocks; a dry run unless `dry_run` is false.

    A call reads a bounded number of records: continue with `next` as `cursor` until it is null. The
    sources receive the nacks, and replay the records.
    """
    if asked.filter.empty:
        raise Problem(
            422,
            "bad-request",
            "Bad Request",
            'the filter has no condition; to fail all trees: {"filter":{"min_age_ms":0}}',
        )
    failing = Failing(
        source_id=asked.filter.source_id,
        source=asked.filter.source,
        bucket=asked.filter.bucket,
        min_age_ms=asked.filter.min_age_ms or 0,
        state=asked.filter.state,
        kind=asked.filter.kind,
        why=asked.why,
        most=asked.most,
        cursor=PageCursor.parse(asked.cursor) if asked.cursor else None,
        dry_run=asked.dry_run,
    )
    async with services.scans.of(client_of(services, who, request)):
        done = await services.actions.fail_all(who, namespace, failing)
    return FailedTrees.of(done, asked.dry_run)


@router.get("/{anchor}", responses=answers(*READS))
async def get_tree(services: Shared, who: Viewer, namespace: Namespace, anchor: Anchor) -> Tree:
    """Return the state of a pending tree, and of its block."""
    acker = services.reader.acker(namespace)
    tree = await services.reader.read(lambda: acker.show(anchor))
    if tree is None:
        raise not_pending()
    edges = (await services.reader.read(acker.config)).edges
    return Tree.seen(tree, edges, who.sees_ids(namespace))


@router.post("/{anchor}/fail", responses=answers(*ACTS))
async def fail_tree(
    services: Shared, who: Operator, namespace: Namespace, anchor: Anchor, why: Why
) -> Failed:
    """Fail a tree: its source receives the nack at once, and replays the record."""
    failed = await services.actions.fail(who, namespace, anchor, why.why)
    return Failed(anchor=str(anchor), failed=1 if failed else 0)


@router.post("/{anchor}/touch", responses=answers(*ACTS))
async def touch_tree(
    services: Shared, who: Operator, namespace: Namespace, anchor: Anchor
) -> Touched:
    """Reset the timeout of a tree; of a tree in a block, that of the block."""
    await services.actions.touch(who, namespace, anchor)
    return Touched(anchor=str(anchor))
