"""The examples of the docs, run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/explanation/blocks.md", "docs/how-to/sources-and-bolts.md"])
def test_the_example_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text()
    match = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert match
    program, output = match.groups()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.stdout == output, done.stderr


def test_the_commands_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
