"""Links between the pages of the repository lead to files and headings that exist."""

import re
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.blocks import ROOT

FOLDERS = (
    "acker_redis",
    "api",
    "benchmarks",
    "clients",
    "deploy",
    "docs",
    "examples",
    "lua",
    "tests",
)
PAGES = [
    page.relative_to(ROOT).as_posix()
    for page in (*ROOT.glob("*.md"), *(each for f in FOLDERS for each in (ROOT / f).rglob("*.md")))
    if "node_modules" not in page.parts
]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")


def _prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text())


@cache
def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    found: set[str] = set(re.findall(r'<a id="([^"]+)"', page.read_text()))
    count: Counter[str] = Counter()
    for heading in re.findall(r"^#+ (.+?)\s*$", _prose(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count[anchor] += 1
        found.add(anchor if count[anchor] == 1 else f"{anchor}-{count[anchor] - 1}")
    return found


@pytest.mark.parametrize("name", sorted(PAGES))
def test_links_of_a_page_have_targets(name: str) -> None:
    page = ROOT / name
    for link in _LINK.findall(_CODE.sub("", _prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / unquote(path) if path else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in _anchors(target), link


def test_pages_are_found() -> None:
    assert {"README.md", "lua/README.md", "docs/explanation/decisions/README.md"} <= set(PAGES)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.startswith(("docs/", "clients/", "deploy/", "examples/"))],
)
def test_page_links_to_the_glossary(page: str) -> None:
    if page != "docs/glossary.md":
        assert re.search(r"\]\([./a-z]*glossary\.md\)", (ROOT / page).read_text())
