"""Public names that a package imports on first use, listed once: in its stub ``__init__.pyi``.

Type checkers read the stub, and so does this module, with its imports of the form
``from package.module import Name as Name``.
"""

import ast
import contextlib
import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

Needs = contextlib.AbstractContextManager[object]


def public(
    package: str, needs: Callable[[], Needs] = contextlib.nullcontext
) -> tuple[list[str], Callable[[str], Any]]:
    """Return the names of a package, for ``__all__``, and its ``__getattr__``.

    Modules are imported inside of ``needs()``, which can turn the error about a missing library
    into one that says what to install.
    """
    # By its loader: the package may be in a zip.
    stub = ast.parse(pkgutil.get_data(package, "__init__.pyi") or b"")
    imports = [each for each in stub.body if isinstance(each, ast.ImportFrom)]
    modules = {name.name: each.module or "" for each in imports for name in each.names}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needs():
            module = import_module(modules[name])
            if not hasattr(module, name):
                import_module(f"{modules[name]}.{name}")  # a module of a package
            value = getattr(module, name)
        setattr(sys.modules[package], name, value)  # so the next use calls nothing
        return value

    return sorted(modules), find
