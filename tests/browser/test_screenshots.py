"""``make screenshots`` writes all pictures."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.screenshots import SCENES, SIZES

ROOT = Path(__file__).parents[2]
MOST_BYTES = 300_000


@pytest.mark.nightly
def test_pictures_of_all_scenes_are_written(tmp_path: Path) -> None:
    # A second Playwright cannot run in this process, in which other tests have one.
    command = [sys.executable, "-m", "tests.browser.screenshots", str(tmp_path), "--seconds", "1"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=900)
    names = {f"dashboard-{scene}-{size[0]}.png" for scene in SCENES for size in SIZES}
    assert {path.name for path in tmp_path.iterdir()} == names
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG")
        assert 5_000 < len(data) < MOST_BYTES, path.name
