"""The page at ``/docs``: Swagger UI on this service's OpenAPI, with all that it loads.

Its files are read at the first request. The page loads nothing from other hosts.
"""

import hashlib
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
    body = path.read_bytes()
    headers = {
        # Weak: the same for the compressed and the plain file.
        "ETag": f'W/"{hashlib.sha256(body).hexdigest()[:32]}"',
        "Cache-Control": ASKED,
        "Vary": "Accept-Encoding",
    }
    if name == PAGE:
        # Sent with 304 too, which has no media type: it replaces the header that a browser cached.
        headers["Content-Security-Policy"] = PAGE_CSP
    return StaticFile(body, MEDIA_TYPES[path.suffix], headers)
