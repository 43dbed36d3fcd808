"""Shared arguments and options of the commands, their settings and their client."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acker_redis.cli.output import Exit, warn
from acker_redis.errors import AckerError, how_to_install

if TYPE_CHECKING:
    from acker_redis.ops.settings import Settings
    from acker_redis.sync.client import Acker


def complete_namespace(incomplete: str) -> list[str]:
    """Return namespaces for shell completion; none if Redis does not answer or refuses."""
    from acker_redis.flows.namespace_list import read_names
    from acker_redis.ops.settings import Settings
    from acker_redis.sync.connection import Connection

    with contextlib.suppress(AckerError):
        connection = Connection(Settings.read(timeout=1.0).connect())
        return [name for name in connection.drive(read_names()) if name.startswith(incomplete)]
    return []


Namespace = Annotated[
    str,
    typer.Argument(
        help="Namespace: 1 to 64 of A-Z a-z 0-9 _ . -", autocompletion=complete_namespace
    ),
]
Source = Annotated[str, typer.Argument(help="Name of the source")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Redis URL (env: ACKER_REDIS_URL; default: 127.0.0.1:6379, database 0)",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")]


def settings(url: str | None = None, **given: Any) -> Settings:
    """Return the settings of the environment, overridden by the given ones."""
    try:
        from acker_redis.ops.settings import Settings
    except ModuleNotFoundError as error:
        warn(f"{error.name} is not installed: run {how_to_install('cli')}")
        raise typer.Exit(Exit.USAGE) from None
    return Settings.read(url=url, **given)


def acker(namespace: str, url: str | None) -> Acker:
    """Return the client of a namespace."""
    return settings(url).acker(namespace)


def add(
    app: typer.Typer,
    panel: str,
    command: Callable[..., None],
    *examples: str,
    name: str = "",
    **context_settings: Any,
) -> None:
    """Register a command; its help is its docstring, followed by examples."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    lines = "\n\n".join(f"[dim]$[/dim] acker-redis {each}" for each in examples)
    app.command(
        name or None,
        # The terminal wraps paragraphs itself, so line breaks of the source are removed.
        help="\n\n".join(each.replace("\n", " ") for each in paragraphs),
        epilog=f"[bold]Examples[/bold]\n\n{lines}",
        rich_help_panel=panel,
        context_settings=context_settings or None,
    )(command)
