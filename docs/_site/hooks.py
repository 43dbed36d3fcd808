"""Hooks of the documentation site: pages and links that are outside of docs/.

Pages link to files of the repository by relative paths, which GitHub follows. MkDocs knows the
files below docs/ only. So these hooks

- add the pages of ``PUBLISHED`` to the site, below ``repository/``. A page of ``SHOWN_AS`` takes
  the place of a page of docs/, which on GitHub only leads to it;
- rewrite each link between pages to the address that the page has in the site;
- point each other link into the repository at ``repo_url``, or make it text if there is none.
"""

import posixpath
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = (
    "*.md",
    "benchmarks/*.md",
    "clients/*.md",
    "clients/*/README.md",
    "deploy/README.md",
    "deploy/acl/README.md",
    "examples/*/README.md",
    "lua/README.md",
    "proof/cases/README.md",
)
"""Files outside of docs/ that are pages of the site."""
SHOWN_AS = {"lua/README.md": "reference/scripts.md"}
"""Files that are shown in the place of a page of docs/."""
NOT_SHOWN = {"README.md": "index.md"}
"""Files that are no page, and the page of docs/ to which links to them lead."""


class RepositoryLinks(Treeprocessor):
    """Rewrites the links of one page after another; ``page`` is set before each."""

    page: Page
    files: Files
    repo_url: str | None

    def run(self, root: Element) -> None:
        """Rewrite links and images in place."""
        here = in_repository(self.page.file.src_uri)
        for element, name in _references(root):
            url = urlsplit(element.get(name, ""))
            if url.scheme or url.netloc or not url.path or url.path.startswith("/"):
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(here), unquote(url.path)))
            page = in_site(path)
            if page and (self.files.get_file_from_path(page) or path.startswith("docs/")):
                start = posixpath.dirname(self.page.file.src_uri)
                target = posixpath.relpath(page, start or ".")
                element.set(name, target + (f"#{url.fragment}" if url.fragment else ""))
            elif not (ROOT / path).exists():
                pass  # MkDocs reports the link
            elif self.repo_url:
                element.set(name, f"{self.repo_url.rstrip('/')}/blob/main/{path}")
            else:
                element.tag = "span"
                del element.attrib[name]
                element.set("title", f"{path} in the repository")


def _references(root: Element) -> Iterator[tuple[Element, str]]:
    for element in list(root.iter()):
        if element.tag == "a" and element.get("href"):
            yield element, "href"
        elif element.tag == "img" and element.get("src"):
            yield element, "src"


def in_repository(src_uri: str) -> str:
    """Return the path in the repository of a page of the site."""
    for path, shown in SHOWN_AS.items():
        if shown == src_uri:
            return path
    outside = src_uri.removeprefix("repository/")
    return outside if outside != src_uri else f"docs/{src_uri}"


def in_site(path: str) -> str:
    """Return the page of the site, or other file below docs/, for a path; "" if there is none."""
    if path.startswith("docs/"):
        page = path.removeprefix("docs/")
        return f"{page}/README.md" if (ROOT / path / "README.md").exists() else page
    if (ROOT / path / "README.md").exists():
        path += "/README.md"
    return SHOWN_AS.get(path) or NOT_SHOWN.get(path) or f"repository/{path}"


_links = RepositoryLinks()


class _Links(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - Python-Markdown's name
        # After the links are elements (20), and before MkDocs resolves them (0).
        md.treeprocessors.register(_links, "repository_links", 5)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the processor of links to the Markdown extensions."""
    config.markdown_extensions.append(_Links())
    _links.repo_url = config.repo_url
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/."""
    for pattern in PUBLISHED:
        for file in sorted(ROOT.glob(pattern)):
            path = file.relative_to(ROOT).as_posix()
            if path in NOT_SHOWN:
                continue
            page = in_site(path)
            if stub := files.get_file_from_path(page):
                files.remove(stub)
            files.append(File.generated(config, page, abs_src_path=str(file)))
    _links.files = files
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Note which page is rendered next, and hide the mark of blocks that tests do not run."""
    _links.page = page
    return markdown.replace(' title="fragment"\n', "\n")


def on_serve(server: object, config: MkDocsConfig, builder: object) -> object:
    """Build again when a page outside of docs/ changes."""
    for pattern in PUBLISHED:
        for file in ROOT.glob(pattern):
            server.watch(str(file))  # type: ignore[attr-defined]
    return server
