"""Commands that only read: status and show."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from acker_redis.cli import options
from acker_redis.cli.options import AsJson, Namespace, Url, add
from acker_redis.cli.output import Exit, say, say_json, warn
from acker_redis.errors import AckerError, NamespaceNotFoundError, RedisRefusedError

if TYPE_CHECKING:
    from acker_redis.flows.browse import OldestTree
    from acker_redis.protocol.growth import Growth
    from acker_redis.protocol.server_version import ServerVersion
    from acker_redis.protocol.status import Status
    from acker_redis.protocol.tree import TreeState
    from acker_redis.sync.client import Acker


def status(
    namespace: Namespace,
    url: Url = None,
    sample: Annotated[
        float,
        typer.Option(min=0, max=60, help="Seconds over which rates are measured; 0: no rates"),
    ] = 1.0,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C")] = False,
    as_json: AsJson = False,
) -> None:
    """Show pending trees, high-water mark, rates, oldest tree, rotator and problems."""
    from acker_redis.protocol.growth import Growth

    settings = options.settings(url)
    with settings.acker(namespace) as acker:
        if watch:
            _watch(acker, settings.shown_url, sample or 1.0, as_json)
            return
        before = acker.status()
        if sample:
            time.sleep(sample)
        after = acker.status() if sample else before
        server = acker.connection.version()
        growth = Growth.between(before, after)
        seen = Seen(growth, growth)
        if as_json:
            say_json(_as_json(acker, after, seen, server))
        else:
            from rich.console import Console

            drawn = _drawn(acker, after, seen, settings.shown_url, server)
            Console(highlight=False).print(drawn)


def _as_json(
    acker: Acker, after: Status, seen: Seen, server: ServerVersion | None
) -> dict[str, Any]:
    from acker_redis.doctor.standing import standing

    return {
        **standing(after, seen.growth, _oldest(acker), seen.rates),
        "server": server and {"product": server.product, "version": server.number},
    }


def _drawn(
    acker: Acker, after: Status, seen: Seen, where: str, server: ServerVersion | None
) -> Any:
    from acker_redis.cli.status_view import draw

    return draw(after, seen.growth, _oldest(acker), where, server, seen.rates)


class Seen(NamedTuple):
    """Growth of the counters."""

    growth: Growth | None
    """Over the last minute, or since the first reading; used for the findings."""
    rates: Growth | None
    """Since the previous reading."""


def _oldest(acker: Acker) -> OldestTree | None:
    """Return the oldest tree; None if none is pending, or the user may not list pending trees."""
    try:
        return acker.oldest()
    except RedisRefusedError:
        return None


def _watch(acker: Acker, where: str, seconds: float, as_json: bool) -> None:
    """Show the state until Ctrl-C; while Redis is unavailable, show the error."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from acker_redis.doctor.readings import Readings
    from acker_redis.protocol.growth import Growth

    before, server = acker.status(), acker.connection.version()
    minute = Readings(lately=False)
    minute.add(before)
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            time.sleep(seconds)
            try:
                after = acker.status()
                seen = Seen(minute.add(after), Growth.between(before, after))
                if as_json:
                    say_json(_as_json(acker, after, seen, server), pretty=False)
                else:
                    live.update(_drawn(acker, after, seen, where, server), refresh=True)
                before = after
            except NamespaceNotFoundError:
                raise
            except AckerError as error:
                if as_json:
                    warn(str(error))
                else:
                    live.update(Text(f"{error}", style="red"), refresh=True)


def show(
    namespace: Namespace,
    anchor: Annotated[
        str, typer.Argument(help="Decimal, hex with 0x, or a message id ANCHOR:TUPLE")
    ],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show a pending tree and its block.

    Exit code 1 if the anchor is not pending: it already has its verdict, or was never tracked.
    """
    text = anchor.partition(":")[0]
    try:
        number = int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        raise typer.BadParameter(
            f"{anchor!r} is not an anchor; write decimal, or hex with 0x"
        ) from None
    with options.acker(namespace, url) as acker:
        tree = acker.show(number)
    if as_json:
        from acker_redis.cli import shapes

        say_json(tree and shapes.tree(tree))
    elif tree:
        _show(tree)
    else:
        warn(f"anchor {number} is not pending: it already has its verdict, or was never tracked")
    if not tree:
        raise typer.Exit(Exit.FAILED)


def _show(tree: TreeState) -> None:
    from acker_redis.doctor.words import span

    what = {
        "complete": "complete; the verdict follows when its block ends",
        "untracked": "not tracked yet",
    }
    known = tree.state
    say(f"anchor      {tree.anchor} ({tree.anchor:#x})")
    say(f"state       {what.get(known, known)}{f': {tree.why}' if tree.why else ''}")
    say(f"checksum    {tree.checksum:016x}")
    say(f"source      {f'{tree.task} {tree.source_id}' if tree.task else 'unknown'}")
    say(f"age         {span(tree.age_ms)}, in bucket {tree.bucket} (0 is the newest)")
    if tree.block:
        waits = [slot for slot in tree.block.open if slot not in tree.block.failed]
        some = ", ".join(map(str, waits[:20])) + (", .." if len(waits) > 20 else "")
        say(f"block       {tree.block.block}, {tree.block.slots:,} trees")
        say(f"open        {len(waits):,}{f': slots {some}' if some else ''}")
        say(f"failed      {len(tree.block.failed):,}")


PANEL = "Pending trees and verdicts"


def register(app: typer.Typer) -> None:
    """Register the commands."""
    add(app, PANEL, status, "status orders", "status orders --watch", "status orders --json")
    add(app, PANEL, show, "show orders 4711", "show orders 0x1267 --json")
