"""Mutation tests of the scripts: check that the suite detects each small change.

    python -m tests.mutants apply rotate expire take [--jobs 2] [--only 17,18] [--list]

Each mutant changes one token or drops one statement of a script, outside of comments and
messages. ``SUITE`` or ``OF_BLOCKS`` must detect it, on one real server. A mutant that does not
compile is not counted. Survivors are printed with their line; ``docs/explanation/mutants.md`` says
why each of the remaining ones is equivalent. Not part of any tier: it takes a quarter of an hour.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from acker_redis.protocol import scripts

ROOT = Path(__file__).resolve().parents[2]
SUITE = (
    "tests/conformance",
    "tests/servers",
    "tests/properties/test_reference.py",
    "tests/properties/test_large_batches.py",
)
OF_BLOCKS = (
    "tests/servers/test_blocks.py",
    "tests/servers/test_blocks_bitmaps.py",
    "tests/servers/test_blocks_limits.py",
    "tests/sync/test_show.py",
    "tests/conformance",
    "tests/servers/test_errors_change_nothing.py",
    "tests/properties/test_reference.py",
    "tests/properties/test_large_blocks.py",
)
"""Tests that detect mutants of blocks; those that fail soonest come first."""
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
STRING = re.compile(r"'(?:[^'\\]|\\.)*'")
STATEMENT = re.compile(
    r"^\s*(?:call|redis\.pcall|put|drop|verdict)\(.*\)$"
    r"|^\s*(?!local |return|if |for |while |elseif |else)[\w\[\]., *+-]+ = .*[^,({]$"
)


@dataclass(frozen=True)
class Mutant:
    """One change of one line (from 1) of a script."""

    number: int
    script: str
    line: int
    """In the whole text of the script, parts included."""
    before: str
    after: str


def mutants(script: str, first: int) -> list[Mutant]:
    """Return all mutants of a script."""
    text = scripts.load(script).source.decode()
    header, code = text.split("--]]\n", 1)
    found: list[Mutant] = []
    for line, source in enumerate(code.split("\n"), header.count("\n") + 2):
        for after in _changes(source):
            found.append(Mutant(first + len(found), script, line, source, after))
    return found


def place_of(mutant: Mutant) -> str:
    """Return the file and the line that it changes: of the script or of a part."""
    return "{}:{}".format(*scripts.load(mutant.script).places[mutant.line - 1])


def _changes(source: str) -> list[str]:
    code = source.split(" --")[0]
    if (
        not code.strip()
        or code.strip().startswith("--")
        or ("refuse('" in code and "return" in code)
    ):
        # Messages are for people. The line of the condition has mutants of the refusal itself.
        return []
    strings = [match.span() for match in STRING.finditer(code)]
    found = []
    for pattern, put in TOKENS:
        for match in re.finditer(pattern, code):
            # An index that is off by one fails every test, so it shows nothing about the suite.
            index = code[match.start() - 1 : match.start()] == "[" and code[match.end()] == "]"
            if index or any(start <= match.start() < end for start, end in strings):
                continue
            new = put(match) if callable(put) else put
            found.append(source[: match.start()] + new + source[match.end() :])
    if STATEMENT.match(code) and code.count("(") == code.count(")"):
        found.append(re.match(r"\s*", source)[0] + "-- dropped")  # type: ignore[index]
    return found


def compiles(text: str) -> bool:
    """Return whether the compiler of lupa, which fakeredis uses, accepts a script."""
    from lupa import lua51

    try:
        lua51.LuaRuntime().compile(text)
    except lua51.LuaError:
        return False
    return True


def run(mutant: Mutant, place: Path) -> str:
    """Return ``killed`` if a test failed, ``survived``, or ``stillborn`` if Lua rejects it."""
    file = place / "lua" / f"{mutant.script}.lua"
    original = scripts.load(mutant.script).source.decode()
    lines = original.split("\n")
    lines[mutant.line - 1] = mutant.after
    if not compiles("\n".join(lines)):
        return "stillborn"
    file.write_text("\n".join(lines))
    suite = OF_BLOCKS if mutant.script.endswith("_blocks") or mutant.script == "show" else SUITE
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *suite]
    command += ["-k", "default", "--timeout", "60"]
    environment = {**os.environ, "HYPOTHESIS_DATABASE": "none", "CI": ""}
    try:
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, timeout=300)
        killed = done.returncode != 0
        if done.returncode not in (0, 1):
            # For example no test was collected: that says nothing about the mutant.
            raise RuntimeError((done.stdout + done.stderr).decode()[-2000:])
    except subprocess.TimeoutExpired:
        killed = True
    finally:
        file.write_text(original)
    return "killed" if killed else "survived"


def main() -> int:
    """Print the survivors and the share killed; return 1 below 95 %."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scripts", nargs="+")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="numbers of mutants, with commas")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    every: list[Mutant] = []
    for script in args.scripts:
        every += mutants(script, len(every))
    if args.only:
        wanted = {int(n) for n in args.only.split(",")}
        every = [m for m in every if m.number in wanted]
    if args.list:
        for m in every:
            print(f"{m.number:4} {m.script} {place_of(m)} {m.after.strip()}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        places: Queue[Path] = Queue()
        for job in range(args.jobs):
            place = Path(folder, str(job))
            for part in ("acker_redis", "lua", "proof", "tests"):
                shutil.copytree(ROOT / part, place / part)
            shutil.copy(ROOT / "pyproject.toml", place)
            places.put(place)

        def one(mutant: Mutant) -> str:
            place = places.get()
            try:
                result = run(mutant, place)
            finally:
                places.put(place)
            if result == "survived":
                print(f"survived {mutant.number}: {mutant.script} {place_of(mutant)}", flush=True)
                print(f"  - {mutant.before.strip()}\n  + {mutant.after.strip()}", flush=True)
            return result

        with ThreadPoolExecutor(args.jobs) as pool:
            results = list(pool.map(one, every))
    killed, survived = results.count("killed"), results.count("survived")
    print(f"{killed} of {killed + survived} killed, {results.count('stillborn')} do not compile")
    return int(killed < 0.95 * (killed + survived))


if __name__ == "__main__":
    sys.exit(main())
