"""The table of guarantees: each promise, the tests that prove it, and their tiers.

``python -m tests.project.guarantees`` writes the column of tiers from the tests.
"""

import ast
import re
from functools import cache

from tests import tiers

PAGE = tiers.TESTS.parent / "docs" / "explanation" / "guarantees.md"
_ROW = re.compile(
    r"^\| (?P<promise>.+) \| (?P<tests>.*`test_[\w.]+`.*?) \|(?: (?P<tiers>[a-z, ]+) \|)?$"
)


def rows(page: str) -> list[re.Match[str]]:
    """Return the rows of the table that name a test."""
    return [found for line in page.splitlines() if (found := _ROW.match(line))]


def names(row: re.Match[str]) -> list[str]:
    """Return the tests, or files of tests, that a row names."""
    return re.findall(r"`(test_[\w.]+)`", row["tests"])


def column(row: re.Match[str]) -> str:
    """Return the tiers in which the tests of a row run for the first time: "quick, full"."""
    found = {tests()[name] for name in names(row) if name in tests()}
    return ", ".join(tier for tier in tiers.TIERS if tier in found)


@cache
def tests() -> dict[str, str]:
    """Return the earliest tier of each test function and of each file, by its name."""
    found: dict[str, str] = {}
    for file in tiers.TESTS.rglob("test_*.py"):
        found[file.name] = tiers.tier_of(file)
        tree = ast.parse(file.read_text())
        inside = [body for each in tree.body for body in getattr(each, "body", ())]
        for each in (*tree.body, *inside):
            if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
                tier = _latest(tiers.tier_of(file), *map(_mark, each.decorator_list))
                found[each.name] = min(tier, found.get(each.name, tier), key=tiers.TIERS.index)
    return found


def _mark(decorator: ast.expr) -> str:
    name = ast.unparse(decorator).rpartition(".")[2]
    return name if name in tiers.TIERS else tiers.QUICK


def _latest(*each: str) -> str:
    return max(each, key=tiers.TIERS.index)


def written(page: str) -> str:
    """Return the page with the column of tiers as the tests have it."""
    lines = []
    for line in page.splitlines():
        row = _ROW.match(line)
        lines.append(f"| {row['promise']} | {row['tests']} | {column(row)} |" if row else line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
