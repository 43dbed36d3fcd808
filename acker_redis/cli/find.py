"""The command find: scan the pending trees, page by page."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from acker_redis.cli import options
from acker_redis.cli.options import AsJson, Namespace, Url, add
from acker_redis.cli.output import Exit, say, say_json, warn

if TYPE_CHECKING:
    from acker_redis.flows.browse import BlockEntry, PageCursor, TreePage
    from acker_redis.protocol.tree import TreeState

PAGE = 500
"""Approximate number of trees per page."""
PANEL = "Pending trees and verdicts"


def find(
    namespace: Namespace,
    source_id: Annotated[
        str, typer.Argument(help="Source id, or label of a block; default: all")
    ] = "",
    source: Annotated[
        str, typer.Option("--source", help="Only trees and blocks of this source")
    ] = "",
    prefix: Annotated[
        bool, typer.Option("--prefix", "-p", help="Match source ids and labels by their prefix")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Print at most this many trees and blocks")
    ] = 20,
    most: Annotated[
        int, typer.Option(min=1, help="Stop after scanning about this many trees and blocks")
    ] = 1_000_000,
    cursor: Annotated[
        str | None, typer.Option(help="Continue at the cursor that the previous call printed")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Find pending trees by source id, or by its prefix.

    The command scans all pending trees in short calls, and Redis serves other clients between them.
    It ends after printing --limit trees and blocks, or after scanning about --most of them. It then
    prints on stderr the cursor to continue with.

    Each line has fields separated by tabs. A tree: anchor, state, source, source id, age in ms,
    why, ms since its last row, checksum, edges with an odd number of outstanding messages. A block:
    number, the word block, source, label, age in ms, number of trees, ms since its last row. A
    block in which some slots hold no tree has the number of its slots instead, as "up to 9 trees".

    Exit code 1 if nothing was found. If you know the anchor, use show.
    """
    walk = _Walk(limit, as_json)
    place = walk.resume(cursor) if cursor else None
    with options.acker(namespace, url) as acker, _progress() as report:
        walk.edges = acker.config.edges
        while True:
            page = acker.page(place, min(PAGE, walk.room), source_id, source, prefix=prefix)
            more = walk.show(page, place)
            report(walk.looked)
            place = page.next
            if more or place is None or not walk.room or walk.looked >= most:
                break
    if more := more or (str(place) if place else ""):
        warn(
            f"scanned {walk.looked:,} trees and blocks, more remain; continue with --cursor {more}"
        )
        return
    warn(f"scanned {walk.looked:,} trees and blocks, which are all; found {walk.printed:,}")
    if not walk.printed and source_id and not prefix:
        warn(f"no pending source id or label equals {source_id!r}; --prefix matches the beginning")
    if not walk.printed:
        raise typer.Exit(Exit.FAILED)


class _Walk:
    """Counts of one scan: scanned and printed trees."""

    def __init__(self, limit: int, as_json: bool) -> None:
        self.looked = self.printed = 0
        self.edges: tuple[str, ...] = ()
        """The edges of the namespace."""
        self._limit, self._as_json = limit, as_json
        self._shown = set[str]()

    @property
    def room(self) -> int:
        """Return how many trees and blocks may still be printed."""
        return self._limit - self.printed

    def resume(self, cursor: str) -> PageCursor:
        """Return the position of the cursor; remember which trees of its page were printed."""
        from acker_redis.flows.browse import PageCursor

        place, _, printed = cursor.partition("+")
        self._shown = set(printed.split(",")) if printed else set()
        return PageCursor.parse(place)

    def show(self, page: TreePage, place: PageCursor | None) -> str:
        """Print a page; return the cursor if the limit ended inside the page, else ''."""
        from acker_redis.flows.browse import PageCursor

        self.looked += page.looked
        # HSCAN may return a record twice.
        trees = {f"{tree.anchor:x}": tree for tree in page.trees}
        blocks = {f"b{block.block:x}": block for block in page.blocks}
        new = [key for key in (*trees, *blocks) if key not in self._shown]
        now = new[: self.room]
        for key in now:
            self._say(trees[key] if key in trees else blocks[key])
        self._shown.update(now)
        self.printed += len(now)
        if len(new) == len(now):
            return ""
        # The cursor repeats this page, and names the keys that were printed.
        again = [key for key in (*trees, *blocks) if key in self._shown]
        return f"{place or PageCursor()}+{','.join(again)}"

    def _say(self, found: TreeState | BlockEntry) -> None:
        from acker_redis.cli import shapes
        from acker_redis.protocol.tree import TreeState

        if not isinstance(found, TreeState):
            say_json(shapes.block(found), False) if self._as_json else say(_block(found))
        elif self._as_json:
            say_json(shapes.tree(found, self.edges), False)
        else:
            say(_tree(found, found.open_edges(self.edges)))


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Show the number of scanned trees, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda looked: None
        return
    from rich.console import Console

    with Console(stderr=True).status("scanning") as status:
        yield lambda looked: status.update(f"scanned {looked:,}")


def _tree(tree: TreeState, edges: Sequence[str]) -> str:
    fields = (tree.anchor, tree.state, tree.source, tree.source_id, tree.age_ms, tree.why)
    return "\t".join(map(str, (*fields, tree.idle_ms, f"{tree.checksum:016x}", ",".join(edges))))


def _block(block: BlockEntry) -> str:
    trees = f"{'up to ' if block.partial else ''}{block.slots} trees"
    fields = (block.block, "block", block.source, block.label, block.age_ms, trees)
    return "\t".join(map(str, (*fields, block.idle_ms)))


def register(app: typer.Typer) -> None:
    """Register the command."""
    add(app, PANEL, find, "find orders order-17", "find orders --source shop --limit 100 --json")
