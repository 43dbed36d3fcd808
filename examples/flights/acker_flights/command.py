"""The function that ``acker-redis demo`` calls."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from acker_flights.data import Selection
from acker_flights.demo import Options, run


def demo(
    months: tuple[int, ...],
    days: int | None,
    files_per_trigger: int,
    keep: Path | None,
    url: str | None,
    serve: bool,
    console: Console,
    on_summary: Callable[[Any], None] | None,
) -> int:
    """Run the demo and return the exit code; the parameters are the command's options."""
    options = Options(Selection(months, days), files_per_trigger, keep, url, serve)
    return run(options, console, on_summary)
