"""The files of the dashboard, as they are sent: read once, with their digests.

Files are asked for under a version, ``/static/<digest of all of them>/js/main.js``. That one never
changes, so a browser keeps it for good; under any other version, that of a replica that is older
or newer, the same file is sent and is not kept. The pages are asked for each time, by their ETag.
"""

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from acker_api.problems import Problem

ROOT = Path(__file__).parent
LATEST = "latest"
"""A version that is never kept."""
CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "font-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No script of ours, nor uPlot, makes markup of a text: a browser that knows this refuses.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""For the pages: everything comes from here, nothing is inline, no text becomes HTML."""
KEPT = "public, max-age=31536000, immutable"
ASKED = "no-cache"
MEDIA_TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""What is served; licences and Python are not."""
_PACKED = (".woff2",)


@dataclass(frozen=True)
class StaticFile:
    """A file and its headers."""

    body: bytes
    media_type: str
    headers: Mapping[str, str]
    packed: bool = False
    """Whether it is packed as it is."""

    def matches(self, if_none_match: str) -> bool:
        """Whether a browser has it already, by what it sends as ``If-None-Match``."""
        tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
        return "*" in tags or self.headers["ETag"].removeprefix("W/") in tags

    @cached_property
    def zipped(self) -> bytes | None:
        """The body for browsers that take gzip; None if it gains nothing."""
        if self.packed:
            return None
        return gzip.compress(self.body, 6, mtime=0)


class Site:
    """All files."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        digest = hashlib.sha256()
        for path, body in sorted(files.items()):
            digest.update(f"{path}\0{len(body)}\0".encode())
            digest.update(body)
        self.version = digest.hexdigest()[:16]
        self._kept = {path: _file(path, body, KEPT) for path, body in files.items()}
        self._asked = {path: _file(path, body, ASKED) for path, body in files.items()}
        self._pages = {
            path: _file(path, self._fill(body, files), ASKED, CSP)
            for path, body in files.items()
            if path.endswith(".html")
        }

    @classmethod
    def read(cls, root: Path = ROOT) -> "Site":
        """What lies below a folder."""
        return cls(
            {
                path.relative_to(root).as_posix(): path.read_bytes()
                for path in sorted(root.rglob("*"))
                if path.suffix in MEDIA_TYPES and path.is_file()
            }
        )

    def page(self, path: str) -> StaticFile:
        """A page, with the addresses of this version in it."""
        return self._pages[path]

    def file(self, version: str, path: str) -> StaticFile:
        """A file under a version; Problem 404 if there is none by this path."""
        files = self._kept if version == self.version else self._asked
        if path in self._pages or path not in files:
            raise Problem(
                404, "not-found", "Not Found", "there is no such file; the dashboard is /"
            )
        return files[path]

    def _fill(self, body: bytes, files: Mapping[str, bytes]) -> bytes:
        """Every style, and every module ahead of the chain of imports that would find it."""
        static = f"/static/{self.version}"
        styles = "\n".join(
            f'<link rel="stylesheet" href="{static}/{path}">'
            for path in sorted(files)
            if path.startswith("css/")
        )
        modules = "\n".join(
            f'<link rel="modulepreload" href="{static}/{path}">' for path in _modules(sorted(files))
        )
        text = body.decode()
        for name, value in (("styles", styles), ("modules", modules), ("static", static)):
            text = text.replace(f"{{{name}}}", value)
        return text.encode()


def _modules(paths: list[str]) -> Iterator[str]:
    """Modules of the dashboard itself."""
    for path in paths:
        if path.startswith("js/") and path not in ("js/first.js", "js/login.js"):
            yield path


def _file(path: str, body: bytes, keep: str, csp: str | None = None) -> StaticFile:
    suffix = Path(path).suffix
    headers = {
        # Weak: it is the same packed and unpacked.
        "ETag": f'W/"{hashlib.sha256(body).hexdigest()[:32]}"',
        "Cache-Control": keep,
        "Vary": "Accept-Encoding",
    }
    if csp:
        headers["Content-Security-Policy"] = csp
    return StaticFile(body, MEDIA_TYPES[suffix], headers, suffix in _PACKED)
