"""The page at ``/docs`` and what it shows, if they are switched on. They are public: no secrets."""

import json

from fastapi import APIRouter, Request, Response

from acker_api import apidocs
from acker_api.dashboard.site import ASKED, StaticFile
from acker_api.http.routes.static import READ, answer
from acker_api.problems import Problem

router = APIRouter(include_in_schema=False)


@router.api_route("/docs", methods=READ)
def docs(request: Request) -> Response:
    """Return Swagger UI."""
    return file(request, apidocs.PAGE)


@router.api_route("/docs/{name}", methods=READ)
def file(request: Request, name: str) -> Response:
    """Return a file that the page loads."""
    found = apidocs.file(name)
    if found is None:
        raise Problem(404, "not-found", "Not Found", "no such file; the page is /docs")
    return answer(request, found)


@router.api_route("/openapi.json", methods=READ)
def openapi(request: Request) -> Response:
    """Return the description of the API; it is made for the first request."""
    state = request.app.state
    if not hasattr(state, "openapi"):
        body = json.dumps(request.app.openapi(), ensure_ascii=False, separators=(",", ":"))
        state.openapi = StaticFile.of(body.encode(), "application/json", ASKED)
    return answer(request, state.openapi)
