"""The command line.

It may import every other part of the package. A command imports its dependencies when it runs, so
``--help`` loads no Redis client. Start reading with ``namespaces.py`` or ``trees.py``: each
function is a command. ``options.py`` holds the shared options.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from acker_redis.cli import (
    explain,
    find,
    groups,
    history,
    namespaces,
    services,
    size,
    state,
    trees,
    trials,
    verdicts,
)
from acker_redis.cli.output import Exit, escape_controls, warn
from acker_redis.errors import AckerError
from acker_redis.terminal import complete_streams

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Report for each source record whether every message derived from it was processed.",
    epilog="Exit codes: 0 success; 1 error, or not found; 2 invalid command line; 3 trees "
    "rejected, too many are pending; 130 Ctrl-C. Exit codes of doctor: 0 no problem; 1 warnings; "
    "2 errors.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("acker-redis"))
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version")
    ] = False,
) -> None: ...


for each in (
    namespaces, size, state, history, find, verdicts, groups, explain, trees, services, trials,
):  # fmt: skip
    each.register(app)


def main() -> None:
    """Run the command line; print an AckerError as one sentence on stderr and exit with code 1."""
    complete_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Ids are UTF-8, also on a terminal with another encoding.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    escape_controls()
    try:
        app(prog_name="acker-redis")
    except AckerError as error:
        for words in (str(error), *getattr(error, "__notes__", ())):
            warn(words)
        sys.exit(Exit.FAILED)
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        warn(f"cannot read or write{place}: {error.strerror or error}")
        sys.exit(Exit.FAILED)
