"""Which role a route needs, and whether a request has it."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from acker_api.problems import Problem
from acker_api.security import Role
from acker_api.services import Services, Shared

_bearer = HTTPBearer(auto_error=False, description="Needed where a token is set")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def require(role: Role) -> Any:
    """Dependency of routes that need a role; 401 without a known token, 403 with another's."""

    def check(services: Shared, bearer: Bearer) -> None:
        if refused := refusal(services, bearer, role):
            raise refused

    return Depends(check)


def refusal(
    services: Services, bearer: HTTPAuthorizationCredentials | None, role: Role
) -> Problem | None:
    """Why a request may not do what needs a role; None if it may."""
    if not services.tokens.needed(role):
        return None
    roles = services.tokens.roles(bearer.credentials) if bearer else None
    if roles is None:
        return Problem(
            401,
            "unauthorized",
            "A token is needed",
            "send the header Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": 'Bearer realm="acker-redis"'},
        )
    if role not in roles:
        return Problem(403, "forbidden", "The token is not for this", f"it needs the role {role}")
    return None


def _may_see_details(services: Shared, bearer: Bearer) -> bool:
    return refusal(services, bearer, Role.VIEWER) is None


Details: Callable[..., Any] = Depends(_may_see_details)
"""Whether an open route may name namespaces and addresses to who asks."""
