"""The README's example, run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()


def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    match = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
    assert match
    program, output = match.groups()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == output, done.stderr


def test_the_commands_of_the_readme_exist() -> None:
    makefile = (Path(__file__).resolve().parent.parent / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
