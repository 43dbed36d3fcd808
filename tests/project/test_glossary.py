"""The glossary names files that exist, and names that occur in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "glossary.md"
HEADER = "| field term | our term | Storm's term | where in the code |"


def rows() -> list[list[str]]:
    """Return the cells of each row of the tables."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [each for line, each in zip(lines, cells, strict=True) if not _is_head(line)]


def _is_head(line: str) -> bool:
    return line == HEADER or set(line) <= set("|-")


def named(cell: str) -> list[tuple[str, str]]:
    """Return the files of a cell, each with a name that it must contain.

    >>> named("`lua/a.lua` (`one`, `two`), `b.py` (`three`)")
    [('lua/a.lua', 'one'), ('lua/a.lua', 'two'), ('b.py', 'three')]
    """
    found, file = [], ""
    for name in re.findall(r"`([^`]+)`", cell):
        if re.search(r"\.(py|lua|js)$", name):
            file = name
        else:
            found.append((file, name))
    return found


ROWS = rows()


def test_every_row_has_four_cells() -> None:
    assert len(ROWS) > 50
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []


def test_no_term_is_explained_twice() -> None:
    terms = [row[0] for row in ROWS]
    assert sorted(set(terms)) == sorted(terms)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_names_in_the_code_exist(row: list[str]) -> None:
    places = named(row[3])
    assert places
    for file, name in places:
        assert (ROOT / file).is_file(), file
        text = (ROOT / file).read_text()
        assert re.search(rf"\b{re.escape(name)}\b", text), f"{file} has no {name}"
