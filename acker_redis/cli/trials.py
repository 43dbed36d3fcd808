"""Commands that examine and measure: doctor, bench, demo, simulate."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from acker_redis.cli import options
from acker_redis.cli.options import AsJson, Url, add, complete_namespace
from acker_redis.cli.output import Exit, end_cleanly, say_json
from acker_redis.cli.programs import program, simulator

if TYPE_CHECKING:
    from rich.console import RenderableType

    from acker_redis.doctor import Finding

ID_WIDTH = 16
"""Columns for the finding id, which docs/reference/doctor.md and other findings refer to."""
COLOURS = {"ok": "green", "skipped": "dim", "warning": "yellow", "error": "bold red"}


def doctor(
    namespaces: Annotated[
        list[str] | None,
        typer.Argument(help="Namespaces; default: all", autocompletion=complete_namespace),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(help="Role to check: producer, source, rotator, viewer or admin"),
    ] = None,
    canary: Annotated[
        bool, typer.Option(help="Send canary trees through a temporary namespace")
    ] = True,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Examine Redis, rights, rotators, sources and clocks; print how to fix each problem.

    The doctor changes nothing except a temporary namespace for the canary, which it removes. Exit
    code 0: no problem; 1: warnings; 2: errors, or Redis does not answer.
    """
    from rich.console import Console

    from acker_redis.doctor import Report, examine

    settings = options.settings(url)
    end_cleanly()  # SIGTERM removes the temporary namespace, too
    console = Console(highlight=False)
    found = []
    with Console(stderr=True).status("examining") as status:
        for finding in examine(settings, namespaces or None, role, canaries=canary):
            found.append(finding)
            status.update(f"examined: {finding.title}")
            if as_json:
                continue
            console.print(_drawn(finding))
    report = Report(tuple(found))
    if as_json:
        say_json(report.to_dict())
    else:
        counts = Counter[str](finding.level for finding in found)
        console.print(", ".join(f"{counts[each]} {each}" for each in COLOURS if counts[each]))
    raise typer.Exit(report.exit_code)


def _drawn(finding: Finding) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    where = f" {finding.where}" if finding.where else ""
    said = Text.assemble((finding.title, "bold"), (where, "dim"), ": ", finding.detail)
    if finding.fix:
        said.append(f"\nfix: {finding.fix}", "cyan")
    row = Table.grid(padding=(0, 1))
    row.add_column(width=7)
    row.add_column(width=ID_WIDTH)
    row.add_column()
    row.add_row(Text(finding.level, COLOURS[finding.level]), Text(finding.id, "dim"), said)
    return row


def tour(
    slow: Annotated[
        bool, typer.Option("--slow", help="Pause between the steps, until you press Enter")
    ] = False,
) -> None:
    """Watch a small pipeline with an acker: a first run in 20 seconds, without Java.

    The tour starts an embedded server and sends orders through two bolts. One order fails, one
    loses a message, and the tour explains each verdict. At the end it removes the server. Exit
    code 1: the counts are not those that the tour calls for.
    """
    from acker_redis.tour.run import tour as play

    end_cleanly()  # SIGTERM ends the server, too
    raise typer.Exit(play(slow))


def bench(
    seconds: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds per measurement")] = 1.0,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Measure rate and latency on this Redis, compared with plain HINCRBY.

    The benchmark runs in a temporary namespace, which it removes.
    """
    from rich.console import Console
    from rich.table import Table

    from acker_redis.ops import bench as benchmark

    settings = options.settings(url)
    end_cleanly()  # SIGTERM removes the temporary namespace, too
    progress = Console(stderr=True, highlight=False)
    with progress.status("measuring") as status:
        measured = benchmark.measure(
            settings.acker, seconds, lambda what: status.update(f"measuring: {what}")
        )
    if as_json:
        say_json(asdict(measured))
        return
    table = Table(title=f"{settings.shown_url}, one shard, one connection")
    table.add_column("operation")
    table.add_column("per second", justify="right")
    table.add_column("of HINCRBY", justify="right")
    for rate in measured.rates:
        table.add_row(rate.name, f"{rate.per_second:,.0f}", f"{rate.of_hincrby:,.2f}")
    waits = Table()
    for name in ("latency", "p50", "p99"):
        waits.add_column(name, justify="left" if name == "latency" else "right")
    for wait in measured.waits:
        waits.add_row(wait.name, f"{wait.p50_ms:.2f} ms", f"{wait.p99_ms:.2f} ms")
    console = Console(highlight=False)
    console.print(table)
    console.print(waits)


def demo(
    month: Annotated[int, typer.Option(min=1, max=12, help="Month of 2013")] = 1,
    year: Annotated[bool, typer.Option("--year", help="All of 2013")] = False,
    days: Annotated[int | None, typer.Option(min=1, help="Only this many days of a month")] = None,
    files_per_trigger: Annotated[
        int | None, typer.Option(min=1, help="Days per micro-batch (default: 1; with --year: 7)")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="New directory for the result tables done, replay, delays")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="Redis to use instead of an embedded one; - takes the URL of the environment. "
            "The demo creates the namespace flights there, and drops it at the end"
        ),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Keep the dashboard running at the end, until Ctrl-C")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a demo on real data: Spark and the acker account for every flight from New York."""
    from rich.console import Console

    run = program("demo", extra="demo")
    if keep and keep.exists():
        typer.echo(f"--keep: {keep} exists; give a new directory for the tables", err=True)
        raise typer.Exit(Exit.USAGE)
    months = tuple(range(1, 13)) if year else (month,)
    if url:
        url = options.settings(None if url == "-" else url).complete_url
    days_per_batch = files_per_trigger or (7 if year else 1)
    # With --json tables and bars go to stderr: a program reads stdout.
    console = Console(highlight=False, stderr=as_json)
    show = (lambda summary: say_json(asdict(summary))) if as_json else None
    raise typer.Exit(run(months, days, days_per_batch, keep, url, serve, console, show))


def simulate(
    seed: Annotated[int, typer.Option(help="First seed")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds")] = 1,
    trees: Annotated[int, typer.Option(min=1, help="Tuple trees per seed")] = 40,
    faults: Annotated[str, typer.Option(help="all, none, or faults separated by commas")] = "all",
    blocks: Annotated[
        Literal["none", "some", "only"], typer.Option(help="How many of the trees are in blocks")
    ] = "some",
    server: Annotated[
        str, typer.Option(help="reference, embedded, both (compared), or a redis:// URL")
    ] = "reference",
    break_rule: Annotated[
        Literal["split", "shared", "late"] | None,
        typer.Option(
            "--break", help="Break one of three rules; the run must then find a false ack"
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            help="Replay the history of this file instead, such as a counterexample of the model"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate seeded histories with faults, and check that no guarantee is violated.

    It runs in a checkout: the simulator is not in the wheel.
    """
    show = simulator()
    if history:
        raise typer.Exit(show.show_history(history, server, as_json))
    given = (seed, seeds, trees, faults, blocks, server, break_rule or "", as_json)
    raise typer.Exit(show.simulate(*given))


PANEL = "Try out and measure"


def register(app: typer.Typer) -> None:
    """Register the commands."""
    add(app, "Services", doctor, "doctor orders", "doctor orders --role producer --json")
    add(app, PANEL, tour, "tour", "tour --slow")
    add(app, PANEL, bench, "bench", "bench --seconds 5 --json")
    add(app, PANEL, demo, "demo", "demo --days 3", "demo --days 3 --serve")
    add(
        app,
        PANEL,
        simulate,
        "simulate --seeds 200",
        "simulate --seeds 20 --break shared",
        "simulate --history lost.json --server both",
    )
