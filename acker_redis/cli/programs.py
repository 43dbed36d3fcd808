"""Programs that are built on the package, and register themselves by entry points.

The package imports none of them: ``acker-redis serve`` and ``acker-redis demo`` load theirs when
they run.
"""

from collections.abc import Callable
from importlib.metadata import entry_points

import typer

from acker_redis.cli.output import Exit, warn

GROUP = "acker_redis.programs"


def program(name: str, extra: str) -> Callable[..., int]:
    """Return the function that runs a program; end the command if it, or a part, is missing.

    ``extra`` is the extra of ``acker-redis`` that brings what the program needs.
    """
    try:
        for found in entry_points(group=GROUP, name=name):
            run: Callable[..., int] = found.load()
            return run
        what = f"the program {name}"
    except ModuleNotFoundError as error:
        what = str(error.name)
    warn(f"{what} is missing; pip install 'acker-redis[{extra}]'")
    raise typer.Exit(Exit.USAGE)
