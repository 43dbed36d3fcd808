"""Namespaces: which there are, how each stands, and how one begins, changes and ends."""

from bisect import bisect_right
from typing import Annotated

from fastapi import APIRouter, Query, Response

from acker_api.auth.tokens import Role, Who
from acker_api.http.access import require
from acker_api.http.routes.answers import ACTS, READS, answers
from acker_api.http.routes.names import Namespace
from acker_api.http.routes.paths import V1
from acker_api.http.services import Shared
from acker_api.problems import Problem
from acker_api.shapes.actions import Changes, Created, NewNamespace, Rotation
from acker_api.shapes.status import Configuration, Named, Namespaces, NamespaceStatus
from acker_redis.protocol.keys import DOTS, RESERVED

router = APIRouter(prefix="/namespaces", tags=["namespaces"])

Viewer = Annotated[Who, require(Role.VIEWER)]
Operator = Annotated[Who, require(Role.OPERATOR)]
Admin = Annotated[Who, require(Role.ADMIN)]


@router.get("", responses=answers(401, 403, 422, 502, 503))
async def list_namespaces(
    services: Shared,
    who: Viewer,
    after: Annotated[str, Query(description="Names behind this one", max_length=64)] = "",
    limit: Annotated[int, Query(description="So many at most", ge=1, le=1000)] = 100,
) -> Namespaces:
    """Namespaces that one may see, by name, a page at a time.

    One of them may just be created or dropped.
    """
    names = [name for name in await services.reader.names() if who.sees(name)]
    begin = bisect_right(names, after) if after else 0
    page = names[begin : begin + limit]
    return Namespaces(
        namespaces=[Named(name=name, href=_href(name)) for name in page],
        total=len(names),
        next=page[-1] if begin + limit < len(names) else None,
    )


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": Created, "description": "It was there, with this very configuration"},
        **answers(401, 403, 409, 413, 422, 502, 503),
    },
)
async def create_namespace(
    services: Shared, who: Admin, new: NewNamespace, response: Response
) -> Created:
    """Create a namespace. It may be asked for again: 200 then, or 409 if it is another."""
    if not who.sees(new.name):
        refused = Problem(
            403, "forbidden", "The token is not for this", "it is for other namespaces"
        )
        await services.audit.refused(who, "create_namespace", new.name, "", refused)
        raise refused
    if new.name.startswith(RESERVED):
        raise Problem(
            422,
            "bad-request",
            "The request cannot be",
            f"{RESERVED}* are the service's own; take another name",
        )
    if new.name in DOTS:
        raise Problem(
            422, "bad-request", "The request cannot be", "no URL can name it; take another name"
        )
    config = new.config()
    created = await services.actions.create(who, new.name, config)
    response.status_code = 201 if created else 200
    response.headers["Location"] = _href(new.name)
    return Created(
        name=new.name, href=_href(new.name), created=created, config=Configuration.of(config)
    )


@router.get("/{namespace}", responses=answers(*READS))
async def get_namespace(services: Shared, who: Viewer, namespace: Namespace) -> NamespaceStatus:
    """How a namespace stands: pending trees, high-water mark, counters, rotation, backlog.

    `rates` are of the last seconds, if this process has read it before; of any other time they are
    the difference of the counters of two answers, by `shards[0].now_ms`.
    """
    return await services.pulse.read(services.standing(namespace))


@router.delete("/{namespace}", status_code=204, response_class=Response, responses=answers(*ACTS))
async def drop_namespace(
    services: Shared,
    who: Admin,
    namespace: Namespace,
    confirm: Annotated[str, Query(description="The name again", max_length=64)],
) -> None:
    """End a namespace: its trees, its verdicts that wait, and its configuration.

    No verdict is told of what was pending. If it was interrupted, ask again.
    """
    if confirm != namespace:
        raise Problem(
            422, "not-confirmed", "It is not confirmed", f"to drop it: ?confirm={namespace}"
        )
    await services.actions.drop(who, namespace)


@router.get("/{namespace}/config", responses=answers(*READS))
async def get_config(services: Shared, who: Viewer, namespace: Namespace) -> Configuration:
    """How a namespace keeps its trees."""
    acker = services.reader.acker(namespace)
    return Configuration.of(await services.reader.read(acker.config))


@router.patch("/{namespace}/config", responses=answers(*ACTS))
async def configure(
    services: Shared, who: Operator, namespace: Namespace, changes: Changes
) -> Configuration:
    """Change settings of a living namespace; what they are then.

    They count from the next call of any producer on. A shorter `tick_ms` lets what is pending
    expire earlier. After an error some shards may have it and others not: ask again.
    """
    wanted = changes.model_dump(exclude_none=True)
    if not wanted:
        raise Problem(
            422, "bad-request", "The request cannot be", "name a setting and what it is to be"
        )
    _, now = await services.actions.configure(who, namespace, wanted)
    return Configuration.of(now)


@router.post("/{namespace}/rotate", responses=answers(*ACTS))
async def rotate(services: Shared, who: Operator, namespace: Namespace) -> Rotation:
    """Force a tick of each shard, due or not, and drain some of what expires.

    Everything pending is a tick nearer to its end. Asked for again it ticks again.
    """
    return Rotation.of(await services.actions.rotate(who, namespace))


def _href(name: str) -> str:
    return f"{V1}/namespaces/{name}"
