"""Imports between the wings of the package run down, and no file is part of an import cycle.

Each wing's ``__init__`` says what the wing may import; this test holds all of them to it. Imports
for type checking and imports inside functions count too.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "acker_redis"
ORDER = (
    ("errors", "forks", "kinds", "logs", "terminal"),
    ("protocol",),
    ("batching", "trees", "embedded", "reference"),
    ("flows",),
    ("transport",),
    ("sync", "aio"),
    ("rotator",),
    ("ops",),
    ("doctor", "spark", "simulate"),
    ("cli",),
    ("__main__",),
)
"""Wings from the bottom to the top. Wings of one line do not import each other."""
BELOW = {"reference": {"protocol", "errors"}}
"""Wings that may import less than what is below them."""
FLOOR = {name: floor for floor, names in enumerate(ORDER) for name in names}


@dataclass(frozen=True)
class Import:
    """One import of a module of ours."""

    file: Path
    line: int
    module: str
    """What it imports, dotted."""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def modules(package: Path) -> dict[str, Path]:
    """Each module below a package by its dotted name."""
    found = {}
    for file in package.rglob("*.py"):
        parts = (package.name, *file.relative_to(package).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(file: Path, known: dict[str, Path], package: str) -> Iterator[Import]:
    """All imports of a file that name its own package, or others of ours."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: write the whole name"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [each if each in known else str(node.module) for each in whole]
        else:
            continue
        for name in dict.fromkeys(names):
            if name.split(".")[0] in (package, "acker_api", "acker_flights"):
                yield Import(file, node.lineno, name)


def wing(module: str) -> str:
    """The wing of a module, or its own name at the top."""
    return module.split(".")[1] if "." in module else ""


MODULES = modules(PACKAGE)
IMPORTS = [
    each
    for file in sorted(MODULES.values())
    if file != PACKAGE / "__init__.py"
    for each in imports(file, MODULES, "acker_redis")
]


def wrong(file: Path, module: str) -> str | None:
    """Why a file of the package may not import a module; None if it may."""
    own, package = file.relative_to(PACKAGE).parts[0].removesuffix(".py"), module.split(".")[0]
    if package != "acker_redis":
        return "the package imports no program that is built on it: that registers an entry point"
    other = wing(module)
    if not other:
        return "inside the package, import the module that has the name"
    if other == own or (FLOOR[own] == FLOOR[other] == 0):
        return None
    if FLOOR[other] >= FLOOR[own] or other not in BELOW.get(own, {other}):
        return f"{own} is not above {other}"
    return None


def test_imports_between_wings_run_down() -> None:
    lines = [f"{each}: {why}" for each in IMPORTS if (why := wrong(each.file, each.module))]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("protocol/ids.py", "acker_redis.batching.batch"),
        ("trees/pending.py", "acker_redis.batching.batch"),
        ("aio/client.py", "acker_redis.sync.client"),
        ("sync/client.py", "acker_redis.aio.client"),
        ("reference/acker.py", "acker_redis.forks"),
        ("flows/source.py", "acker_redis.transport.errors"),
        ("cli/state.py", "acker_redis"),
        ("cli/services.py", "acker_api.server"),
        ("errors.py", "acker_redis.protocol.ids"),
    ],
)
def test_an_import_against_the_order_is_found(file: str, module: str) -> None:
    assert wrong(PACKAGE / file, module)


@pytest.mark.parametrize("package", [PACKAGE, ROOT / "api/acker_api"], ids=lambda each: each.name)
def test_no_import_cycles(package: Path) -> None:
    known = modules(package)
    graph: dict[str, set[str]] = {name: set() for name in known}
    for name, file in known.items():
        for each in imports(file, known, package.name):
            if each.module in known and each.module != name:
                graph[name].add(each.module)
    graph[package.name] = set()  # the public names are imported when they are asked for
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize(
    "folder", sorted(each.parent for each in PACKAGE.glob("*/__init__.py")), ids=lambda f: f.name
)
def test_each_wing_says_what_it_is_for_and_where_to_begin(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    assert text, folder
    assert len(text.splitlines()) > 1
    named = [word for word in text.split("``") if word.endswith(".py")]
    assert named, f"{folder.name}: name the file to begin with"
    missing = [name for name in named if not any(PACKAGE.rglob(name.split("/")[-1]))]
    assert not missing


def test_the_top_of_the_package_is_small() -> None:
    entries = [each for each in PACKAGE.iterdir() if each.name != "__pycache__"]
    assert len(entries) <= 25, sorted(each.name for each in entries)


def test_every_wing_has_a_place_in_the_order() -> None:
    entries = {each.stem for each in PACKAGE.iterdir() if each.suffix in ("", ".py")}
    assert entries - {"__pycache__", "__init__"} == set(FLOOR)
