"""The page at ``/docs``: Swagger UI on this service's OpenAPI, with all that it loads.

It is read when it is asked for first, and loads nothing from elsewhere.
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
    """The page, or one of the files it loads; None if it is none of them."""
    path = FILES.get(name)
    if path is None:
        return None
    body = path.read_bytes()
    headers = {
        # Weak: it is the same packed and unpacked.
        "ETag": f'W/"{hashlib.sha256(body).hexdigest()[:32]}"',
        "Cache-Control": ASKED,
        "Vary": "Accept-Encoding",
    }
    if name == PAGE:
        # Also told with 304, which has no media type: it replaces what the browser has kept.
        headers["Content-Security-Policy"] = PAGE_CSP
    return StaticFile(body, MEDIA_TYPES[path.suffix], headers)
