"""Programs that use the package and register themselves as entry points.

The package imports none of these programs: ``acker-redis serve`` and ``acker-redis demo`` load
their program when they run. ``acker-redis simulate`` runs the simulator of a checkout.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

import typer

from acker_redis.cli.output import Exit, warn
from acker_redis.errors import how_to_install

GROUP = "acker_redis.programs"


def program(name: str, extra: str) -> Callable[..., int]:
    """Return the function that runs a program; exit if the program or a dependency is missing.

    ``extra`` is the extra of ``acker-redis`` that installs the dependencies of the program.
    """
    try:
        for found in entry_points(group=GROUP, name=name):
            run: Callable[..., int] = found.load()
            return run
        what = f"the program {name}"
    except ModuleNotFoundError as error:
        what = str(error.name)
    warn(f"{what} is not installed: run {how_to_install(extra)}")
    raise typer.Exit(Exit.USAGE)


def simulator() -> ModuleType:
    """Return the module that shows simulations; exit if the program does not run in a checkout."""
    try:
        return import_module("proof.simulate.show")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("proof"):
            raise
    warn(
        "the simulator is not in the wheel: run python -m acker_redis simulate in a checkout of "
        "acker-redis"
    )
    raise typer.Exit(Exit.USAGE)
