"""The imports of the files of a package, and the order of the wings of ``acker_redis``."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "acker_redis"
ORDER = (
    ("arguments", "errors", "lazy", "logs", "terminal"),
    ("protocol",),
    ("batching", "trees", "embedded", "missing"),
    ("flows", "transport"),
    ("sync", "aio"),
    ("rotator",),
    ("ops",),
    ("doctor", "spark", "tour", "integrations"),
    ("operate",),
    ("cli",),
    ("__main__",),
)
"""Wings from the bottom to the top. Wings on one line do not import each other."""
FLOOR = {name: floor for floor, names in enumerate(ORDER) for name in names}


@dataclass(frozen=True)
class Import:
    """One import of a module of this project."""

    file: Path
    line: int
    module: str
    """The imported module, dotted."""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def modules(package: Path) -> dict[str, Path]:
    """Return the file of each module of a package, by its dotted name."""
    found = {}
    for file in package.rglob("*.py"):
        parts = (package.name, *file.relative_to(package).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(file: Path, known: dict[str, Path], package: str) -> Iterator[Import]:
    """Yield the imports of a file that name its own package, or another one of this project."""
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
            if name.split(".")[0] in (package, "acker_api", "acker_flights", "proof"):
                yield Import(file, node.lineno, name)


def wing(module: str) -> str:
    """Return the wing of a module; '' for the package itself."""
    return module.split(".")[1] if "." in module else ""


MODULES = modules(PACKAGE)


@cache
def own_imports() -> list[Import]:
    """Return the imports inside the package, except those of its public names."""
    return _imports_of(MODULES, PACKAGE, "acker_redis")


API = ROOT / "api/acker_api"
API_ORDER = (
    ("paths", "problems", "limited_log", "settings"),
    ("auth",),
    ("reading",),
    ("acting",),
    ("shapes",),
    ("live", "dashboard"),
    ("apidocs",),
    ("http",),
    ("serving",),
    ("command", "__main__"),
)
API_FLOOR = {name: floor for floor, names in enumerate(API_ORDER) for name in names}
API_MODULES = modules(API)


@cache
def api_imports() -> list[Import]:
    """Return the imports inside the admin service, and its imports of the package."""
    return _imports_of(API_MODULES, API, "acker_api")


def _imports_of(known: dict[str, Path], package: Path, name: str) -> list[Import]:
    files = sorted({*known.values(), *package.glob("*/__init__.pyi")} - {package / "__init__.py"})
    return [each for file in files for each in imports(file, known, name)]
