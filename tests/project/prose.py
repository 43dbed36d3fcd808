"""Find phrases that make the project's English hard to read.

``python -m tests.project.prose [PATH ...]`` prints each with its place and what to write instead;
``make lint`` runs it over all text of the project. Each rule is a pattern that a regular
expression can judge; CONTRIBUTING has the rules that need a reader.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = {
    *(".py", ".lua", ".md", ".js", ".ts", ".java", ".go", ".c", ".h", ".rb", ".php", ".pl", ".pm"),
    *(
        ".t",
        ".sh",
        ".css",
        ".html",
        ".yml",
        ".toml",
        ".json",
        ".jsonl",
        ".acl",
        ".conf",
        ".svg",
        ".txt",
    ),
}
NAMES = {"Makefile", "Dockerfile", ".dockerignore", ".gitignore", "run", "stranger"}
SKIPPED_FOLDERS = {
    *("vendor", "node_modules", "build", "dist", "site", "target", "results", "__pycache__"),
    *("htmlcov", "spark-warehouse", "metastore_db"),
}
"""Folders of other people's text, or of generated files."""
SKIPPED_FILES = {"tests/project/prose.py", "tests/project/test_prose.py"}


@dataclass(frozen=True, slots=True)
class Rule:
    """A phrase, what to write instead, and a sentence that has it."""

    pattern: str
    instead: str
    example: str


RULES = (
    Rule(
        r"\bwhat (?:is|was|has|have|had|are|were|comes|came|goes|went|cannot)\b(?![^.]*\?)",
        "name the component or the thing",
        "what is not ready is asked again",
    ),
    Rule(r"\b(?:nobody|somebody)\b", "name the component", "nobody reads it"),
    Rule(r"\b(?:whoever|whomever)\b", "name the component", "whoever runs it"),
    Rule(r"\b(?:whatever|whichever)\b", '"any", "each", "regardless of"', "whatever happens"),
    Rule(r"\banew\b", '"again"', "it begins anew"),
    Rule(
        r"\bbehind\b(?! (?:an? |the |your )?(?:reverse |TLS )?(?:prox|load bal|firewall|NAT))",
        '"after", or where it is',
        "a row behind the block",
    ),
    Rule(r"\bin vain\b", "say what happens", "it asks in vain"),
    Rule(
        r"\bof (?:one's|its|their|his|our) own\b(?! [a-z])",
        '"separate", "its own"',
        "a list of its own",
    ),
    Rule(r"\bless than no\b", "say the value", "less than no time"),
    Rule(
        r"\bit (?:is|was) (?:looked|asked|waited|tried|told|counted|tested|checked)\b",
        "name the component that does it",
        "It is looked whether it is ready",
    ),
    Rule(
        r"\b(?:that|which|what|who) (?:cannot|may|can) be(?=[.,;:)]|$)",
        '"invalid", "unsupported"',
        "a name that cannot be",
    ),
    Rule(r"\bhears? of\b|\bheard of\b", '"receives", "is notified of"', "the source hears of it"),
    Rule(r"\bby halves\b", '"partially"', "never applied by halves"),
    Rule(r"\bfor want of\b", '"without", "because .. is missing"', "refused for want of room"),
    Rule(r"\bthe same again\b", '"the same command", "a retry"', "run the same again"),
    Rule(r"\bwho (?:comes|goes|runs|asks|reads|waits|is) ", "name the component", "who comes late"),
    Rule(r"\bas ever\b", '"as before"', "it ends as ever"),
)


_ANY = re.compile("|".join(rule.pattern for rule in RULES), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Allowed:
    """A place where a phrase of a rule is right, and why."""

    file: str
    text: str
    reason: str


ALLOWED = (
    Allowed("acker_redis/doctor/checks_clock.py", "ahead of", "a clock is ahead or behind"),
    Allowed("acker_redis/doctor/health.py", "falls behind", "the idiom for a growing backlog"),
    Allowed("tests/doctor/test_checks_others.py", "s behind", "a clock is ahead or behind"),
)


@dataclass(frozen=True, slots=True)
class Found:
    """A phrase in a file."""

    file: str
    line: int
    phrase: str
    instead: str
    text: str

    def __str__(self) -> str:
        """Return one line, as linters print it."""
        return f'{self.file}:{self.line}: "{self.phrase}": write {self.instead}'


def find(file: str, text: str) -> Iterator[Found]:
    """Yield each phrase of a text that a rule names, allowed or not; names of functions too."""
    words = text.replace("_", " ")
    if not _ANY.search(words):
        return
    for number, line in enumerate(words.splitlines(), start=1):
        if not _ANY.search(line):
            continue
        for rule in RULES:
            for match in re.finditer(rule.pattern, line, re.IGNORECASE):
                yield Found(file, number, match[0], rule.instead, line)


def is_allowed(found: Found) -> bool:
    """Return whether a line of :data:`ALLOWED` covers it."""
    return any(found.file == each.file and each.text in found.text for each in ALLOWED)


def files(root: Path = ROOT) -> Iterator[Path]:
    """Yield all files of the project that hold its own text; needs no git."""
    for folder, folders, names in os.walk(root):
        inside = Path(folder).relative_to(root)
        folders[:] = sorted(
            each
            for each in folders
            if each not in SKIPPED_FOLDERS
            and (not each.startswith(".") or each == ".ci")
            and not each.endswith(".egg-info")
            and not (each == "lua" and inside.parent.name == "clients")
        )
        for name in sorted(names):
            path = inside / name
            if (path.suffix in KINDS or name in NAMES) and path.as_posix() not in SKIPPED_FILES:
                yield path


def findings(paths: Iterable[Path]) -> Iterator[Found]:
    """Yield what is found in these files, but for what is allowed."""
    for path in paths:
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        yield from (each for each in find(path.as_posix(), text) if not is_allowed(each))


def main(arguments: list[str]) -> int:
    """Print the findings in these files and folders, or in all; return the exit code."""
    wanted = [Path(each).resolve().relative_to(ROOT) for each in arguments]
    paths = [
        path
        for path in files()
        if not wanted or any(path == each or each in path.parents for each in wanted)
    ]
    count = 0
    for found in findings(paths):
        count += 1
        print(found)
    if count:
        print(f"{count} phrases; tests/project/prose.py has the rules and the exceptions")
    return bool(count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
