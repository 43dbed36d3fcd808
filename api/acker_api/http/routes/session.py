"""Who asks; and how a browser logs in and out."""

from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response

from acker_api.auth.identity import COOKIE, SECURE_COOKIE
from acker_api.auth.limits import address_of
from acker_api.auth.tokens import Role
from acker_api.http.access import Asking, KnownQuery
from acker_api.http.routes.answers import answers
from acker_api.http.services import Shared
from acker_api.problems import Problem, too_many
from acker_api.shapes.actions import Login, Session

router = APIRouter(prefix="/session", tags=["session"])


@router.get("", responses=answers(422), dependencies=[KnownQuery])
async def get_session(services: Shared, who: Asking) -> Session:
    """Who asks, and what they may do; open to everyone."""
    return Session.of(who, not services.identity.tokens.open)


@router.post("", responses=answers(401, 403, 413, 422), dependencies=[KnownQuery])
async def log_in(services: Shared, login: Login, request: Request, response: Response) -> Session:
    """Begin a session with a token: it is a cookie that scripts cannot read, for a browser.

    Machines send their token with each request. Ten attempts a minute are allowed.
    """
    if services.identity.tokens.open:
        return Session.of(request.state.who, needed=False)
    # Also of who has a right one: else one could go on guessing until it is right.
    if wait := services.logins.wait(address_of(request.scope.get("client"))):
        raise too_many(wait)
    grant = services.identity.tokens.find(login.token.get_secret_value())
    if not grant:
        raise Problem(401, "unauthorized", "There is no such token", "is it complete?")
    if grant.who.role is Role.METRICS:
        raise Problem(
            403, "forbidden", "The token is not for this", "it opens /metrics and nothing else"
        )
    # A proxy may not say that it is https; the browser does.
    secure = (
        services.identity.by_https(request.url.scheme, request.headers)
        or urlsplit(request.headers.get("origin", "")).scheme == "https"
    )
    name = SECURE_COOKIE if secure else COOKIE
    response.set_cookie(
        name,
        services.identity.begin(grant, name),
        max_age=services.identity.session_for,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )
    return Session.of(grant.who, needed=True)


@router.delete(
    "",
    status_code=204,
    response_class=Response,
    responses=answers(403, 413, 422),
    dependencies=[KnownQuery],
)
async def log_out(response: Response) -> None:
    """End the session of this browser."""
    for name, secure in ((COOKIE, False), (SECURE_COOKIE, True)):
        response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")
