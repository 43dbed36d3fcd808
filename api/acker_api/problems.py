"""Errors of the service as problem details (RFC 9457, ``application/problem+json``).

``type`` is a URN that does not change between versions; ``detail`` says what to do.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from acker_api.limited_log import LimitedLog
from acker_redis.errors import (
    AckerError,
    BacklogError,
    ConfigError,
    FenceError,
    InvalidBatchError,
    NamespaceExistsError,
    NamespaceNotFoundError,
    RedisRefusedError,
    RedisUnavailableError,
    ReshardError,
    SchemaError,
    WrongShardError,
)
from acker_redis.operate import is_denied

MEDIA_TYPE = "application/problem+json"
URN = "urn:acker-redis:problem:"


@dataclass(eq=False)
class Problem(Exception):  # noqa: N818 - the RFC's word
    """An error response; raise it from anywhere in a request."""

    status: int
    code: str
    """The kind of problem, after the prefix ``URN``."""
    title: str
    detail: str = ""
    errors: Sequence[Mapping[str, str]] = ()
    """The single errors, if there are several."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Return the object that is sent."""
        found: dict[str, Any] = {
            "type": URN + self.code,
            "title": self.title,
            "status": self.status,
        }
        if self.detail:
            found["detail"] = self.detail
        if self.errors:
            found["errors"] = [dict(error) for error in self.errors]
        return found

    def response(self) -> Response:
        """Return the problem as a response."""
        return JSONResponse(self.body(), self.status, dict(self.headers), MEDIA_TYPE)


def unauthorized() -> Problem:
    """Return the problem of a caller without a valid token."""
    return Problem(
        401,
        "unauthorized",
        "Unauthorized",
        "send the header Authorization: Bearer TOKEN, or log in",
        headers={"WWW-Authenticate": 'Bearer realm="acker-redis"'},
    )


def too_many(wait: float) -> Problem:
    """Return the problem of a caller that exceeds a limit; ``wait`` is in seconds."""
    seconds = max(1, math.ceil(wait))
    return Problem(
        429,
        "too-many-requests",
        "Too Many Requests",
        f"the limit is exceeded; retry after {seconds} s",
        headers={"Retry-After": str(seconds)},
    )


AGAIN = {"Retry-After": "1"}
"""Headers for problems that pass by themselves, such as an unavailable Redis."""

_KINDS: tuple[tuple[type[AckerError], int, str, str], ...] = (
    (NamespaceNotFoundError, 404, "namespace-not-found", "Not Found"),
    (NamespaceExistsError, 409, "namespace-exists", "Conflict"),
    (ReshardError, 409, "reshard", "Reshard in progress"),
    (BacklogError, 503, "backlog", "Tracking refused"),
    (WrongShardError, 503, "resharded", "Number of shards changed"),
    (FenceError, 503, "fence", "Batch refused by its fence"),
    (InvalidBatchError, 422, "bad-request", "Bad Request"),
    (ConfigError, 422, "bad-request", "Bad Request"),
    (RedisUnavailableError, 503, "redis-unavailable", "Redis unavailable"),
    (RedisRefusedError, 502, "redis-refused", "Command refused by Redis"),
    (SchemaError, 409, "schema", "Incompatible or damaged namespace"),
)


_OF_SCRIPT = re.compile(r"user_script|\.lua:[0-9]|@?f_[0-9a-f]{40}|Error running script|script: ")
"""Texts of an error inside a script of Redis."""
_log = LimitedLog()


def of_error(error: AckerError) -> Problem:
    """Return the problem of an error of the library.

    The text of an error inside a script goes to the log: it means nothing to users of the API.
    """
    if isinstance(error, RedisRefusedError) and not is_denied(error) and _is_of_script(error):
        _log.warn("script_failed", why=str(error))
        return Problem(
            502,
            "redis-refused",
            "Command refused by Redis",
            "a script failed in Redis: the data of the namespace may be damaged; run acker-redis "
            "doctor NAMESPACE, and see the log of the service",
        )
    for kind, status, code, title in _KINDS:
        if isinstance(error, kind):
            headers = AGAIN if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
            return Problem(status, code, title, str(error) + _advice(error), headers=headers)
    return Problem(500, "internal", "Internal Server Error", str(error))


def _is_of_script(error: AckerError) -> bool:
    return bool(_OF_SCRIPT.search(str(error)))


def _advice(error: AckerError) -> str:
    """Return what to do, for errors that the library cannot advise on."""
    if is_denied(error):
        return (
            "; the service's user in Redis needs the role viewer to read, and the role admin to "
            "act: see acker-redis acl admin"
        )
    return ""


INTERNAL = Problem(
    500,
    "internal",
    "Internal Server Error",
    "this is a bug of the service; its log has details",
)


def install(app: FastAPI) -> None:
    """Answer every error with a problem."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(AckerError, _acker_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(RequestValidationError, _invalid)


def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 - for mypy
    return error.response()


def _acker_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AckerError)  # noqa: S101 - for mypy
    return of_error(error).response()


def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - for mypy
    status = HTTPStatus(error.status_code)
    if status == HTTPStatus.BAD_REQUEST:  # the framework has only one reason for it
        return Problem(
            422, "bad-request", "Bad Request", "the body is not JSON in UTF-8"
        ).response()
    code = status.phrase.lower().replace(" ", "-")
    details = {
        404: "no such path; the API is under /api/v1",
        405: "the path has no such method; the header Allow lists its methods",
    }
    detail = details.get(status, "")
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = _allowed(request)
    return Problem(status, code, status.phrase, detail, headers=headers).response()


METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


def _allowed(request: Request) -> str:
    """Return the methods of a path: the framework lists only those of one of its routes."""
    return ", ".join(
        method
        for method in METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    )


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - for mypy
    # The input is not sent back: it may be a secret in the wrong place.
    errors = [
        {"where": ".".join(map(str, each["loc"])), "what": str(each["msg"])}
        for each in error.errors()
    ]
    return Problem(
        422, "bad-request", "Bad Request", "a value is invalid; see errors, and /docs", errors
    ).response()
