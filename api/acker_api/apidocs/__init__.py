"""The page at ``/docs``: Swagger UI on this service's OpenAPI, with all that it loads.

Its files are read at the first request. The page loads nothing from other hosts.
"""

from functools import cache
from pathlib import Path

from acker_api.auth.guard import PAGE_CSP
from acker_api.dashboard.site import ASKED, MEDIA_TYPES, StaticFile

ROOT = Path(__file__).parent
PAGE = "index.html"
FILES = {
    PAGE: ROOT / PAGE,
    "begin.js": ROOT / "begin.js",
    "swagger-ui-bundle.js": ROOT / "vendor" / "swagger-ui-bundle.js",
    "swagger-ui.css": ROOT / "vendor" / "swagger-ui.css",
}


@cache
def file(name: str) -> StaticFile | None:
    """Return the page, or one of the files it loads; None for another name."""
    path = FILES.get(name)
    if path is None:
        return None
    # With 304 too, which has no media type: the policy replaces the one that a browser cached.
    policy = PAGE_CSP if name == PAGE else None
    return StaticFile.of(path.read_bytes(), MEDIA_TYPES[path.suffix], ASKED, policy)
