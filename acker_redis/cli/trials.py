"""Commands that try things out: doctor, bench, simulate, demo."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from acker_redis.cli import options
from acker_redis.cli.options import AsJson, Url, add, complete_namespace
from acker_redis.cli.output import Exit, end_cleanly, say_json
from acker_redis.cli.programs import program

if TYPE_CHECKING:
    from rich.console import RenderableType

    from acker_redis.doctor import Finding

ID_WIDTH = 16
"""Columns for the id of a finding, by which docs/reference/doctor.md and other findings name it."""
COLOURS = {"ok": "green", "skipped": "dim", "warning": "yellow", "error": "bold red"}


def doctor(
    namespaces: Annotated[
        list[str] | None,
        typer.Argument(help="Which namespaces; all, if none", autocompletion=complete_namespace),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(help="What the user is to be: producer, source, rotator, viewer or admin"),
    ] = None,
    canary: Annotated[
        bool, typer.Option(help="Try it with trees in a namespace of its own, for a moment")
    ] = True,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Examine Redis, rights, rotators, sources and clocks, and say how to mend what is wrong.

    Nothing is changed, but for a namespace that is there for a moment. Exit code 0: all is well;
    1: there are warnings; 2: there are errors, or Redis does not answer.
    """
    from rich.console import Console

    from acker_redis.doctor import Report, examine

    settings = options.settings(url)
    end_cleanly()  # the namespace of its own goes
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
    seconds: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds for each line")] = 1.0,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Measure what this Redis does a second, beside plain HINCRBY, in a namespace of its own."""
    from rich.console import Console
    from rich.table import Table

    from acker_redis.ops import bench as benchmark

    settings = options.settings(url)
    end_cleanly()  # the namespace of its own goes
    progress = Console(stderr=True, highlight=False)
    with progress.status("measuring") as status:
        measured = benchmark.measure(
            settings.acker, seconds, lambda what: status.update(f"measuring: {what}")
        )
    if as_json:
        say_json(asdict(measured))
        return
    table = Table(title=f"{settings.shown_url}, one shard, one connection")
    table.add_column("a second")
    table.add_column("", justify="right")
    table.add_column("of HINCRBY", justify="right")
    for rate in measured.rates:
        table.add_row(rate.name, f"{rate.per_second:,.0f}", f"{rate.of_hincrby:,.2f}")
    waits = Table()
    for name in ("one waits", "p50", "p99"):
        waits.add_column(name, justify="left" if name == "one waits" else "right")
    for wait in measured.waits:
        waits.add_row(wait.name, f"{wait.p50_ms:.2f} ms", f"{wait.p99_ms:.2f} ms")
    console = Console(highlight=False)
    console.print(table)
    console.print(waits)


def demo(
    month: Annotated[int, typer.Option(min=1, max=12, help="Month of 2013")] = 1,
    year: Annotated[bool, typer.Option("--year", help="All of 2013")] = False,
    days: Annotated[int | None, typer.Option(min=1, help="Only so many days of a month")] = None,
    files_per_trigger: Annotated[
        int | None, typer.Option(min=1, help="Days per micro-batch [1; 7 for the year]")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="New directory for the tables done, replay, delays")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="A Redis to use instead of one of its own; - for the one of the environment. The "
            "namespace flights is made there, and dropped in the end"
        ),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Stay in the end, with the dashboard, until Ctrl-C")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Account for every flight that left New York: Spark, Redis and the acker on real data."""
    from rich.console import Console

    run = program("demo", extra="demo")
    if keep and keep.exists():
        typer.echo(f"{keep} exists; name a directory that does not, for the tables", err=True)
        raise typer.Exit(Exit.USAGE)
    months = tuple(range(1, 13)) if year else (month,)
    if url:
        url = options.settings(None if url == "-" else url).complete_url
    days_per_batch = files_per_trigger or (7 if year else 1)
    # Tables and bars are for people; a program reads stdout.
    console = Console(highlight=False, stderr=as_json)
    show = (lambda summary: say_json(asdict(summary))) if as_json else None
    raise typer.Exit(run(months, days, days_per_batch, keep, url, serve, console, show))


def simulate(
    seed: Annotated[int, typer.Option(help="First seed")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds")] = 1,
    trees: Annotated[int, typer.Option(min=1, help="Tuple trees per seed")] = 40,
    faults: Annotated[str, typer.Option(help="all, none, or a comma list of faults")] = "all",
    blocks: Annotated[
        Literal["none", "some", "only"], typer.Option(help="How many trees stand in blocks")
    ] = "some",
    server: Annotated[
        str, typer.Option(help="reference, embedded, both (compared), or a redis:// URL")
    ] = "reference",
    break_rule: Annotated[
        Literal["split", "shared", "late"] | None,
        typer.Option("--break", help="Break one of the three rules: there must be false acks"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play seeded histories full of faults, and check that no promise is broken."""
    from acker_redis.simulate.show import simulate as play

    raise typer.Exit(play(seed, seeds, trees, faults, blocks, server, break_rule or "", as_json))


PANEL = "Trying it out"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add(app, "Services", doctor, "doctor orders", "doctor orders --role producer --json")
    add(app, PANEL, tour, "tour", "tour --slow")
    add(app, PANEL, bench, "bench", "bench --seconds 5 --json")
    add(app, PANEL, demo, "demo", "demo --days 3", "demo --days 3 --serve")
    add(app, PANEL, simulate, "simulate --seeds 200", "simulate --seeds 20 --break shared")
