"""The mutants of a Lua file: one token changed, or one statement dropped."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from acker_redis.protocol import scripts

TOKENS = [
    (r"==", "~="),
    (r"~=", "=="),
    (r"<=", "<"),
    (r">=", ">"),
    (r"(?<![<>=~])<(?![<=])", "<="),
    (r"(?<![<>=~-])>(?![>=])", ">="),
    (r"\band\b", "or"),
    (r"\bor\b", "and"),
    (r"\bnot ", ""),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" \* ", " / "),
    (r" % ", " * "),
    (r"(?<![\w.\\'-])(\d+)(?![\w.'])", lambda m: str(int(m[1]) + 1)),
    (r"\bnow\b", "0"),
]
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'")
_STATEMENT = re.compile(
    r"^\s*(?:call|redis\.pcall|[a-z_]+)\(.*\)$"
    r"|^\s*(?!local |return|if |for |while |elseif |else)[\w\[\]., *+-]+ = .*[^,({]$"
)


@dataclass(frozen=True)
class Mutant:
    """One change of one line (from 1) of a file, in all scripts that include the file."""

    file: str
    """``apply`` or ``parts/fence``, without ``.lua``."""
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}.lua:{self.line}\n  - {self.before.strip()}\n  + {self.after.strip()}"


def files() -> dict[str, list[str]]:
    """Return all Lua files, the parts last, with the names of the scripts that include each."""
    users: dict[str, list[str]] = {name: [name] for name in scripts.NAMES}
    for name in scripts.NAMES:
        for place in dict.fromkeys(file for file, _ in scripts.load(name).places):
            file = place.removesuffix(".lua")
            if file != name:
                users.setdefault(file, []).append(name)
    return users


def mutants(file: str) -> Iterator[Mutant]:
    """Yield all mutants of a file, outside of comments and of messages for people."""
    lines = (scripts.directory() / f"{file}.lua").read_text().split("\n")
    first = lines.index("--]]") + 1 if "--]]" in lines else 0
    for number, line in enumerate(lines[first:], first + 1):
        for after in _changes(line):
            yield Mutant(file, number, line, after)


def _changes(source: str) -> list[str]:
    code = source.split(" --")[0]
    if (
        not code.strip()
        or code.strip().startswith("--")
        or ("refuse('" in code and "return" in code)
    ):
        # The line of the condition has mutants of the refusal itself.
        return []
    strings = [match.span() for match in _STRING.finditer(code)]
    found = []
    for pattern, put in TOKENS:
        for match in re.finditer(pattern, code):
            # An index that is off by one fails every test, so it shows nothing about the suite.
            index = code[match.start() - 1 : match.start()] == "[" and code[match.end()] == "]"
            if index or any(start <= match.start() < end for start, end in strings):
                continue
            new = put(match) if callable(put) else put
            found.append(source[: match.start()] + new + source[match.end() :])
    if _STATEMENT.match(code) and code.count("(") == code.count(")"):
        found.append(re.match(r"\s*", source)[0] + "-- dropped")  # type: ignore[index]
    return found
