"""The web that is crawled: modules of the standard library, linked by their imports.

The links are real, and so are the cycles and the dead links: modules for Windows import modules
that other systems lack. The links of a page are known only after the page was fetched.
"""

import ast
import importlib.util
import pkgutil
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

LIBRARY = Path(sysconfig.get_path("stdlib"))


def listing(site: str) -> Iterator[str]:
    """Yield the pages that a site lists: a package and each module in it."""
    yield site
    for module in pkgutil.iter_modules([str(LIBRARY / site)]):
        yield f"{site}.{module.name}"


@cache
def links(page: str) -> tuple[str, ...]:
    """Return the modules that a module imports; ModuleNotFoundError if it does not exist."""
    file = _file(page)
    if file is None:
        if importlib.util.find_spec(page.partition(".")[0]) is None:
            raise ModuleNotFoundError(f"no module {page}")
        return ()  # written in C
    package = page if file.name == "__init__.py" else page.rpartition(".")[0]
    found: set[str] = set()
    for statement in ast.parse(file.read_bytes()).body:
        if isinstance(statement, ast.Import):
            found.update(alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            name = "." * statement.level + (statement.module or "")
            module = importlib.util.resolve_name(name, package)
            inner = (f"{module}.{alias.name}" for alias in statement.names)
            found.update([module, *filter(_file, inner)])
    return tuple(sorted(found))


def reachable(site: str) -> tuple[set[str], set[str]]:
    """Return the pages and the dead links that a crawl must find, by a plain search."""
    found, dead, stack = set[str](), set[str](), list(listing(site))
    while stack:
        page = stack.pop()
        if page not in found | dead:
            try:
                stack.extend(links(page))
                found.add(page)
            except ModuleNotFoundError:
                dead.add(page)
    return found, dead


def _file(page: str) -> Path | None:
    place = LIBRARY / page.replace(".", "/")
    candidates = place.with_suffix(".py"), place / "__init__.py"
    return next((file for file in candidates if file.is_file()), None)
