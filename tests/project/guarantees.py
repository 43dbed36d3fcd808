"""Read the page of guarantees: its promises, the tests that prove each, and their tiers.

``python -m tests.project.guarantees`` writes the tiers into the page, from the tests.

A promise is an item ``- **A1** *(quick)* ..``. Its proof is a row ``| A1 | `test_..` | quick |`` in
the folded table of its group. A point that is not promised is an item ``- **N1. ..``.
"""

import ast
import re
from functools import cache

from proof.cases import lines
from tests import tiers

PAGE = tiers.TESTS.parent / "docs" / "explanation" / "guarantees.md"
_GROUP = re.compile(r"^## (?P<letter>[A-Z])\. ", re.MULTILINE)
_PROMISE = re.compile(r"^- \*\*(?P<number>[A-Z]\d+)\*\* \*\((?P<tiers>[a-z, ]*)\)\* ", re.MULTILINE)
_PROOF = re.compile(
    r"^\| (?P<number>[A-Z]\d+) \| (?P<tests>.+) \| (?P<tiers>[a-z, ]*) \|$", re.MULTILINE
)
_EXCEPTION = re.compile(r"^- \*\*(?P<number>N\d+)\. ", re.MULTILINE)


def groups(page: str) -> dict[str, str]:
    """Return the text of each group of promises, by its letter."""
    found = list(_GROUP.finditer(page))
    ends = [*(each.start() for each in found[1:]), page.index("\n## Not promised")]
    return {each["letter"]: page[each.start() : end] for each, end in zip(found, ends, strict=True)}


def promises(text: str) -> list[re.Match[str]]:
    """Return the promises of a text, in order."""
    return list(_PROMISE.finditer(text))


def proofs(text: str) -> list[re.Match[str]]:
    """Return the rows of proofs of a text, in order."""
    return list(_PROOF.finditer(text))


def exceptions(text: str) -> list[re.Match[str]]:
    """Return the points of a text that are not promised, in order."""
    return list(_EXCEPTION.finditer(text))


def names(proof: re.Match[str]) -> list[str]:
    """Return the tests, files of tests, or cases ("topic: name") that a row of proofs names."""
    return re.findall(r"`(test_[\w.]+|[a-z_]+: [^`]+)`", proof["tests"])


def column(proof: re.Match[str]) -> str:
    """Return the tiers in which the tests of a row run for the first time: "quick, full"."""
    found = {tests()[name] for name in names(proof) if name in tests()}
    return ", ".join(tier for tier in tiers.TIERS if tier in found)


@cache
def tests() -> dict[str, str]:
    """Return the earliest tier of each test function, file of tests and case, by its name."""
    found = dict.fromkeys(lines.load(), tiers.tier_of(tiers.TESTS / "conformance/test_cases.py"))
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
    """Return the page with the tiers of all promises and proofs taken from the tests."""
    found = {proof["number"]: column(proof) for proof in proofs(page)}

    def replaced(match: re.Match[str]) -> str:
        start, end = (place - match.start() for place in match.span("tiers"))
        now = found.get(match["number"], "")
        return match[0][:start] + now + match[0][end:]

    return _PROOF.sub(replaced, _PROMISE.sub(replaced, page))


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
