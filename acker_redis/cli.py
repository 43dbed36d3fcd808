"""The command line."""

import logging
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import typer

from acker_redis.client import Acker
from acker_redis.config import AckerConfig
from acker_redis.errors import AckerError
from acker_redis.rotator import Rotator
from acker_redis.urls import redact

EXIT_ERROR = 1
EXIT_USAGE = 2

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Know, per source record, whether everything that followed from it was processed.",
)

Namespace = Annotated[str, typer.Argument(help="Name of the acker, 1 to 64 of A-Z a-z 0-9 _ . -")]
Url = Annotated[
    str,
    typer.Option(
        envvar="ACKER_REDIS_URL",
        help="redis://, redis+cluster://, redis+sentinel:// (rediss for TLS) or unix://",
        show_envvar=True,
    ),
]
DEFAULT_URL = "redis://127.0.0.1:6379/0"
DEFAULTS = AckerConfig()


@app.command()
def create(
    namespace: Namespace,
    url: Url = DEFAULT_URL,
    shards: Annotated[int, typer.Option(help="A power of two")] = DEFAULTS.shards,
    buckets: Annotated[int, typer.Option(help="Rotating buckets, 2 to 16")] = DEFAULTS.buckets,
    tick_ms: Annotated[int, typer.Option(help="Time between rotations")] = DEFAULTS.tick_ms,
    high_water: Annotated[int, typer.Option(help="Pending trees")] = DEFAULTS.high_water,
    refresh: Annotated[
        Literal["never", "update"],
        typer.Option(help="What restarts a tree's clock: touches only, or every row"),
    ] = DEFAULTS.refresh,
    outcomes_limit: Annotated[
        int, typer.Option(help="Verdicts that may wait for one task")
    ] = DEFAULTS.outcomes_limit,
    publish: Annotated[bool, typer.Option(help="Publish verdicts on pub/sub")] = DEFAULTS.publish,
) -> None:
    """Create a namespace; the same again changes nothing."""
    config = AckerConfig(
        shards=shards,
        buckets=buckets,
        tick_ms=tick_ms,
        high_water=high_water,
        refresh=refresh,
        outcomes_limit=outcomes_limit,
        publish=publish,
    )
    with Acker.from_url(url, namespace) as acker:
        made = acker.create(config)
    typer.echo(f"{namespace}: {'created' if made else 'is there, with this configuration'}")


@app.command()
def rotator(namespaces: Annotated[list[str], typer.Argument()], url: Url = DEFAULT_URL) -> None:
    """Run the rotator for some namespaces, until SIGTERM or Ctrl-C. Any number may run."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop = threading.Event()

    def leave(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    ackers = [Acker.from_url(url, namespace) for namespace in namespaces]
    for acker in ackers:
        if acker.config:
            logging.info("rotating %s at %s", acker.namespace, redact(url))
    Rotator(ackers).run(stop)
    logging.info("left")


@app.command()
def status(namespace: Namespace, url: Url = DEFAULT_URL) -> None:
    """Show pending trees, counters and backlog."""
    with Acker.from_url(url, namespace) as acker:
        state = acker.status()
    pending = " + ".join(f"{count:,}" for count in state.pending_by_bucket)
    typer.echo(f"pending     {state.pending:,} (newest bucket first: {pending})")
    typer.echo(f"in blocks   {state.in_blocks:,}")
    typer.echo(f"expiring    {state.expiring:,}")
    typer.echo(f"high water  {state.high_water} (mark {state.config.high_water:,})")
    for name, count in state.counters.items():
        typer.echo(f"{name:11} {count:,}")
    for task, waiting in state.backlog.items():
        typer.echo(f"waiting     {waiting:,} verdicts for {task}")


@app.command()
def show(
    namespace: Namespace,
    anchor: Annotated[str, typer.Argument(help="Decimal, or hex with 0x")],
    url: Url = DEFAULT_URL,
) -> None:
    """Show what is known of a pending tree, and of the block it stands in."""
    try:
        number = int(anchor, 16 if anchor.lower().startswith("0x") else 10)
    except ValueError:
        raise typer.BadParameter(f"{anchor!r} is no number; one in hex begins with 0x") from None
    with Acker.from_url(url, namespace) as acker:
        tree = acker.show(number)
    if tree is None:
        typer.echo(f"anchor {number} is not pending: it was told of, or was never tracked")
        raise typer.Exit(EXIT_ERROR)
    done = "complete, told when its block ends"
    state = "failed" if tree.failed else "open" if tree.checksum else done
    typer.echo(f"state       {state}{f': {tree.why}' if tree.why else ''}")
    typer.echo(f"checksum    {tree.checksum:016x}")
    typer.echo(f"source      {tree.task or 'not tracked yet'} {tree.source_id}")
    typer.echo(f"age         {tree.age_ms / 1000:,.1f} s, in bucket {tree.bucket}")
    if tree.block:
        waits = [slot for slot in tree.block.open if slot not in tree.block.failed]
        some = ", ".join(map(str, waits[:20])) + (", .." if len(waits) > 20 else "")
        typer.echo(f"block       {tree.block.block}, {tree.block.slots:,} trees")
        typer.echo(f"open        {len(waits):,}{f': slots {some}' if some else ''}")
        typer.echo(f"failed      {len(tree.block.failed):,}")


@app.command()
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
) -> None:
    """Account for every flight that left New York: Spark, Redis and the acker on real data."""
    try:
        from rich.console import Console

        from acker_flights import data
        from acker_flights.demo import Options, run
    except ModuleNotFoundError as error:
        typer.echo(f"{error.name} is missing; pip install 'acker-redis[demo]'", err=True)
        raise typer.Exit(EXIT_USAGE) from None
    if keep and keep.exists():
        typer.echo(f"{keep} exists; name a directory that does not, for the tables", err=True)
        raise typer.Exit(EXIT_USAGE)
    months = tuple(range(1, 13)) if year else (month,)
    options = Options(data.Selection(months, days), files_per_trigger or (7 if year else 1), keep)
    raise typer.Exit(run(options, Console(highlight=False)))


@app.command()
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
) -> None:
    """Play seeded histories full of faults, and check that no promise is broken."""
    from acker_redis.simulate.show import simulate as play

    raise typer.Exit(play(seed, seeds, trees, faults, blocks, server, break_rule or ""))


def main() -> None:
    """Entry point: an AckerError is one sentence on stderr and exit code 1."""
    try:
        app()
    except AckerError as error:
        typer.echo(f"acker-redis: {error}", err=True)
        sys.exit(EXIT_ERROR)
