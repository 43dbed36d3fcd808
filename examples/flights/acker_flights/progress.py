"""The live display: rows per stage, pending trees per bucket, verdicts, high-water mark."""

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from acker_flights.pipeline import STAGES
from acker_redis import Status

_BAR = 40
_LINE_SECONDS = 5.0
_LEVELS = {"ok": "green", "high": "yellow", "over": "red"}
_COLORS = ("cyan", "blue", "magenta", "bright_black")


class Display:
    """A display of the pipeline's progress: live on a terminal, else a line every five seconds."""

    def __init__(self, console: Console, flights: int) -> None:
        self._console = console
        self._flights = flights
        self._began = time.monotonic()
        self._said = -_LINE_SECONDS
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> "Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def update(self, what: str, rows: dict[str, int], status: Status) -> None:
        """Show the current state; ``what`` names the current phase."""
        seconds = time.monotonic() - self._began
        if self._live:
            self._live.update(self._picture(what, seconds, rows, status), refresh=True)
        elif seconds - self._said >= _LINE_SECONDS:
            self._said = seconds
            counters = status.counters
            self._console.print(
                f"{seconds:5.0f} s  {what}: {counters['tracked']:,} tracked, "
                f"{counters['acked']:,} acked, {counters['failed']:,} failed, "
                f"{counters['expired']:,} expired, {status.open:,} pending, "
                f"high water {status.high_water}",
                soft_wrap=True,
            )

    def _picture(
        self, what: str, seconds: float, rows: dict[str, int], status: Status
    ) -> RenderableType:
        stages = Table.grid(padding=(0, 2))
        for stage in STAGES:
            whole = self._flights * (2 if stage == "delays" else 1)
            stages.add_row(stage, _bar(rows[stage], whole, "green"), f"{rows[stage]:,} rows")
        trees = Table.grid(padding=(0, 2))
        scale = max(1, *status.pending_by_bucket, status.expiring)
        for age, count in enumerate(status.pending_by_bucket):
            name = "newest bucket" if age == 0 else f"{age} tick{'s'[: age - 1]} older"
            color = _COLORS[min(age, len(_COLORS) - 1)]
            trees.add_row(name, _bar(count, scale, color), f"{count:,} pending")
        trees.add_row("expiring", _bar(status.expiring, scale, "red"), f"{status.expiring:,}")
        level = status.high_water
        share = status.pending / status.config.high_water
        trees.add_row(
            "high water",
            _bar(status.pending, status.config.high_water, _LEVELS[level]),
            f"{share:.0%} of {status.config.high_water:,}: {level}",
        )
        counters = status.counters
        verdicts = Text.assemble(
            f"{counters['tracked']:,} tracked   ",
            (f"{counters['acked']:,} acked", "green"),
            "   ",
            (f"{counters['failed']:,} failed", "red"),
            "   ",
            (f"{counters['expired']:,} expired", "yellow"),
        )
        title = f"{what}  {seconds:.0f} s"
        return Panel(Group(stages, "", trees, "", verdicts), title=title, expand=False)


def _bar(value: int, whole: int, color: str) -> Text:
    filled = min(_BAR, round(_BAR * value / whole)) if whole else 0
    return Text("━" * filled, style=color) + Text("─" * (_BAR - filled), style="bright_black")
