"""The documentation site builds without a network, and its pages load nothing from elsewhere."""

import hashlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.docs.blocks import ROOT
from tests.waiting import LIMIT

LOADED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "script": "src",
    "source": "src",
    "video": "src",
}
"""Elements that make a browser load something, and the attribute that names it."""
NOT_LOADED = ("canonical", "next", "prev")
"""Relations of ``link`` that a browser does not load."""


class References(HTMLParser):
    """Collects the URLs that a page loads from other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.external: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        url = given.get(LOADED.get(tag, ""), "")
        if given.get("rel") not in NOT_LOADED and url.startswith(("http:", "https:", "//")):
            self.external.append(url)
        # The theme fetches the library that draws such diagrams from a CDN.
        if "mermaid" in given.get("class", "").split():
            self.external.append("mermaid")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it."""
    if not find_spec("mkdocs") or not find_spec("mkdocstrings"):
        missing("the extra docs (make docs)")
    place = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        env=os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    return place


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) > 20
    for page in pages:
        found = References()
        found.feed(page.read_text())
        assert not found.external, page.relative_to(site)


def test_style_sheets_load_nothing_from_another_host(site: Path) -> None:
    for sheet in site.rglob("*.css"):
        assert not any(f"url({mark}" in sheet.read_text() for mark in ("http", "//", '"http'))


def test_lists_of_pages_are_rendered_as_lists(site: Path) -> None:
    """Unlike GitHub, Python-Markdown wants an empty line before a list."""
    for page in site.rglob("*.html"):
        for paragraph in re.findall(r"<p>(.*?)</p>", page.read_text(), re.DOTALL):
            assert not re.search(r"\n(?:[-*|]|\d+\.) ", paragraph), page.relative_to(site)


def test_search_knows_every_section(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text()
    for words in ("reference/cli.html", "reference/scripts.html", "acker_redis.Source"):
        assert words in index


def test_pages_outside_of_docs_are_part_of_the_site(site: Path) -> None:
    assert (site / "repository" / "CONTRIBUTING.html").exists()
    assert '<h2 id="keys">' in (site / "reference" / "scripts.html").read_text()
    linked = (site / "reference" / "rest.html").read_text()
    assert 'href="../repository/deploy/acl/index.html"' in linked


def test_shim_is_the_file_of_its_package() -> None:
    """npm's iframe-worker 1.0.4, shim/index.js: search from the disk, without a CDN."""
    found = hashlib.sha256((ROOT / "docs" / "_site" / "iframe-worker.js").read_bytes()).hexdigest()
    assert found == "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609"
