"""The environments of the peers: a venv and a node_modules, beside their pinned versions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
VENV, NODE = HERE / ".venv", HERE / "bullmq"


@cache
def command(needs: str) -> tuple[tuple[str, ...], str]:
    """Return what runs a program that needs this, or () and the reason why it cannot run."""
    if not needs:
        return (sys.executable,), ""
    problem = venv() if needs == "venv" else node()
    if problem:
        return (), problem
    return ((str(VENV / "bin" / "python"),) if needs == "venv" else ("node",)), ""


def venv() -> str:
    """Make the venv unless it is there; return the problem, or ''."""
    stamp, pins = VENV / "installed", HERE / "constraints.txt"
    if stamp.exists() and stamp.read_text() == pins.read_text():
        return ""
    python = str(VENV / "bin" / "python")
    problem = run([sys.executable, "-m", "venv", str(VENV)]) or run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
         "-c", str(pins), "-r", str(HERE / "requirements.txt")]
    )  # fmt: skip
    if not problem:
        stamp.write_text(pins.read_text())
    return problem


def node() -> str:
    """Install the packages of npm unless they are there; return the problem, or ''."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not on PATH"
    stamp, lock = NODE / "node_modules" / "installed", NODE / "package-lock.json"
    if stamp.exists() and stamp.read_text() == lock.read_text():
        return ""
    problem = run(["npm", "install", "--ignore-scripts", "--no-save", "--loglevel=error"], NODE)
    if not problem:
        stamp.write_text(lock.read_text())
    return problem


def run(arguments: Sequence[str], folder: Path = HERE) -> str:
    """Run a command; return '' or the last line that it wrote to stderr."""
    try:
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return f"{arguments[0]} did not end within 300 s"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"{arguments[0]} failed"])[-1]
