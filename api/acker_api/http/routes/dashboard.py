"""The dashboard: two pages and the files they load. They hold no secrets, so they are open."""

from functools import cache

from fastapi import APIRouter, Request, Response

from acker_api.dashboard.site import LATEST, Site
from acker_api.http.routes.static import READ, answer

router = APIRouter(include_in_schema=False)


@cache
def _site() -> Site:
    """Read once, when the first page is asked for."""
    return Site.read()


@router.api_route("/", methods=READ)
def dashboard(request: Request) -> Response:
    """The dashboard."""
    return answer(request, _site().page("index.html"))


@router.api_route("/login", methods=READ)
def login(request: Request) -> Response:
    """Where a token becomes a cookie."""
    return answer(request, _site().page("login.html"))


@router.api_route("/favicon.ico", methods=READ)
def favicon(request: Request) -> Response:
    """What browsers ask for by themselves."""
    return answer(request, _site().file(LATEST, "icon.svg"))


@router.api_route("/static/{version}/{path:path}", methods=READ)
def static(request: Request, version: str, path: str) -> Response:
    """A file of the dashboard, by its path; nothing else is read, and nothing is listed."""
    return answer(request, _site().file(version, path))
