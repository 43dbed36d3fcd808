"""Which role a route needs, and whether who asks has it."""

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

_bearer = HTTPBearer(auto_error=False, description="Needed where a token is set")
_cookie = APIKeyCookie(name=COOKIE, auto_error=False, description="Of a browser that has logged in")
# For OpenAPI; who asks was told before, by the gate.
_Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
_Cookie = Annotated[str | None, Depends(_cookie)]

UNKNOWN_SHOWN, NAME_SHOWN = 10, 64
"""Unknown query parameters that a problem names, and characters of each name."""


def asking(request: Request) -> Who | None:
    """Who asks; None if that is not known."""
    who: Who | None = request.state.who
    return who


Asking = Annotated[Who | None, Depends(asking)]


def require(role: Role) -> Any:
    """Dependency of routes that need a role, in the namespace of their path if they have one.

    It is who asks. 401 if that is not known, 403 if they have not the role; of what would have
    changed something the audit log is told.
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
        if role is not Role.METRICS:  # a scraper may add parameters of its own
            known_query(request)
        assert who  # noqa: S101 - for mypy
        return who

    return Depends(check)


def known_query(request: Request) -> None:
    """Raise a Problem (422) for a query parameter that the route does not have.

    Ignored, a misspelt filter would return everything.
    """
    known = set(_names(request.scope["route"].dependant))
    if unknown := [name for name in request.query_params if name not in known]:
        there = f"there are {', '.join(sorted(known))}" if known else "there are none"
        raise Problem(
            422,
            "bad-request",
            "The request cannot be",
            f"unknown query parameter; {there}",
            [
                {"where": f"query.{name[:NAME_SHOWN]}", "what": "there is no such parameter"}
                for name in unknown[:UNKNOWN_SHOWN]
            ],
        )


def _names(dependant: Dependant) -> Iterator[str]:
    """Names of the query parameters of a route and of what it depends on."""
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _names(each)


KnownQuery = Depends(known_query)
"""For routes that need no role."""


def refusal(who: Who | None, role: Role, namespace: str | None = None) -> Problem | None:
    """Why somebody may not do what needs a role; None if they may."""
    if who is None or (role is Role.METRICS and not who.metrics):
        return unauthorized()
    if not who.may(role):
        return Problem(403, "forbidden", "The token is not for this", f"it needs the role {role}")
    if namespace is not None and not who.sees(namespace):
        return Problem(403, "forbidden", "The token is not for this", "it is for other namespaces")
    return None


def _may_see_details(who: Asking) -> bool:
    return who is not None and who.everywhere and who.may(Role.VIEWER)


Details: Callable[..., Any] = Depends(_may_see_details)
"""Whether an open route may name namespaces and addresses to who asks."""
