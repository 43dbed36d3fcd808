"""Errors of the service as problem details (RFC 9457, ``application/problem+json``).

``type`` is a URN that stays the same from version to version; ``detail`` says what to do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

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
from acker_redis.transport.errors import is_denied

MEDIA_TYPE = "application/problem+json"
URN = "urn:acker-redis:problem:"


@dataclass(eq=False)
class Problem(Exception):  # noqa: N818 - the RFC's word
    """A response that says what is wrong; raise it from anywhere in a request."""

    status: int
    code: str
    """Behind the URN: what kind of problem it is."""
    title: str
    detail: str = ""
    errors: Sequence[Mapping[str, str]] = ()
    """Where there are several: one by one."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The object that is sent."""
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
        """As a response."""
        return JSONResponse(self.body(), self.status, dict(self.headers), MEDIA_TYPE)


def unauthorized() -> Problem:
    """Nobody knows who asks."""
    return Problem(
        401,
        "unauthorized",
        "A token is needed",
        "send the header Authorization: Bearer TOKEN, or log in",
        headers={"WWW-Authenticate": 'Bearer realm="acker-redis"'},
    )


def too_many(wait: float) -> Problem:
    """Who asks too often."""
    seconds = max(1, math.ceil(wait))
    return Problem(
        429,
        "too-many-requests",
        "Too many requests",
        f"ask again in {seconds} s",
        headers={"Retry-After": str(seconds)},
    )


AGAIN = {"Retry-After": "1"}
"""With what passes by itself, such as a Redis that is away."""

_KINDS: tuple[tuple[type[AckerError], int, str, str], ...] = (
    (NamespaceNotFoundError, 404, "namespace-not-found", "There is no such namespace"),
    (NamespaceExistsError, 409, "namespace-exists", "There is such a namespace, and it is another"),
    (ReshardError, 409, "reshard", "The namespace moves to another number of shards"),
    (BacklogError, 503, "backlog", "The namespace takes no trees at the moment"),
    (WrongShardError, 503, "moved", "The namespace was just moved to another number of shards"),
    (FenceError, 503, "fence", "The batch was fenced off"),
    (InvalidBatchError, 422, "bad-request", "The request cannot be"),
    (ConfigError, 422, "bad-request", "The request cannot be"),
    (RedisUnavailableError, 503, "redis-unavailable", "Redis does not answer"),
    (RedisRefusedError, 502, "redis-refused", "Redis refuses to answer"),
    (SchemaError, 409, "schema", "The namespace was written by another version"),
)


def of_error(error: AckerError) -> Problem:
    """What an error of the library means to who asked."""
    for kind, status, code, title in _KINDS:
        if isinstance(error, kind):
            headers = AGAIN if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
            return Problem(status, code, title, str(error) + _advice(error), headers=headers)
    return Problem(500, "internal", "The request could not be answered", str(error))


def _advice(error: AckerError) -> str:
    """What to do, where only a service knows."""
    if is_denied(error):
        return (
            "; its user in Redis needs the rights of a viewer to read and of an admin to act: "
            "acker-redis acl admin"
        )
    return ""


INTERNAL = Problem(
    500,
    "internal",
    "The request could not be answered",
    "this is a bug of the service; its log says more",
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
    if status == HTTPStatus.BAD_REQUEST:  # the only reason for which the framework says so
        return Problem(
            422, "bad-request", "The request cannot be", "the body is not JSON in UTF-8"
        ).response()
    code = status.phrase.lower().replace(" ", "-")
    details = {
        404: "there is nothing here; the API is under /api/v1",
        405: "this cannot be done here; the header Allow says what can",
    }
    detail = details.get(status, "")
    return Problem(status, code, status.phrase, detail, headers=error.headers or {}).response()


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - for mypy
    # What was sent is not sent back: it may be a secret in the wrong place.
    errors = [
        {"where": ".".join(map(str, each["loc"])), "what": str(each["msg"])}
        for each in error.errors()
    ]
    return Problem(
        422, "bad-request", "The request cannot be", "see errors, and /docs", errors
    ).response()
