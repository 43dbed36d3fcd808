"""The files of the dashboard with their headers; they are read once.

Files have a version in their address, ``/static/<digest of all of them>/js/main.js``. A file under
the present version never changes, so browsers cache it for good. Under any other version, such as
that of an older or newer replica, the same file is sent and not cached. Browsers revalidate the
pages each time, by their ETag.
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
"""A version that is never cached."""
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
        # Neither our scripts nor uPlot make markup of a text; browsers that know this enforce it.
        "require-trusted-types-for 'script'",
        # The only policy admits one address: that of the worker.
        "trusted-types acker-worker",
    )
)
"""For the pages: everything comes from this service, nothing is inline, no text becomes HTML."""
WORKER = "js/worker.js"
WORKER_CSP = "default-src 'none'; connect-src 'self'"
"""For the worker, which only receives events."""
KEPT = "public, max-age=31536000, immutable"
ASKED = "no-cache"
MEDIA_TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""Types of the files that are served; licences and Python are not."""
_PACKED = ("font/woff2",)


@dataclass(frozen=True)
class StaticFile:
    """A file and its headers."""

    body: bytes
    media_type: str
    headers: Mapping[str, str]
    packed: bool = False
    """Whether the file is compressed already."""

    @classmethod
    def of(cls, body: bytes, media_type: str, keep: str, csp: str | None = None) -> "StaticFile":
        """Return a file with the headers for it: ``keep`` says how long browsers cache it."""
        headers = {
            # Weak: the same for the compressed and the plain file.
            "ETag": f'W/"{hashlib.sha256(body).hexdigest()[:32]}"',
            "Cache-Control": keep,
            "Vary": "Accept-Encoding",
        }
        if csp:
            headers["Content-Security-Policy"] = csp
        return cls(body, media_type, headers, media_type in _PACKED)

    def matches(self, if_none_match: str) -> bool:
        """Return whether a browser has the file already, by its ``If-None-Match``."""
        tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
        return "*" in tags or self.headers["ETag"].removeprefix("W/") in tags

    @cached_property
    def zipped(self) -> bytes | None:
        """The body for browsers that accept gzip; None if that saves nothing."""
        if self.packed:
            return None
        return gzip.compress(self.body, 6, mtime=0)


class Site:
    """All files of the dashboard.

    Pages name their files by ``root_path``. Without one, the names are relative, so they are right
    under any path that ends in ``/``. Files name others relatively in any case.
    """

    def __init__(self, files: Mapping[str, bytes], root_path: str = "") -> None:
        self._root = f"{root_path}/" if root_path else ""
        digest = hashlib.sha256()
        for path, body in sorted(files.items()):
            digest.update(f"{path}\0{len(body)}\0".encode())
            digest.update(body)
        self.version = digest.hexdigest()[:16]
        policies = {WORKER: WORKER_CSP}
        self._kept, self._asked = (
            {path: _file(path, body, keep, policies.get(path)) for path, body in files.items()}
            for keep in (KEPT, ASKED)
        )
        self._pages = {
            path: _file(path, self._fill(body, files), ASKED, CSP)
            for path, body in files.items()
            if path.endswith(".html")
        }

    @classmethod
    def read(cls, root: Path = ROOT, root_path: str = "") -> "Site":
        """Return the site of a folder."""
        return cls(
            {
                path.relative_to(root).as_posix(): path.read_bytes()
                for path in sorted(root.rglob("*"))
                if path.suffix in MEDIA_TYPES and path.is_file()
            },
            root_path,
        )

    def page(self, path: str) -> StaticFile:
        """Return a page, with the addresses of this version in it."""
        return self._pages[path]

    def file(self, version: str, path: str) -> StaticFile:
        """Return a file under a version; a Problem (404) if there is none at this path."""
        files = self._kept if version == self.version else self._asked
        if path in self._pages or path not in files:
            raise Problem(404, "not-found", "Not Found", "no such file; the dashboard is at /")
        return files[path]

    def _fill(self, body: bytes, files: Mapping[str, bytes]) -> bytes:
        """Fill in all styles and modules, so that browsers need not find them by imports."""
        static = f"{self._root}static/{self.version}"
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
    """Yield the modules of the dashboard itself."""
    for path in paths:
        if path.startswith("js/") and path not in ("js/first.js", "js/login.js", WORKER):
            yield path


def _file(path: str, body: bytes, keep: str, csp: str | None = None) -> StaticFile:
    return StaticFile.of(body, MEDIA_TYPES[Path(path).suffix], keep, csp)
