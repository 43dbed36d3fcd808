"""The files of the dashboard, and their headers."""

import gzip
import hashlib
import re
import socket
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from acker_api.dashboard.site import ROOT, Site
from acker_api.serving.server import _listen
from tests.browser.stack import Service
from tests.waiting import LIMIT

VENDOR = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "inter-latin-wght-normal.woff2": (
        "3100e775e8616cd2611beecfa23a4263d7037586789b43f035236a2e6fbd4c62"
    ),
    "Inter.LICENSE": "3b0a5fca3d17942cde889069889dedbbbd075e9b599968c82a95f4d944e9b345",
}
"""Digests of the files in npm's packages uplot 1.6.32 and @fontsource-variable/inter 5.3.0."""
STRICT = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "require-trusted-types-for 'script'",
    "trusted-types acker-worker",
    "frame-ancestors 'none'",
)
SCRIPTS = sorted((ROOT / "js").rglob("*.js"))


def test_vendor_files_are_unmodified() -> None:
    found = {path.name for path in (ROOT / "vendor").iterdir()} - {"README.md"}
    assert found == set(VENDOR)
    for name, digest in VENDOR.items():
        assert hashlib.sha256((ROOT / "vendor" / name).read_bytes()).hexdigest() == digest
    words = (ROOT / "vendor" / "README.md").read_text()
    assert all(name in words for name in VENDOR)


@pytest.mark.parametrize("path", ["/", "/login"])
def test_page_loads_only_files_of_the_service(service: Service, path: str) -> None:
    with httpx.Client(base_url=service.url, timeout=LIMIT) as client:
        answer = client.get(path)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        policy = answer.headers["content-security-policy"].split("; ")
        assert set(STRICT) <= set(policy)
        assert "unsafe" not in answer.headers["content-security-policy"]
        page = _Page()
        page.feed(answer.text)
        assert not page.inline
        assert page.files
        for file in page.files:
            assert file.startswith("static/"), "relative: a proxy may add a path"
            loaded = client.get(file)
            assert loaded.status_code == 200, file
            assert loaded.headers["cache-control"] == "public, max-age=31536000, immutable"
        again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        other = client.get(path, headers={"If-None-Match": '"another"'})
        assert other.status_code == 200


def test_file_is_cached_under_its_own_version_only(service: Service) -> None:
    version = Site.read().version
    body = (ROOT / "icon.svg").read_bytes()
    with httpx.Client(base_url=service.url, timeout=LIMIT) as client:
        kept = client.get(f"/static/{version}/icon.svg")
        assert "immutable" in kept.headers["cache-control"]
        # A page of an older replica gets its files too, and they are not cached.
        older = client.get("/static/0123456789abcdef/icon.svg")
        assert older.headers["cache-control"] == "no-cache"
        assert kept.content == older.content == body
        head = client.head(f"/static/{version}/icon.svg")
        assert (head.status_code, head.content) == (200, b"")
        plain = client.get(f"/static/{version}/js/main.js", headers={"Accept-Encoding": "identity"})
        assert plain.content == (ROOT / "js" / "main.js").read_bytes()
        assert "content-encoding" not in plain.headers
        packed = client.get(f"/static/{version}/js/main.js", headers={"Accept-Encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.headers["vary"] == "Accept-Encoding"
        assert packed.content == plain.content
        assert packed.headers["etag"] == plain.headers["etag"]


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "js", "js/", "js/../../site.py", "..%2f..%2fsite.py", "%2e%2e/settings.py"),
        *("site.py", "__init__.py", "vendor/README.md", "vendor/uPlot.LICENSE", "index.html"),
        *("/etc/passwd", "js//main.js", "js/main.js/", "css/nothing.css"),
    ],
)
def test_no_other_file_is_served(service: Service, path: str) -> None:
    with httpx.Client(base_url=service.url, timeout=LIMIT) as client:
        answer = client.get(f"/static/latest/{path}")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_changed_file_changes_the_version() -> None:
    files = {"index.html": b"{static} {modules}", "js/main.js": b"1", "js/first.js": b"2"}
    before, after = Site(files), Site({**files, "js/main.js": b"3"})
    assert before.version != after.version
    page = before.page("index.html")
    assert page.body.decode().startswith(f"static/{before.version} ")
    assert b"first.js" not in page.body
    assert page.zipped
    assert gzip.decompress(page.zipped) == page.body
    assert before.file(after.version, "js/main.js").body == b"1"


def test_answers_use_tcp_nodelay() -> None:
    # Head and body are sent separately: with a delayed ACK, that took 40 ms each time.
    with _listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_modules_import_existing_files() -> None:
    assert len(SCRIPTS) > 30
    for script in SCRIPTS:
        for target in re.findall(r'(?:from|import\()\s*"([^"]+)"', script.read_text()):
            assert target.startswith("."), f"{script.name} loads {target}"
            assert (script.parent / target).resolve().is_file(), f"{script.name} loads {target}"


def test_no_script_makes_markup_or_code_of_a_text() -> None:
    for script in SCRIPTS:
        found = re.search(
            r"(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
            r"|DOMParser|setHTML|srcdoc|cssText|createContextualFragment",
            script.read_text(),
        )
        assert not found, f"{script.name}: {found}"


def test_scripts_are_small() -> None:
    assert {path.name for path in SCRIPTS if len(path.read_text().splitlines()) > 260} == set()
    total = sum(len(gzip.compress(path.read_bytes())) for path in _served())
    assert total < 200_000


def _served() -> list[Path]:
    return [path for path in ROOT.rglob("*") if path.suffix in (".js", ".css", ".html", ".woff2")]


class _Page(HTMLParser):
    """The files that a page loads, and its inline code."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []
        self.inline: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.inline += [name for name in found if name == "style" or name.startswith("on")]
        if tag == "link":
            self.files.append(found["href"] or "")
        if tag == "script":
            self.files.append(found.get("src") or "")
        if tag == "style":
            self.inline.append(tag)
        self._script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script and data.strip():
            self.inline.append(data)
