"""Arguments and options that several commands have, and what a command begins with."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acker_redis.cli.output import Exit, warn
from acker_redis.errors import AckerError

if TYPE_CHECKING:
    from acker_redis.ops.settings import Settings
    from acker_redis.sync.client import Acker


def complete_namespace(incomplete: str) -> list[str]:
    """Names of namespaces for the shell; none if Redis does not tell."""
    from acker_redis.flows.names import names
    from acker_redis.ops.settings import Settings
    from acker_redis.sync.connection import Connection

    with contextlib.suppress(AckerError):
        connection = Connection(Settings.read(timeout=1.0).connect())
        return [name for name in connection.drive(names()) if name.startswith(incomplete)]
    return []


Namespace = Annotated[
    str,
    typer.Argument(
        help="Name of the acker, 1 to 64 of A-Z a-z 0-9 _ . -", autocompletion=complete_namespace
    ),
]
Task = Annotated[str, typer.Argument(help="Name of the source, as it tracks under")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Redis [env: ACKER_REDIS_URL; default: redis://127.0.0.1:6379/0]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, for programs")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")]


def settings(url: str | None = None, **given: Any) -> Settings:
    """Settings of the environment, and what was given."""
    try:
        from acker_redis.ops.settings import Settings
    except ModuleNotFoundError as error:
        warn(f"{error.name} is missing; pip install 'acker-redis[cli]'")
        raise typer.Exit(Exit.USAGE) from None
    return Settings.read(url=url, **given)


def acker(namespace: str, url: str | None) -> Acker:
    """Client of a namespace."""
    return settings(url).acker(namespace)


def add(
    app: typer.Typer, panel: str, command: Callable[..., None], *examples: str, name: str = ""
) -> None:
    """Add a command, whose help is its docstring and ends with examples."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    lines = "\n\n".join(f"[dim]$[/dim] acker-redis {each}" for each in examples)
    app.command(
        name or None,
        # Lines of the source are no lines of the terminal.
        help="\n\n".join(each.replace("\n", " ") for each in paragraphs),
        epilog=f"[bold]Example[/bold]\n\n{lines}",
        rich_help_panel=panel,
    )(command)
