"""Commands that only read: status and show."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from acker_redis.cli import options
from acker_redis.cli.options import AsJson, Namespace, Url, add
from acker_redis.cli.output import Exit, say, say_json, warn
from acker_redis.errors import AckerError, NamespaceNotFoundError, RedisRefusedError
from acker_redis.terminal import count_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from acker_redis.flows.browse import OldestTree
    from acker_redis.flows.waits import Waits
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
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", "-w", help="Refresh until Ctrl-C; in a pipe each reading is printed"
        ),
    ] = False,
    edges: Annotated[
        bool, typer.Option("--edges", help="Also show on which edges pending trees wait")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show pending trees, high-water mark, rates, oldest tree, rotator and problems.

    --edges reads a sample of about 1000 pending trees, spread over shards and buckets. It shows by
    edge how many of them have an odd number of messages outstanding there, and the time since the
    last row of these trees: the median, and the longest.
    """
    from acker_redis.protocol.growth import Growth

    settings = options.settings(url)
    with settings.acker(namespace) as acker:
        view = _View(acker, settings.shown_url, edges)
        if watch:
            _watch(view, sample or 1.0, as_json)
            return
        before = acker.status()
        if sample:
            time.sleep(sample)
        after = acker.status() if sample else before
        server = acker.connection.version()
        growth = Growth.between(before, after)
        seen = Growths(growth, growth)
        if as_json:
            say_json(view.as_json(after, seen, server))
        else:
            from rich.console import Console

            Console(highlight=False).print(view.drawn(after, seen, server))


class _View:
    """Shows readings of a namespace, with what else it reads for them."""

    def __init__(self, acker: Acker, where: str, edges: bool) -> None:
        """``where`` is the URL without its password; ``edges``: also show where trees wait."""
        self.acker = acker
        self._where, self._edges = where, edges

    def as_json(self, after: Status, seen: Growths, server: ServerVersion | None) -> dict[str, Any]:
        """Return the state as JSON."""
        from acker_redis.cli import shapes
        from acker_redis.operate.status import NamespaceStatus

        waits = self._waits(after)
        return {
            **NamespaceStatus.of(
                after,
                self._oldest(),
                seen.growth,
                seen.rates,
                self._untaken(after),
                self._recent(after),
            ).model_dump(),
            **({"waits": waits and shapes.waits(waits)} if self._edges else {}),
            "server": server and {"product": server.product, "version": server.number},
        }

    def drawn(self, after: Status, seen: Growths, server: ServerVersion | None) -> RenderableType:
        """Return the view for a terminal."""
        from acker_redis.cli.status_view import draw, draw_edges

        edges = draw_edges(after, self._waits(after)) if self._edges else None
        oldest = self._oldest()
        untaken = self._untaken(after)
        recent = self._recent(after)
        where, rates = self._where, seen.rates
        return draw(after, seen.growth, oldest, where, server, rates, edges, untaken, recent)

    def _oldest(self) -> OldestTree | None:
        """Return the oldest tree; None if none is pending, or the user may not list trees."""
        try:
            return self.acker.oldest()
        except RedisRefusedError:
            return None

    def _untaken(self, status: Status) -> dict[str, int] | None:
        """Return the ages of untaken verdicts by source; None as in ``_oldest``."""
        from acker_redis.flows.untaken import read_untaken
        from acker_redis.transport.readers import kept_by, list_readers

        connection = self.acker.connection
        try:
            found = connection.drive(read_untaken(status))
        except RedisRefusedError:
            return None
        kept = kept_by(list_readers(connection.client), status) if found else frozenset[str]()
        return {name: age for name, age in found.items() if name not in kept}

    def _recent(self, status: Status) -> Growth | None:
        """Return the growth over some 15 minutes; None without history, or as in ``_oldest``."""
        from acker_redis.flows.history import read_base
        from acker_redis.protocol.growth import Growth

        try:
            base = self.acker.connection.drive(read_base(status))
        except RedisRefusedError:
            return None
        return Growth.since(base, status) if base else None

    def _waits(self, status: Status) -> Waits | None:
        """Return where trees wait; None in a namespace without edges, or as in ``_oldest``."""
        if not (self._edges and status.config.edges):
            return None
        try:
            return self.acker.waits()
        except RedisRefusedError:
            return None


class Growths(NamedTuple):
    """Growth of the counters."""

    growth: Growth | None
    """Over the last minute, or since the first reading; used for the findings."""
    rates: Growth | None
    """Since the previous reading."""


def _watch(view: _View, seconds: float, as_json: bool) -> None:
    """Show the state until Ctrl-C; while Redis is unavailable, show the error."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from acker_redis.doctor.readings import Readings
    from acker_redis.protocol.growth import Growth

    acker = view.acker
    before, server = acker.status(), acker.connection.version()
    minute = Readings(lately=False)
    minute.add(before)
    console = Console(highlight=False)
    with contextlib.ExitStack() as stack:
        draw: Callable[[RenderableType], object] = console.print
        if console.is_terminal and not as_json:
            live = stack.enter_context(Live(console=console, auto_refresh=False, screen=True))
            draw = functools.partial(live.update, refresh=True)
        while True:
            time.sleep(seconds)
            try:
                after = acker.status()
                seen = Growths(minute.add(after), Growth.between(before, after))
                if as_json:
                    say_json(view.as_json(after, seen, server), pretty=False)
                else:
                    draw(view.drawn(after, seen, server))
                before = after
            except NamespaceNotFoundError:
                raise
            except AckerError as error:
                if as_json:
                    warn(str(error))
                else:
                    draw(Text(f"{error}", style="red"))


def show(
    namespace: Namespace,
    anchor: Annotated[
        str, typer.Argument(help="Decimal, hex with 0x, or a message id ANCHOR:TUPLE")
    ],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show a pending tree and its block.

    Redis does not keep why a tree in a block has failed: its verdict has the reason, see outcomes.

    Exit code 1 if the anchor is not pending: it already has its verdict, or was never tracked. The
    anchor of a slot without a tree is not pending either; the first tree of its block is named.
    """
    text = anchor.partition(":")[0]
    try:
        number = int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        raise typer.BadParameter(
            f"{anchor!r} is not an anchor; write decimal, or hex with 0x"
        ) from None
    from acker_redis.cli import shapes

    with options.acker(namespace, url) as acker:
        tree, edges = acker.show(number), acker.config.edges
        other = None if tree else _neighbour(acker, number)
    if as_json:
        say_json(tree and shapes.tree(tree, edges))
    elif tree:
        _show(tree, tree.open_edges(edges))
    elif other:
        warn(
            f"anchor {number} is a slot without a tree, in block {other.source_id} of "
            f"{other.source}; the first tree of this block is {other.anchor}"
        )
    else:
        warn(f"anchor {number} is not pending: it already has its verdict, or was never tracked")
    if not tree:
        raise typer.Exit(Exit.FAILED)


def _neighbour(acker: Acker, anchor: int) -> TreeState | None:
    """Return the first tree of the block of an absent slot; None if the block is not pending."""
    from acker_redis.protocol.ids import split_anchor

    place = split_anchor(anchor)
    first = acker.show_block(place[0]) if place else None
    return first if first and first.block and place and place[1] in first.block.absent else None


def _show(tree: TreeState, edges: Sequence[str]) -> None:
    from acker_redis.doctor.words import span
    from acker_redis.protocol.ids import TUPLE_MAX

    what = {
        "complete": "complete; the verdict follows when its block ends",
        "untracked": "not tracked yet",
    }
    known = tree.state
    why = tree.why or ("its verdict has the reason" if tree.failed and tree.block else "")
    say(f"anchor      {tree.anchor} ({tree.anchor:#x})")
    say(f"state       {what.get(known, known)}{f': {why}' if why else ''}")
    say(f"checksum    {tree.checksum:016x}")
    if edges:
        say(f"edges       {', '.join(edges)}: an odd number of messages is outstanding on each")
    if known == "open" and tree.checksum <= TUPLE_MAX:
        say(f"missing     if one message is missing, its id is {tree.anchor}:{tree.checksum}")
    say(f"source      {f'{tree.source} {tree.source_id}' if tree.source else 'unknown'}")
    say(f"age         {span(tree.age_ms)}, in bucket {tree.bucket} (0 is the newest)")
    say(f"last row    {span(tree.idle_ms)} ago{' in the whole block' if tree.block else ''}")
    if tree.block:
        waits = [slot for slot in tree.block.open if slot not in tree.block.failed]
        some = ", ".join(map(str, waits[:20])) + (", .." if len(waits) > 20 else "")
        absent = tree.block.absent
        trees = count_of(tree.block.slots - len(absent), "tree")
        gaps = f" in {count_of(tree.block.slots, 'slot')}" if absent else ""
        say(f"block       {tree.block.block}, {trees}{gaps}")
        say(f"open        {len(waits):,}{f': slots {some}' if some else ''}")
        say(f"failed      {len(tree.block.failed):,}")


PANEL = "Pending trees and verdicts"


def register(app: typer.Typer) -> None:
    """Register the commands."""
    add(
        app,
        PANEL,
        status,
        "status orders",
        "status orders --watch",
        "status orders --edges",
        "status orders --json",
    )
    add(app, PANEL, show, "show orders 4711", "show orders 0x1267 --json")
