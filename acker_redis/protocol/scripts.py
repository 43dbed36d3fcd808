"""The Lua scripts: find them, know their SHA1.

They stand in ``acker_redis/lua`` of an installed package and in ``lua`` of a checkout;
they are the same files.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NAMES = (
    "create",
    "configure",
    "apply",
    "apply_blocks",
    "rotate",
    "expire",
    "expire_blocks",
    "take",
    "status",
    "show",
    "list",
    "drop",
)


@dataclass(frozen=True, slots=True)
class Script:
    """A script's name, text, and SHA1 in hex as EVALSHA wants it."""

    name: str
    source: bytes
    sha: str


def directory() -> Path:
    """Directory that holds the Lua files; FileNotFoundError if the installation has none."""
    package = Path(__file__).resolve().parent.parent
    for place in (package / "lua", package.parent / "lua"):
        if (place / "apply.lua").is_file():
            return place
    raise FileNotFoundError("the Lua scripts of acker-redis are not installed; reinstall it")


@cache
def load(name: str) -> Script:
    """Script of this name, read once per process."""
    source = (directory() / f"{name}.lua").read_bytes()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())
