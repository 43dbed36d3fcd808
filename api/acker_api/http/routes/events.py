"""Live state and verdicts, as server-sent events."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from pydantic import StringConstraints
from starlette.datastructures import Headers

from acker_api.auth.tokens import Role, Who
from acker_api.http.access import refusal, require
from acker_api.http.routes.answers import answers
from acker_api.http.routes.names import Namespace
from acker_api.http.services import Services, Shared, client_of
from acker_api.live.board import Listener
from acker_api.live.several import Several
from acker_api.live.stream import EventStream
from acker_api.live.wire import frame
from acker_api.problems import Problem, of_error
from acker_redis.errors import NamespaceNotFoundError
from acker_redis.operate import NAME

router = APIRouter(tags=["events"])

Viewer = Annotated[Who, require(Role.VIEWER)]
Last = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        description="Id of the last event that was received; browsers send it by themselves",
        max_length=64,
    ),
]

MOST = 32
"""Maximum number of namespaces of one stream."""
Part = Annotated[
    str, StringConstraints(pattern=rf"^{NAME}(@[0-9A-Za-z-]{{1,64}})?$", max_length=130)
]
"""A namespace, and the id of the last event that was received of it."""
_PARTS = (
    "Also stream the events of this namespace: its name, or `NAME@ID` after that event. "
    "May be given several times"
)


def _stream(example: bytes) -> dict[int | str, dict[str, Any]]:
    content = {"schema": {"type": "string"}, "example": example.decode()}
    return {200: {"description": "Events", "content": {"text/event-stream": content}}}


_VERDICTS = frame("outcome", '{"outcomes":[],"blocks":[],"dropped":0}', "5f0e6a-17")
_LIST = frame("namespaces", '{"namespaces":[{"name":"orders","open":9,"up":true}],"total":1}')


@router.get(
    "/namespaces/{namespace}/events",
    status_code=200,
    response_class=EventStream,
    responses={**_stream(_VERDICTS), **answers(401, 403, 404, 422, 503)},
)
async def follow_namespace(
    services: Shared, who: Viewer, namespace: Namespace, request: Request, last: Last = None
) -> EventStream:
    """Stream the state and the verdicts of a namespace, as server-sent events.

    `hello` is first; its `live` says whether verdicts are received. `status` follows every second,
    as in GET of the namespace; `problem` replaces it while the namespace cannot be read. `outcome`
    has new verdicts, in at most ten events per second; `dropped` counts the verdicts that were left
    out. `gap`: verdicts may be missing.
    """
    return await _follow(services, who, namespace, request, last)


@router.get(
    "/events",
    status_code=200,
    response_class=EventStream,
    responses={**_stream(_LIST), **answers(401, 403, 422, 503)},
)
async def follow_namespaces(
    services: Shared,
    who: Viewer,
    request: Request,
    namespace: Annotated[list[Part] | None, Query(description=_PARTS, max_length=MOST)] = None,
    overview: Annotated[bool, Query(description="Send the state of all namespaces")] = True,
) -> EventStream:
    """Stream the health of all namespaces that the token may see: `namespaces`, or `problem`.

    `namespaces` has the data of `GET /overview`. With `namespace`, the stream also has the events
    of these namespaces, each with its name after the kind: `status orders`. So a browser needs one
    connection for all of its windows. `problem orders` reports a namespace that does not exist, or
    that the token may not see.
    """
    wanted = dict.fromkeys([*([(None, None)] if overview else []), *map(_part, namespace or ())])
    live, client = services.live, client_of(services, who, request)
    parts: list[tuple[str | None, Listener]] = []
    refused: list[tuple[str, Problem]] = []

    async def listen(name: str | None, last: str | None) -> None:
        try:
            if name is not None and (problem := refusal(who, Role.VIEWER, name)):
                raise problem
            parts.append((name, await live.listen(name, who, client, last)))
        except NamespaceNotFoundError as error:
            refused.append((name or "", of_error(error)))
        except Problem as problem:
            if name is None or problem.status != HTTPStatus.FORBIDDEN:
                raise
            refused.append((name, problem))

    listening = await asyncio.gather(*(listen(*each) for each in wanted), return_exceptions=True)
    several = Several(parts, refused)

    def leave() -> None:
        several.leave()
        for _, listener in parts:
            live.leave(listener)

    if failed := [error for error in listening if error]:
        leave()
        raise failed[0]

    def still() -> bool:
        now = services.identity.of(request.headers)
        names = [name for name, _ in parts] or [None]
        return not any(refusal(now, Role.VIEWER, name) for name in names)

    return EventStream(several, leave, still)


def _part(text: str) -> tuple[str, str | None]:
    name, _, last = text.partition("@")
    return name, last or None


async def _follow(
    services: Services, who: Who, namespace: str, request: Request, last: str | None
) -> EventStream:
    headers: Headers = request.headers

    def still() -> bool:
        return refusal(services.identity.of(headers), Role.VIEWER, namespace) is None

    client = client_of(services, who, request)
    listener = await services.live.listen(namespace, who, client, last)
    return EventStream(listener, lambda: services.live.leave(listener), still)
