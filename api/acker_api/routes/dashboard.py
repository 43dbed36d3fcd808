"""The dashboard: two pages and the files they load. They hold no secrets, so they are open."""

from functools import cache

from fastapi import APIRouter, Request, Response

from acker_api.dashboard.site import LATEST, Site, StaticFile

router = APIRouter(include_in_schema=False)
READ = ["GET", "HEAD"]


@cache
def _site() -> Site:
    """Read once, when the first page is asked for."""
    return Site.read()


@router.api_route("/", methods=READ)
def dashboard(request: Request) -> Response:
    """The dashboard."""
    return _answer(request, _site().page("index.html"))


@router.api_route("/login", methods=READ)
def login(request: Request) -> Response:
    """Where a token becomes a cookie."""
    return _answer(request, _site().page("login.html"))


@router.api_route("/favicon.ico", methods=READ)
def favicon(request: Request) -> Response:
    """What browsers ask for by themselves."""
    return _answer(request, _site().file(LATEST, "icon.svg"))


@router.api_route("/static/{version}/{path:path}", methods=READ)
def static(request: Request, version: str, path: str) -> Response:
    """A file of the dashboard, by its path; nothing else is read, and nothing is listed."""
    return _answer(request, _site().file(version, path))


def _answer(request: Request, file: StaticFile) -> Response:
    headers = request.headers
    if file.matches(headers.get("if-none-match", "")):
        return Response(status_code=304, headers=dict(file.headers))
    zipped = file.zipped if "gzip" in headers.get("accept-encoding", "") else None
    encoding = {"Content-Encoding": "gzip"} if zipped else {}
    return Response(
        file.body if zipped is None else zipped,
        headers={**file.headers, **encoding},
        media_type=file.media_type,
    )
