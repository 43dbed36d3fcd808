"""The dashboard: two pages and the files they load. They hold no secrets, so they are public."""

from functools import cache
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from acker_api.dashboard.site import LATEST, Site
from acker_api.http.routes.static import READ, answer
from acker_api.http.services import Shared

router = APIRouter(include_in_schema=False)


_site = cache(Site.read)  # the files are read once, for the first page


def _shared(services: Shared) -> Site:
    return _site(root_path=services.settings.root_path)


Files = Annotated[Site, Depends(_shared)]


@router.api_route("/", methods=READ)
def dashboard(request: Request, site: Files) -> Response:
    """Return the dashboard."""
    return answer(request, site.page("index.html"))


@router.api_route("/login", methods=READ)
def login(request: Request, site: Files) -> Response:
    """Return the login page, which exchanges a token for a cookie."""
    return answer(request, site.page("login.html"))


@router.api_route("/favicon.ico", methods=READ)
def favicon(request: Request, site: Files) -> Response:
    """Return the icon, which browsers request by themselves."""
    return answer(request, site.file(LATEST, "icon.svg"))


@router.api_route("/static/{version}/{path:path}", methods=READ)
def static(request: Request, site: Files, version: str, path: str) -> Response:
    """Return a file of the dashboard; no other file is read, and nothing is listed."""
    return answer(request, site.file(version, path))
