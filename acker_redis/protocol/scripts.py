"""The Lua scripts: find them, put them together from their parts, know their SHA1.

A script stands in ``lua/<name>.lua``. A line ``-- part: <part>`` in it stands for the text of
``lua/parts/<part>.lua``, which several scripts share. What Redis gets is the whole text.

The files stand in ``acker_redis/lua`` of an installed package and in ``lua`` of a checkout; they
are the same.
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
    "list",
    "drop",
)

_PART = re.compile(rb"\s*--\s*part:\s*(\w+)\s*")
_LIKE_PART = re.compile(rb"--.*\bparts?\s*:")
"""What would be a comment, and should have been a part."""
_POSITION = re.compile(r"(?<![{\w])user_(?:script|function):(\d+)")
"""What Redis calls a line of a script, or of a library of functions, in the words of an error."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script's name, whole text, and SHA1 in hex as EVALSHA wants it.

    ``places`` holds the file and the line, from 1, of each line of the text; the file is "" for a
    line that stands in none.
    """

    name: str
    source: bytes
    sha: str
    places: tuple[tuple[str, int], ...] = ()

    def locate(self, words: str) -> str:
        """Return the words of an error with positions in the files, not in the whole text.

        ``user_script:12:`` becomes ``parts/fence.lua:3:``. Other words stay as they are.
        """
        return _POSITION.sub(lambda found: self._place(int(found[1])) or found[0], words)

    def _place(self, line: int) -> str:
        file, number = self.places[line - 1] if 0 < line <= len(self.places) else ("", 0)
        return f"{file}:{number}" if file else ""


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
    return assemble(name, directory())


def assemble(name: str, place: Path) -> Script:
    """Put a script together from the files in ``place``.

    FileNotFoundError if one is missing, ValueError for a line that should have named a part.
    """
    lines: list[bytes] = []
    places: list[tuple[str, int]] = []
    for number, line in enumerate(_lines(place / f"{name}.lua"), start=1):
        part = _PART.fullmatch(line)
        if not part and _LIKE_PART.search(line):
            raise ValueError(f"{name}.lua:{number} names no part; a line is `-- part: <part>`")
        file = f"parts/{part[1].decode()}.lua" if part else ""
        # The whole text names the part, but not so that it could be put together once more.
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
    """Write whole scripts to ``folder``, as ``<name>.lua``, for clients in other languages.

    The folder is made if it is missing. Returns the files. OSError as the system raises it;
    ConfigError for a folder that holds the scripts and their parts, which would be overwritten.
    """
    if folder.resolve() == directory() or (folder / "parts").exists():
        raise ConfigError(f"{folder} holds scripts with their parts; write to another folder")
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.lua" for name in names]
    for file in files:
        file.write_bytes(load(file.stem).source)
    return files
