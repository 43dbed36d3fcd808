"""The Lua scripts: find the files, assemble the scripts from parts, and compute their SHA1.

A script is in ``lua/<name>.lua``. A line ``-- part: <part>`` in it includes the text of
``lua/parts/<part>.lua``, which several scripts share. Redis receives the assembled text.

An installed package has the files in ``acker_redis/lua``, a checkout in ``lua``; they are the same.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from acker_redis.errors import ConfigError

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
    "alive",
    "report",
    "list",
    "drop",
)

_PART = re.compile(rb"\s*--\s*part:\s*(\w+)\s*")
_LIKE_PART = re.compile(rb"--.*\bparts?\s*:")
"""A comment that looks like a misspelled include of a part."""
_POSITION = re.compile(r"(?<![{\w])user_(?:script|function):(\d+)")
"""A line of a script, or of a library of functions, as Redis names it in an error message."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script: its name, assembled text, and SHA1 in hex for EVALSHA.

    ``places`` holds the file and the line number (from 1) of each line of the text. The file is ""
    for a generated line.
    """

    name: str
    source: bytes
    sha: str
    places: tuple[tuple[str, int], ...] = ()

    def locate(self, words: str) -> str:
        """Return an error message with positions in the files instead of the assembled text.

        ``user_script:12:`` becomes ``parts/fence.lua:3:``. Other text is not changed.
        """
        return _POSITION.sub(lambda found: self._place(int(found[1])) or found[0], words)

    def _place(self, line: int) -> str:
        file, number = self.places[line - 1] if 0 < line <= len(self.places) else ("", 0)
        return f"{file}:{number}" if file else ""


def directory() -> Path:
    """Return the directory of the Lua files; raise FileNotFoundError if they are not installed."""
    package = Path(__file__).resolve().parent.parent
    for place in (package / "lua", package.parent / "lua"):
        if (place / "apply.lua").is_file():
            return place
    raise FileNotFoundError("the Lua scripts of acker-redis are not installed; reinstall it")


@cache
def load(name: str) -> Script:
    """Return the script of this name, read once per process."""
    return assemble(name, directory())


def assemble(name: str, place: Path) -> Script:
    """Return the script, assembled from the files in ``place``.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A ``-- part:`` line is malformed.

    """
    lines: list[bytes] = []
    places: list[tuple[str, int]] = []
    for number, line in enumerate(_lines(place / f"{name}.lua"), start=1):
        part = _PART.fullmatch(line)
        if not part and _LIKE_PART.search(line):
            raise ValueError(f"{name}.lua:{number} names no part; write `-- part: <part>`")
        file = f"parts/{part[1].decode()}.lua" if part else ""
        # The assembled text names the part in a form that is not assembled a second time.
        lines.append(f"-- {file}\n".encode() if part else line)
        places.append((f"{name}.lua", number))
        if part:
            text = _lines(place / file)
            lines += text
            places += [(file, number) for number in range(1, len(text) + 1)]
    source = b"".join(lines)
    sha = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    return Script(name, source, sha, tuple(places))


def _lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines(keepends=True)


def write(folder: Path, names: tuple[str, ...] = NAMES) -> list[Path]:
    """Write assembled scripts to ``folder`` as ``<name>.lua``, and return the files.

    Clients in other languages use these files. The folder is created if it is missing.

    Raises:
        OSError: The system cannot write a file.
        ConfigError: The folder holds the scripts and their parts, which would be overwritten.

    """
    if folder.resolve() == directory() or (folder / "parts").exists():
        raise ConfigError(f"{folder} holds scripts with their parts; write to another folder")
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.lua" for name in names]
    for file in files:
        file.write_bytes(load(file.stem).source)
    return files
