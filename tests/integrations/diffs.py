"""The diff between an example before and after it is tracked, as a page of the docs shows it."""

import difflib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def check(example: str, page: str, number: int = 0, removed: int = 3) -> None:
    """Check that ``after.py`` is ``before.py`` with a diff of the page applied, and imports.

    ``number`` counts the diffs of the page.

    At most three lines are added and at most ``removed`` removed, besides imports.
    """
    folder = ROOT / "examples" / example
    before, after = (
        (folder / f"{name}.py").read_text().splitlines() for name in ("before", "after")
    )
    diffs = re.findall(r"```diff\n(.*?)\n```", (ROOT / "docs/how-to" / page).read_text(), re.DOTALL)
    changed = [
        line
        for line in difflib.unified_diff(before, after, n=0, lineterm="")
        if line[:1] in "+-" and not line.startswith(("+++", "---")) and not _is_import(line)
    ]
    assert diffs[number].splitlines() == changed
    for sign, most in (("+", 3), ("-", removed)):
        assert sum(line[0] == sign for line in changed) <= most


def _is_import(line: str) -> bool:
    return bool(re.match(r"[-+](import |from |$)", line))
