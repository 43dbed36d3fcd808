"""The code blocks of README.md and docs/ do what the pages say."""

import ast
import contextlib
import json
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import binary_of, missing
from tests.docs.blocks import ROOT, Block, blocks, pages
from tests.docs.running import PageRun
from tests.open_redis import OpenRedis
from tests.waiting import LIMIT


def _needs_java(page: str) -> bool:
    return "spark" in Path(page).name


def _bash(code: str) -> None:
    done = subprocess.run(["bash", "-n", "-c", code], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr


def _yaml(code: str) -> None:
    # `make test` installs no parser of YAML; `make test-all` does.
    with contextlib.suppress(ModuleNotFoundError):
        import yaml

        yaml.safe_load(code)


PARSERS: dict[str, Callable[[str], object]] = {
    "python": ast.parse,
    "sh": _bash,
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": _yaml,
}
DATA = ("json", "toml", "yaml")


@pytest.mark.parametrize("page", pages())
def test_blocks_of_a_page_parse(page: str) -> None:
    for block in blocks(page):
        parse = PARSERS.get(block.language)
        if parse and not (block.is_fragment and block.language in DATA):
            try:
                parse(block.code)
            except Exception as error:
                pytest.fail(f"{block.where}: {error}")


def _tier(page: str) -> list[pytest.MarkDecorator]:
    return [] if page == "README.md" else [pytest.mark.full]


RUNNING = [
    pytest.param(page, marks=_tier(page))
    for page in pages()
    if any(block.runs for block in blocks(page))
]


@pytest.mark.parametrize("page", RUNNING)
def test_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    if _needs_java(page):
        from acker_flights import session

        if advice := session.missing_java():
            missing(advice)
    with OpenRedis(binary=binary_of("default")) as server, PageRun(tmp_path, server.url) as run:
        run.run(blocks(page))


def test_a_block_has_a_known_title() -> None:
    for page in pages():
        for block in blocks(page):
            if block.language in PARSERS and block.title:
                assert block.is_fragment or block.file, f"{block.where}: {block.title}"


@pytest.mark.parametrize("page", [*pages(), "lua/README.md", "clients/README.md"])
def test_a_table_ends_before_a_heading(page: str) -> None:
    """Without an empty line between them, the site shows the heading as a row of the table."""
    assert not re.search(r"^\|.*\|\n#+ .*", (ROOT / page).read_text(), re.MULTILINE)


def test_pages_name_targets_of_make_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+)(?: [a-z-]+)*:", (ROOT / "Makefile").read_text(), re.M))
    for page in pages():
        for block in blocks(page):
            named = (
                re.findall(r"^make ([a-z-]+)", block.code, re.M) if block.language == "sh" else ()
            )
            assert set(named) <= targets, block.where


def _block(code: str, language: str = "python", **fields: object) -> Block:
    given = {"page": "page.md", "line": 3, "title": "", "follows": False, **fields}
    return Block(language=language, code=code, **given)  # type: ignore[arg-type]


def test_blocks_share_a_process_and_a_folder(tmp_path: Path) -> None:
    with PageRun(tmp_path, "redis://nowhere") as run:
        run.run(
            [
                _block("from shop import price\ntwice = 2 * price\n", title="fragment"),
                _block("price = 21\n", title="shop.py"),
                _block("from shop import price\n"),
                _block("export NAME=shop; sleep 60 &\nmake nothing\n", "sh"),
                _block("print(2 * price)\n"),
                _block("42\n", "text", follows=True),
                _block('echo "$NAME $ACKER_REDIS_URL"; cat shop.py >&2\n', "sh"),
                _block("shop redis://nowhere\nprice = 21\n", "text", follows=True),
                _block("42 or so\n", "text", follows=True, title="for example"),
            ]
        )


@pytest.mark.parametrize("language", ["sh", "python"])
def test_a_block_that_fails_is_named(language: str, tmp_path: Path) -> None:
    code = "false\ntrue\n" if language == "sh" else "1 / 0\n"
    with (
        PageRun(tmp_path, "") as run,
        pytest.raises(AssertionError, match=r"page\.md:3 failed"),
    ):
        run.run([_block(code, language)])


def test_another_output_is_a_failure(tmp_path: Path) -> None:
    with PageRun(tmp_path, "") as run, pytest.raises(AssertionError, match="the output of"):
        run.run([_block("print(1)\n"), _block("2\n", "text", follows=True)])
