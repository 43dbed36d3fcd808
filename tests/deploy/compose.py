"""docker-compose.yml as data, and each of its containers as a plain process.

Paths of a container become paths of a temporary directory. Its hosts and ports become those of
127.0.0.1. The command, the environment, the files and the health check are those of the file.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.waiting import LIMIT, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = "acker-redis"
"""Prefix of the names of our images, and their entry point."""


def load(**environment: str) -> dict[str, Any]:
    """Return the file with its variables substituted, as compose does."""
    text = (ROOT / "docker-compose.yml").read_text()

    def fill(match: re.Match[str]) -> str:
        name, kind, words = match.groups()
        if name in environment:
            return environment[name]
        assert kind == ":-", f"{name} is missing: {words}"
        return words

    # $$ is an escaped $, for the shell in the container.
    filled = re.sub(r"(?<!\$)\$\{(\w+)(:-|:\?)([^}]*)\}", fill, text)
    assert not re.search(r"(?<!\$)\$(?!\$)", filled)
    data: dict[str, Any] = yaml.safe_load(filled.replace("$$", "$"))
    return data


def draw_secrets(folder: Path) -> None:
    """Run deploy/secrets.sh into a folder."""
    done = subprocess.run(
        ["sh", ROOT / "deploy" / "secrets.sh", folder], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def free_ports(count: int) -> list[int]:
    """Return free ports of 127.0.0.1 whose cluster bus ports are also free."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            one, bus = (stack.enter_context(socket.socket()) for _ in range(2))
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                bus.bind(("127.0.0.1", port + 10_000))
                ports.append(port)
    return ports


@dataclass
class Container:
    """One container of a service."""

    service: Mapping[str, Any]
    folder: Path
    """Folder for its volumes, tmpfs and mounted files."""
    secrets: Path
    programs: Path
    """Folder of redis-server and redis-cli."""
    port: int = 0
    """Port that replaces the one of the service."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """``host:port`` of other containers, and their replacements."""
    process: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        for place in [*self.tmpfs, *(t for _, t, named in self.volumes if named)]:
            (self.folder / place.strip("/")).mkdir(parents=True, exist_ok=True)
        for source, target, named in self.volumes:
            if named:
                continue
            copy = self.folder / target.strip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, copy)
            else:
                copy.write_text((ROOT / source).read_text())
        for path in (path for path in self.folder.rglob("*.conf") if path.is_file()):
            settings = self.translate(path.read_text())
            path.write_text(settings.replace("port 6379", f"port {self.port}"))

    @property
    def tmpfs(self) -> list[str]:
        """Return the directories that are empty at the start."""
        return [each.split(":")[0] for each in self.service.get("tmpfs", [])]

    @property
    def volumes(self) -> list[tuple[str, str, bool]]:
        """Return source, target, and whether it is a named volume."""
        found = []
        for each in self.service.get("volumes", []):
            if isinstance(each, dict):
                found.append((each["source"], each["target"], each["type"] == "volume"))
            else:
                source, target, *_ = each.split(":")
                found.append((source, target, not source.startswith(".")))
        return found

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the service, plus PATH and HOME."""
        given = {k: self.translate(str(v)) for k, v in self.service.get("environment", {}).items()}
        places = [self.programs, Path(sys.executable).parent, os.environ["PATH"]]
        return {"PATH": os.pathsep.join(map(str, places)), "HOME": str(self.folder), **given}

    def translate(self, text: str) -> str:
        """Replace hosts, ports and paths of the file by those of this machine."""
        for host, here in self.hosts.items():
            text = text.replace(host, here)
        text = text.replace("0.0.0.0", "127.0.0.1")
        here = {place: str(self.folder) + place for place in self.tmpfs}
        here |= {target: str(self.folder) + target for _, target, _ in self.volumes}
        here["/run/secrets"] = str(self.secrets)
        # One pass, so that replaced text is not replaced again.
        places = "|".join(map(re.escape, sorted(here, key=len, reverse=True)))
        return re.sub(rf"(?<![\w./-])({places})(?![\w-])", lambda found: here[found[1]], text)

    def arguments(self, *command: str) -> list[str]:
        """Return the command line of the container, with its command or the given one."""
        words = [self.translate(word) for word in command or self.service["command"]]
        if self.service["image"].startswith(OURS):
            words = [OURS, *words]
        return [str(self.port) if word == "8000" else word for word in words]

    def start(self) -> None:
        """Start it in the background; its output goes to ``log``."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.arguments(),
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run it to its end, with the given command or its own."""
        return subprocess.run(
            self.arguments(*command),
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )

    def healthy(self) -> bool:
        """Return the result of the health check."""
        assert self.process
        assert self.process.poll() is None, self.log.read_text()
        how, *words = self.service["healthcheck"]["test"]
        words = [self.translate(word).replace(":8000", f":{self.port}") for word in words]
        if how == "CMD-SHELL":
            words = ["sh", "-c", words[0].replace("redis-cli ", f"redis-cli -p {self.port} ")]
        done = subprocess.run(words, env=self.environment, cwd=self.folder, capture_output=True)
        return done.returncode == 0

    def wait_until_healthy(self) -> None:
        """Wait until the health check succeeds."""
        wait_until(self.healthy, f"healthy: {self.arguments()}", pause=0.1)

    def end(self) -> None:
        """Send SIGTERM, as a container engine does."""
        assert self.process
        self.process.terminate()

    def wait(self) -> int:
        """Wait for its end and return its exit code; an engine kills it after stop_grace_period."""
        assert self.process
        return self.process.wait(LIMIT)

    def written_elsewhere(self) -> list[Path]:
        """Return files that it wrote where the root filesystem would be read-only."""
        places = [*self.tmpfs, *(target for _, target, _ in self.volumes)]
        allowed = [self.log, *(self.folder / place.strip("/") for place in places)]
        return [
            path
            for path in self.folder.rglob("*")
            if path.is_file() and not any(path.is_relative_to(place) for place in allowed)
        ]

    @property
    def log(self) -> Path:
        """Return the path of its log."""
        return self.folder / "log"


class Project:
    """Containers of the file in a separate directory; close() ends all of them."""

    def __init__(self, folder: Path, programs: Path, **environment: str) -> None:
        self.secrets = folder / "secrets"
        # Only these programs: their directory may contain another Python.
        self._programs = folder / "bin"
        self._programs.mkdir()
        for name in ("redis-server", "redis-cli"):
            (self._programs / name).symlink_to(programs / name)
        draw_secrets(self.secrets)
        self.file = load(ACKER_REDIS_SECRETS=str(self.secrets), **environment)
        self._folder = folder
        self._containers: list[Container] = []

    def container(
        self, name: str, port: int = 0, hosts: Mapping[str, str] | None = None
    ) -> Container:
        """Create a container of a service, without starting it."""
        folder = self._folder / f"{name}-{len(self._containers)}"
        folder.mkdir()
        service = self.file["services"][name]
        made = Container(service, folder, self.secrets, self._programs, port, hosts or {})
        self._containers.append(made)
        return made

    def secret(self, name: str) -> str:
        """Return the value of a secret."""
        return (self.secrets / name).read_text()

    def close(self) -> None:
        """Kill all containers that still run."""
        for container in self._containers:
            if container.process and container.process.poll() is None:
                container.process.kill()
                container.process.wait()


@contextlib.contextmanager
def project(folder: Path, programs: Path, **environment: str) -> Iterator[Project]:
    """Yield a project in a directory; close it at the end of the block."""
    made = Project(folder, programs, **environment)
    try:
        yield made
    finally:
        made.close()
