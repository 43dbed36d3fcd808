"""Wings of the package import only wings below them, and no file is part of an import cycle.

The ``__init__`` of each wing says which wings it may import; this test checks all imports. Imports
for type checking and imports inside functions count too.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.project.drawings.__main__ import DRAWINGS, IMAGES
from tests.project.imports import (
    API,
    API_FLOOR,
    FLOOR,
    PACKAGE,
    ROOT,
    api_imports,
    imports,
    modules,
    own_imports,
    wing,
)


def wrong(file: Path, module: str) -> str | None:
    """Return the reason why a file of the package may not import a module; None if it may."""
    own, package = file.relative_to(PACKAGE).parts[0].removesuffix(".py"), module.split(".")[0]
    if package != "acker_redis":
        return "the package must not import a program that is built on it: use an entry point"
    other = wing(module)
    if not other:
        return "inside the package, import the module that has the name"
    if other == own or (FLOOR[own] == FLOOR[other] == 0):
        return None
    if FLOOR[other] >= FLOOR[own]:
        return f"{own} is not above {other}"
    return None


def test_imports_between_wings_run_down() -> None:
    lines = [f"{each}: {why}" for each in own_imports() if (why := wrong(each.file, each.module))]
    assert not lines, "\n".join(lines)


def test_imports_between_wings_of_the_admin_service_run_down() -> None:
    lines = []
    for each in api_imports():
        own = each.file.relative_to(API).parts[0].removesuffix(".py")
        other = wing(each.module)
        beside = other == own or API_FLOOR[own] == API_FLOOR.get(other) == 0
        if not beside and API_FLOOR.get(other, 99) >= API_FLOOR[own]:
            lines.append(f"{each}: {own} is not above {other or 'the whole service'}")
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("protocol/ids.py", "acker_redis.batching.batch"),
        ("trees/pending.py", "acker_redis.batching.batch"),
        ("aio/client.py", "acker_redis.sync.client"),
        ("sync/client.py", "acker_redis.aio.client"),
        ("ops/bench.py", "proof.reference.acker"),
        ("flows/source.py", "acker_redis.transport.errors"),
        ("cli/state.py", "acker_redis"),
        ("cli/services.py", "acker_api.serving.server"),
        ("errors.py", "acker_redis.protocol.ids"),
    ],
)
def test_an_import_against_the_order_is_found(file: str, module: str) -> None:
    assert wrong(PACKAGE / file, module)


JUDGES = {"reference": {"protocol", "errors"}, "cases": {"protocol", "errors"}}
"""Folders of the proof that use values and errors of the package, but none of its flows."""


@pytest.mark.parametrize("folder", JUDGES)
def test_judges_of_the_protocol_use_no_client(folder: str) -> None:
    files = [*(ROOT / "proof" / folder).glob("*.py")]
    found = [each.module for file in files for each in imports(file, {}, "acker_redis")]
    used = {wing(module) for module in found if module.startswith("acker_redis.")}
    assert used
    assert used <= JUDGES[folder]


@pytest.mark.parametrize("judge", ["oracle", "reference"])
def test_the_two_judges_share_no_helper(judge: str) -> None:
    """They would agree because they share an error."""
    files = [*(ROOT / "proof" / judge).glob("*.py")]
    found = {each.module for file in files for each in imports(file, {}, "acker_redis")}
    shared = {module for module in found if module.startswith("proof.")}
    assert shared
    assert all(f"{module}.".startswith(f"proof.{judge}.") for module in shared)


def test_the_oracle_packs_nothing() -> None:
    """It knows the replies and the verdicts, but no layout, id or checksum."""
    files = [*(ROOT / "proof/oracle").glob("*.py")]
    found = {each.module for file in files for each in imports(file, {}, "acker_redis")}
    values = {f"acker_redis.protocol.{name}" for name in ("commands", "config", "outcome")}
    used = {module for module in found if module.startswith("acker_redis.")}
    assert used == values | {"acker_redis.errors"}
    assert not [file.name for file in files if " ^ " in file.read_text()]


@pytest.mark.parametrize("package", [PACKAGE, ROOT / "api/acker_api"], ids=lambda each: each.name)
def test_no_import_cycles(package: Path) -> None:
    known = modules(package)
    graph: dict[str, set[str]] = {name: set() for name in known}
    for name, file in known.items():
        for each in imports(file, known, package.name):
            if each.module in known and each.module != name:
                graph[name].add(each.module)
    graph[package.name] = set()  # the public names are imported lazily
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize(
    "folder",
    sorted(
        each.parent
        for top in (PACKAGE, API)
        for each in top.glob("*/__init__.py")
        if each.parent.name not in ("apidocs", "dashboard")
    ),
    ids=lambda folder: folder.name,
)
def test_each_wing_says_what_it_is_for_and_where_to_begin(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    assert text, folder
    assert len(text.splitlines()) > 1
    named = [word for word in text.split("``") if word.endswith(".py")]
    assert named, f"{folder.name}: name the file to begin with"
    top = folder.parent
    missing = [name for name in named if not any(top.rglob(name.split("/")[-1]))]
    assert not missing


def test_the_top_of_the_package_is_small() -> None:
    names = [each.name for each in PACKAGE.iterdir() if has_source(each)]
    assert len(names) <= 25, sorted(names)


def test_every_wing_has_a_place_in_the_order() -> None:
    entries = {each.stem for each in PACKAGE.iterdir() if has_source(each)}
    assert entries - {"__init__"} == set(FLOOR)


def has_source(path: Path) -> bool:
    """Return whether this is code; a folder that was moved may have left bytecode."""
    return any(path.glob("*.py")) if path.is_dir() else path.suffix in (".py", ".pyi")


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_is_up_to_date(name: str) -> None:
    """If it fails: python -m tests.project.drawings."""
    assert (IMAGES / name).read_text() == DRAWINGS[name]()
