"""The demo as a user runs it: a separate process, whose output is read line by line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DASHBOARD = re.compile(r"Dashboard: (http://127\.0\.0\.1:\d+)/#/ns/flights\n")
COMMAND = [sys.executable, "-m", "acker_redis", "demo"]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Return the only folder for temporary files, which must be empty at the end."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def start(scratch: Path, *args: str, **environment: str) -> "subprocess.Popen[str]":
    env = {**os.environ, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1", **environment}
    return subprocess.Popen(
        [*COMMAND, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        start_new_session=True,
    )


def until(demo: "subprocess.Popen[str]", words: str) -> str:
    """Return the output up to the line that matches the pattern ``words``."""
    assert demo.stdout
    said = ""
    while not re.search(words, said):
        line = demo.stdout.readline()
        assert line, said
        said += line
    return said
