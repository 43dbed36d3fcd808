"""The page at ``/docs``, if it is switched on. It holds no secrets, so it is public."""

from fastapi import APIRouter, Request, Response

from acker_api import apidocs
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
