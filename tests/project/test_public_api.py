"""Docs, examples and the admin service import public names only: docs/reference/public-api.md."""

import ast
import importlib
import re
from collections.abc import Iterator

import pytest

from tests.docs.blocks import blocks, pages
from tests.project.imports import ROOT

PUBLIC = ("acker_redis", "acker_redis.aio", "acker_redis.spark", "acker_redis.embedded")
OPERATOR = ("acker_redis.operate", "acker_redis.operate.status")


def is_public(module: str) -> bool:
    integration = re.fullmatch(r"acker_redis\.integrations\.\w+", module)
    return module in PUBLIC or module == "acker_redis.errors" or integration is not None


def unknown(code: str, operator: bool = False) -> Iterator[str]:
    """Yield the imports of names that are not public."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (
                alias.name
                for alias in node.names
                if alias.name.startswith("acker_redis") and not is_public(alias.name)
            )
        module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
        allowed = is_public(module) or (operator and module in OPERATOR)
        if module.startswith("acker_redis"):
            yield from (
                f"{module}.{alias.name}"
                for alias in node.names
                if not (allowed and has(module, alias.name))
            )


def has(module: str, name: str) -> bool:
    """Return whether a public package has this name; an integration may lack its library."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        return True
    return name in getattr(found, "__all__", dir(found))


@pytest.mark.parametrize("folder", ["api", "examples"])
def test_programs_import_public_names(folder: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for name in unknown(file.read_text(), operator=folder == "api" or "flights" in file.parts)
    ]
    assert not found, "\n".join(found)


def test_pages_import_public_names() -> None:
    code = [each for page in pages() for each in blocks(page) if each.language == "python"]
    found = [f"{each.where}: {name}" for each in code for name in unknown(each.code)]
    assert len(code) > 50
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "from acker_redis.flows.browse import TreePage",
        "from acker_redis import logs",
        "import acker_redis.flows",
        "from acker_redis.operate import health",
        "from acker_redis.integrations.kafka.work import Work",
    ],
)
def test_other_names_are_found(code: str) -> None:
    assert list(unknown(code))
    assert not list(unknown("from acker_redis import Source\nimport acker_redis"))


def test_the_page_lists_the_public_packages() -> None:
    page = (ROOT / "docs/reference/public-api.md").read_text()
    listed = set(re.findall(r"^\| `(acker_redis[\w.]*)(?:\.\*)?` \|", page, re.MULTILINE))
    assert listed == {*PUBLIC, "acker_redis.errors", "acker_redis.integrations"}
