"""The dashboard: two pages and the files they load. They hold no secrets, so they are public."""

from functools import cache

from fastapi import APIRouter, Request, Response

from acker_api.dashboard.site import LATEST, Site
from acker_api.http.routes.static import READ, answer

router = APIRouter(include_in_schema=False)


@cache
def _site() -> Site:
    """Return the files; they are read once, for the first page."""
    return Site.read()


@router.api_route("/", methods=READ)
def dashboard(request: Request) -> Response:
    """Return the dashboard."""
    return answer(request, _site().page("index.html"))


@router.api_route("/login", methods=READ)
def login(request: Request) -> Response:
    """Return the login page, which exchanges a token for a cookie."""
    return answer(request, _site().page("login.html"))


@router.api_route("/favicon.ico", methods=READ)
def favicon(request: Request) -> Response:
    """Return the icon, which browsers request by themselves."""
    return answer(request, _site().file(LATEST, "icon.svg"))


@router.api_route("/static/{version}/{path:path}", methods=READ)
def static(request: Request, version: str, path: str) -> Response:
    """Return a file of the dashboard; no other file is read, and nothing is listed."""
    return answer(request, _site().file(version, path))
