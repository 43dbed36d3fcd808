"""Programs that use the package and register themselves as entry points.

The package imports none of these programs: ``acker-redis serve`` and ``acker-redis demo`` load
their program when they run.
"""

from collections.abc import Callable
from importlib.metadata import entry_points

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
