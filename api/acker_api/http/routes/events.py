"""Live state and verdicts, as server-sent events."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.datastructures import Headers

from acker_api.auth.limits import address_of
from acker_api.auth.tokens import Role, Who
from acker_api.http.access import refusal, require
from acker_api.http.routes.answers import answers
from acker_api.http.routes.names import Namespace
from acker_api.http.services import Services, Shared
from acker_api.live.stream import EventStream
from acker_api.live.wire import frame

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
async def follow_namespaces(services: Shared, who: Viewer, request: Request) -> EventStream:
    """Stream the state of all namespaces that the token may see: `namespaces`, or `problem`."""
    return await _follow(services, who, None, request, None)


async def _follow(
    services: Services, who: Who, namespace: str | None, request: Request, last: str | None
) -> EventStream:
    headers: Headers = request.headers

    def still() -> bool:
        return refusal(services.identity.of(headers), Role.VIEWER, namespace) is None

    by_address = services.identity.tokens.open
    client = f"address {address_of(request.scope.get('client'))}" if by_address else who.name
    listener = await services.live.listen(namespace, who, client, last)
    return EventStream(listener, services.live.leave, still)
