"""The caller's identity; login and logout of a browser."""

from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response

from acker_api.auth.identity import COOKIE, SECURE_COOKIE
from acker_api.auth.limits import address_of
from acker_api.auth.tokens import Role
from acker_api.http.access import Asking, KnownQuery
from acker_api.http.routes.answers import answers
from acker_api.http.services import Services, Shared
from acker_api.problems import Problem, too_many
from acker_api.shapes.actions import Login, Session

router = APIRouter(prefix="/session", tags=["session"])


@router.get("", responses=answers(422), dependencies=[KnownQuery])
async def get_session(services: Shared, who: Asking) -> Session:
    """Return the caller and its role; needs no token."""
    return Session.of(who, not services.identity.tokens.open)


@router.post("", responses=answers(401, 403, 413, 422), dependencies=[KnownQuery])
async def log_in(services: Shared, login: Login, request: Request, response: Response) -> Session:
    """Begin a session of a browser: the answer sets a cookie that scripts cannot read.

    Programs send their token with each request. Ten attempts per minute are allowed.
    """
    if services.identity.tokens.open:
        return Session.of(request.state.who, needed=False)
    # Valid tokens count too: otherwise a client could guess on until a token is valid.
    if wait := services.logins.wait(address_of(request.scope.get("client"))):
        raise too_many(wait)
    grant = services.identity.tokens.find(login.token.get_secret_value())
    if not grant:
        raise Problem(401, "unauthorized", "Unauthorized", "unknown token; is it complete?")
    if grant.who.role is Role.METRICS:
        raise Problem(403, "forbidden", "Forbidden", "this token is for /metrics only")
    # A proxy may not report https; the Origin of the browser does.
    secure = (
        services.identity.by_https(request.url.scheme, request.headers)
        or urlsplit(request.headers.get("origin", "")).scheme == "https"
    )
    name = SECURE_COOKIE if secure else COOKIE
    response.set_cookie(
        services.identity.named(name),
        services.identity.begin(grant, name),
        max_age=services.identity.session_for,
        path=_path(services, secure),
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
async def log_out(services: Shared, response: Response) -> None:
    """End the session of this browser."""
    for name, secure in ((COOKIE, False), (SECURE_COOKIE, True)):
        response.delete_cookie(
            services.identity.named(name),
            path=_path(services, secure),
            secure=secure,
            httponly=True,
            samesite="strict",
        )


def _path(services: Services, secure: bool) -> str:
    """Return the path of a cookie: browsers accept ``__Host-`` for / only."""
    return "/" if secure else services.settings.root_path or "/"
