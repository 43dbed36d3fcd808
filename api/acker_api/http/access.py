"""The role that a route needs, and the check that a caller has it."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer

from acker_api.auth.identity import COOKIE
from acker_api.auth.tokens import Role, Who
from acker_api.http.gate import SAFE
from acker_api.http.services import Shared
from acker_api.problems import Problem, unauthorized

_bearer = HTTPBearer(auto_error=False, description="Required if the service has tokens")
_cookie = APIKeyCookie(name=COOKIE, auto_error=False, description="Session of a browser")
# For OpenAPI; the gate has identified the caller before.
_Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
_Cookie = Annotated[str | None, Depends(_cookie)]

UNKNOWN_SHOWN, NAME_SHOWN = 10, 64
"""Maximum number of unknown query parameters that a problem names, and of characters of each."""


def asking(request: Request) -> Who | None:
    """Return the caller; None if it is unknown."""
    who: Who | None = request.state.who
    return who


Asking = Annotated[Who | None, Depends(asking)]


def require(role: Role) -> Any:
    """Return a dependency for routes that need a role, in the namespace of their path if any.

    Its value is the caller. It answers 401 to an unknown caller, 403 without the role; a refused
    change is written to the audit log.
    """

    async def check(
        request: Request,
        services: Shared,
        who: Asking,
        bearer: _Bearer,
        cookie: _Cookie,
    ) -> Who:
        namespace = request.path_params.get("namespace")
        if problem := refusal(who, role, namespace):
            if request.method not in SAFE:
                route, anchor = request.scope["route"].name, request.path_params.get("anchor", "")
                await services.audit.refused(who, route, namespace or "", anchor, problem)
            raise problem
        if role is not Role.METRICS:  # a scraper may add its own parameters
            known_query(request)
        assert who  # noqa: S101 - for mypy
        return who

    return Depends(check)


def known_query(request: Request) -> None:
    """Raise a Problem (422) for a query parameter that the route does not have.

    If it were ignored, a misspelt filter would return everything.
    """
    known = set(_names(request.scope["route"].dependant))
    if unknown := [name for name in request.query_params if name not in known]:
        there = f"known are {', '.join(sorted(known))}" if known else "the route has none"
        raise Problem(
            422,
            "bad-request",
            "Bad Request",
            f"unknown query parameter; {there}",
            [
                {"where": f"query.{name[:NAME_SHOWN]}", "what": "no such parameter"}
                for name in unknown[:UNKNOWN_SHOWN]
            ],
        )


def _names(dependant: Dependant) -> Iterator[str]:
    """Yield the query parameters of a route and of its dependencies."""
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _names(each)


KnownQuery = Depends(known_query)
"""For routes that need no role."""


def refusal(who: Who | None, role: Role, namespace: str | None = None) -> Problem | None:
    """Return why a caller may not do something that needs a role; None if it may."""
    if not who or (role is Role.METRICS and not who.metrics):
        return unauthorized()
    if not who.may(role):
        return Problem(403, "forbidden", "Forbidden", f"this needs a token with the role {role}")
    if namespace is not None and not who.sees(namespace):
        return Problem(403, "forbidden", "Forbidden", "the token is for other namespaces")
    return None


def _may_see_details(who: Asking) -> bool:
    return bool(who and who.everywhere and who.may(Role.VIEWER))


Details: Callable[..., Any] = Depends(_may_see_details)
"""Whether an open route may name namespaces and addresses to the caller."""
