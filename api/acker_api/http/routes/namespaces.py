"""Namespaces: list, read, create, change and drop them."""

from bisect import bisect_right
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from acker_api.auth.tokens import Role, Who
from acker_api.http.access import require
from acker_api.http.routes.answers import ACTS, READS, answers
from acker_api.http.routes.names import Namespace
from acker_api.http.routes.paths import V1
from acker_api.http.services import Services, Shared, client_of
from acker_api.problems import Problem
from acker_api.shapes.actions import Changes, Created, NewNamespace, Rotation
from acker_api.shapes.problem import Named, Namespaces
from acker_api.shapes.trees import WaitingTrees
from acker_redis.operate import DOTS, MAX_SAMPLE, RESERVED, read_waits
from acker_redis.operate.status import Configuration, NamespaceStatus

router = APIRouter(prefix="/namespaces", tags=["namespaces"])

Viewer = Annotated[Who, require(Role.VIEWER)]
Operator = Annotated[Who, require(Role.OPERATOR)]
Admin = Annotated[Who, require(Role.ADMIN)]


@router.get("", responses=answers(401, 403, 422, 502, 503))
async def list_namespaces(
    services: Shared,
    who: Viewer,
    after: Annotated[str, Query(description="Only names after this one", max_length=64)] = "",
    limit: Annotated[int, Query(description="Maximum number of names", ge=1, le=1000)] = 100,
) -> Namespaces:
    """List the namespaces that the token may see, by name, page by page.

    The creation or the drop of a listed namespace may be in progress.
    """
    names = [name for name in await services.reader.names() if who.sees(name)]
    begin = bisect_right(names, after) if after else 0
    page = names[begin : begin + limit]
    return Namespaces(
        namespaces=[Named(name=name, href=_href(services, name)) for name in page],
        total=len(names),
        next=page[-1] if begin + limit < len(names) else None,
    )


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": Created, "description": "It existed already, with these settings"},
        **answers(401, 403, 409, 413, 422, 502, 503),
    },
)
async def create_namespace(
    services: Shared, who: Admin, new: NewNamespace, response: Response
) -> Created:
    """Create a namespace.

    If it exists, only the settings in the request are compared with its own: 200, or 409 if one
    differs. So a retry is a no-op.
    """
    if not who.sees(new.name):
        refused = Problem(403, "forbidden", "Forbidden", "the token is for other namespaces")
        await services.audit.refused(who, "create_namespace", new.name, "", refused)
        raise refused
    if new.name.startswith(RESERVED):
        raise Problem(
            422,
            "bad-request",
            "Bad Request",
            f"names that begin with {RESERVED} are reserved; choose another name",
        )
    if new.name in DOTS:
        raise Problem(
            422, "bad-request", "Bad Request", "no URL can contain this name; choose another one"
        )
    created, config = await services.actions.create(who, new.name, new.given())
    response.status_code = 201 if created else 200
    href = response.headers["Location"] = _href(services, new.name)
    return Created(
        name=new.name, href=href, created=created, config=Configuration.model_validate(config)
    )


@router.get("/{namespace}", responses=answers(*READS))
async def get_namespace(services: Shared, who: Viewer, namespace: Namespace) -> NamespaceStatus:
    """Return the state of a namespace: pending trees, high-water mark, counters, rotation, backlog.

    `rates` are those of the last seconds, if this process has read the namespace before. For other
    periods, take the difference of the counters of two answers, and of their `shards[0].now_ms`.
    """
    return await services.pulse.read(services.status(namespace))


@router.delete("/{namespace}", status_code=204, response_class=Response, responses=answers(*ACTS))
async def drop_namespace(
    services: Shared,
    who: Admin,
    namespace: Namespace,
    confirm: Annotated[str, Query(description="Compulsory: the name of the namespace again")] = "",
) -> None:
    """Drop a namespace: its trees, its untaken verdicts, and its configuration.

    Pending trees get no verdict. Repeat the request if it was interrupted.
    """
    if confirm != namespace:
        raise Problem(
            422,
            "not-confirmed",
            "Missing confirmation",
            f"a drop deletes everything in the namespace; to confirm it, add ?confirm={namespace}",
        )
    await services.actions.drop(who, namespace)


@router.get("/{namespace}/config", responses=answers(*READS))
async def get_config(services: Shared, who: Viewer, namespace: Namespace) -> Configuration:
    """Return the configuration of a namespace."""
    acker = services.reader.acker(namespace)
    return Configuration.model_validate(await services.reader.read(acker.config))


@router.get("/{namespace}/waits", responses=answers(*READS))
async def get_waits(
    services: Shared,
    who: Viewer,
    request: Request,
    namespace: Namespace,
    sample: Annotated[
        int, Query(description="Approximate number of trees to read", ge=1, le=MAX_SAMPLE)
    ] = 1000,
) -> WaitingTrees:
    """Return on which edges pending trees wait now, and for how long, from a sample of them.

    The sample has about as many trees of each bucket, and of up to 16 shards. Of blocks, it has
    some trees of a few. `expired` counts the expired trees by edge since the process that answers
    first read the namespace, for a day at most.
    """
    status = await services.reader.status(namespace)
    flows = services.reader.acker(namespace).flows
    async with services.scans.of(client_of(services, who, request)):
        waits = await services.reader.scan_flow(read_waits(flows, status, sample))
    return WaitingTrees.of(waits, services.reader.expired.note(status))


@router.patch("/{namespace}/config", responses=answers(*ACTS))
async def configure(
    services: Shared, who: Operator, namespace: Namespace, changes: Changes
) -> Configuration:
    """Change settings of a namespace in use; return its configuration.

    The settings apply from the next call of any producer. A shorter `tick_ms` lets pending trees
    expire earlier. A `tick_ms` and a `deadline_ms` that contradict each other are refused. After an
    error, some shards may have the settings and others not: retry.
    """
    wanted = changes.model_dump(exclude_none=True)
    if not wanted:
        raise Problem(422, "bad-request", "Bad Request", "no setting is given; give at least one")
    _, now = await services.actions.configure(who, namespace, wanted)
    return Configuration.model_validate(now)


@router.post("/{namespace}/rotate", responses=answers(*ACTS))
async def rotate(services: Shared, who: Operator, namespace: Namespace) -> Rotation:
    """Force a tick of each shard, due or not, and drain a part of the expired records.

    Everything pending becomes one tick older. A repeated request ticks again.
    """
    return Rotation.of(await services.actions.rotate(who, namespace))


def _href(services: Services, name: str) -> str:
    return f"{services.settings.root_path}{V1}/namespaces/{name}"
