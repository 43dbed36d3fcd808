"""The reference pages have what the code has, and nothing else."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from acker_api import problems
from acker_redis import errors
from tests.docs import cli_page, metrics_page, runbook_script, scale_page
from tests.docs.blocks import ROOT

REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted(REFERENCE.glob("*.md"))


def _page(name: str) -> str:
    return (REFERENCE / name).read_text()


def _section(page: str, heading: str) -> str:
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    assert cli_page.PAGE.read_text() == cli_page.page(), "run: python -m tests.docs.cli_page"


def test_the_table_of_the_page_about_scale_is_up_to_date() -> None:
    assert scale_page.PAGE.read_text() == scale_page.page(), "run: python -m tests.docs.scale_page"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_its_readers_and_the_glossary(page: Path) -> None:
    begin = page.read_text()[:800]
    assert re.search(r"\bfor\b", begin)
    assert "Terms: [glossary](../glossary.md)" in begin


def test_the_page_of_the_metrics_is_up_to_date() -> None:
    said = "run: python -m tests.docs.metrics_page"
    assert metrics_page.PAGE.read_text() == metrics_page.page(), said


def test_the_runbook_of_the_dashboard_is_up_to_date() -> None:
    said = "run: python -m tests.docs.runbook_script"
    assert runbook_script.SCRIPT.read_text() == runbook_script.script(), said
    for finding in ("rotator", "high-water", "outcomes", "nacks", "acks", "counters", "oldest"):
        assert f'id: "{finding}"' in runbook_script.script()


def _names(section: str) -> list[str]:
    return re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)


@pytest.mark.parametrize("wing", ["", "aio", "spark", "embedded"])
def test_every_public_name_is_listed(wing: str) -> None:
    package = f"acker_redis.{wing}".rstrip(".")
    public = importlib.import_module(package).__all__
    listed = re.findall(rf"^::: {re.escape(package)}\.(\w+)$", _page("python.md"), re.MULTILINE)
    # The exceptions are in errors.md.
    assert sorted(listed) == sorted(set(public) - set(vars(errors)))


def test_every_exception_is_listed() -> None:
    section = _section(_page("errors.md"), "Exceptions")
    found = [name for name, each in vars(errors).items() if isinstance(each, type)]
    assert _names(section) == found
    drawn = re.findall(r"^[│├└─ ]*(\w+Error)", section.partition("```text\n")[2], re.MULTILINE)
    assert drawn[: len(found)] == found
    ours = re.findall(r"(?:^|─ )(\w+Error)", errors.__doc__ or "", re.MULTILINE)
    assert [each for each in ours if each in found] == found[1:]


def test_every_problem_type_is_listed_with_its_status() -> None:
    section = _section(_page("errors.md"), "Problem types of the REST API")
    rows = re.findall(r"^\| `([a-z-]+)` \| ([0-9, ]+) \|", section, re.MULTILINE)
    assert {name: set(map(int, statuses.split(", "))) for name, statuses in rows} == _problems()
    assert rows == sorted(rows)


def _problems() -> dict[str, set[int]]:
    """Return the statuses of each problem type that the service answers with."""
    # The router of the framework raises these two.
    found = {"not-found": {404}, "method-not-allowed": {405}}
    for _, status, code, _ in problems._KINDS:
        found.setdefault(code, set()).add(status)
    for file in (ROOT / "api" / "acker_api").rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Problem":
                status, code, *_ = call.args
                if isinstance(status, ast.Constant) and isinstance(code, ast.Constant):
                    found.setdefault(code.value, set()).add(status.value)
    return found
