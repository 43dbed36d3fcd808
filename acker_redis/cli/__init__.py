"""The command line.

It may import every other wing. What a command needs is imported when it runs, so ``--help`` loads
no Redis. Begin with ``namespaces.py`` or ``trees.py``: a function is a command; ``options.py`` has
what they share.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from acker_redis.cli import find, namespaces, services, state, trees, trials, verdicts
from acker_redis.cli.output import Exit, escape_controls, warn
from acker_redis.errors import AckerError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Know, per source record, whether everything that followed from it was processed.",
    epilog="Exit codes: 0 done; 1 an error, or not found; 2 the command line is wrong; 3 rejected "
    "for want of room; 130 Ctrl-C. Of the doctor: 0 well, 1 warnings, 2 errors.",
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


for each in (namespaces, state, find, verdicts, trees, services, trials):
    each.register(app)


def main() -> None:
    """Entry point: an AckerError is one sentence on stderr and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Ids are UTF-8, whatever the terminal speaks.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    escape_controls()
    try:
        app(prog_name="acker-redis")
    except AckerError as error:
        for words in (str(error), *getattr(error, "__notes__", ())):
            warn(words)
        sys.exit(Exit.FAILED)
    except OSError as error:
        warn(f"cannot read or write: {error.strerror or error}")
        sys.exit(Exit.FAILED)
