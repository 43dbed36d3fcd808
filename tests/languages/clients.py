"""The clients: their requirements, how to build them, and how to start their drivers."""

import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from clients import sync_lua

HERE = Path(__file__).resolve().parents[2] / "clients"
BUILD_LIMIT = 600.0
"""Seconds that a build may take."""


@dataclass(frozen=True)
class Client:
    """One ``client.json``; ``clients/DRIVER.md`` explains its fields."""

    name: str
    language: str
    driver: tuple[str, ...]
    tools: tuple[str, ...] = ()
    check: tuple[tuple[str, ...], ...] = ()
    build: tuple[tuple[str, ...], ...] = ()
    inputs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ("",)
    resends: tuple[str, ...] = ()
    can: tuple[str, ...] = ()
    bench: tuple[str, ...] = ()
    bench_build: tuple[tuple[str, ...], ...] = ()
    home: Path = HERE

    @property
    def folder(self) -> Path:
        """Return the folder in which its commands run."""
        return self.home / self.name

    @property
    def output(self) -> Path:
        """Return the folder of its build."""
        return self.folder / ".build"

    def command(self, words: tuple[str, ...]) -> list[str]:
        """Return a command line with ``{build}`` replaced by the folder of the build."""
        return [word.replace("{build}", str(self.output)) for word in words]

    def lacks(self) -> str:
        """Return the first missing requirement in words; '' if nothing is missing."""
        return _lacks(self)

    def prepare(self) -> None:
        """Build the client unless the build is current; several processes may call it at once."""
        self.output.mkdir(exist_ok=True)
        with _locked(self.output / "lock"):
            if self.home == HERE:
                sync_lua.sync([self.name])
            built, now = self.output / "built", self._state()
            if built.exists() and built.read_text() == now:
                return
            built.unlink(missing_ok=True)
            for words in self.build:
                self._build(words)
            built.write_text(now)

    def fast(self) -> "Client":
        """Return the client for benchmarks: built by ``bench_build`` too, with the bench driver."""
        self.prepare()
        for words in self.bench_build:
            self._build(words)
        return replace(self, driver=self.bench or self.driver)

    def _build(self, words: tuple[str, ...]) -> None:
        done = self.run(words)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)} of {self.name} failed: {done.stdout}")

    def run(self, words: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
        """Run a command of the client in its folder."""
        return subprocess.run(
            self.command(words),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_LIMIT,
            check=False,
        )

    def _state(self) -> str:
        digest = hashlib.sha256(json.dumps(self.build).encode())
        for path in sorted({path for glob in self.inputs for path in self.folder.glob(glob)}):
            digest.update(f"{path.relative_to(self.folder)}\0".encode() + path.read_bytes())
        return digest.hexdigest()


@cache
def _lacks(client: Client) -> str:
    for tool in client.tools:
        if not shutil.which(tool):
            return tool
    for words in client.check:
        if client.run(words).returncode:
            return f"the requirement that `{' '.join(words)}` checks"
    return ""


def read(path: Path) -> Client:
    """Return the client of a ``client.json``."""
    fields = json.loads(path.read_bytes())
    lists = {
        name: tuple(tuple(item) if isinstance(item, list) else item for item in value)
        for name, value in fields.items()
        if isinstance(value, list)
    }
    return Client(**{**fields, **lists}, home=path.parent.parent)


CLIENTS = {path.parent.name: read(path) for path in sorted(HERE.glob("*/client.json"))}
"""All clients by name."""


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
