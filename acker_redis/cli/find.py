"""The command find: a walk over what is pending, page by page."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from acker_redis.cli import options
from acker_redis.cli.options import AsJson, Namespace, Url, add
from acker_redis.cli.output import Exit, say, say_json, warn

if TYPE_CHECKING:
    from acker_redis.flows.browse import BlockEntry, PageCursor, TreePage
    from acker_redis.protocol.tree import TreeState

PAGE = 500
"""Trees of a page, about."""
PANEL = "What is pending"


def find(
    namespace: Namespace,
    source_id: Annotated[
        str, typer.Argument(help="The source's own id, or the label of a block; all, if none")
    ] = "",
    task: Annotated[str, typer.Option(help="Only what this source has tracked")] = "",
    prefix: Annotated[
        bool, typer.Option("--prefix", "-p", help="Find what begins with the source id or label")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Print at most so many")] = 20,
    most: Annotated[
        int, typer.Option(min=1, help="Stop after about so many were looked at")
    ] = 1_000_000,
    cursor: Annotated[
        str | None, typer.Option(help="Where to go on, as the last call has said")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Find pending trees by the source's own id, or by its beginning.

    This is a scan over all that is pending, in short calls between which Redis serves others. It
    ends when --limit trees and blocks were printed, or --most looked at, and prints on stderr how
    to go on. A line each: anchor, state,
    task, source id, age in ms, why, with tabs between; of a block: its number, slots, task, label,
    age. Exit code 1 if nothing was found. If you have the anchor, ask show.
    """
    walk = _Walk(limit, as_json)
    place = walk.resume(cursor) if cursor else None
    with options.acker(namespace, url) as acker, _progress() as told:
        while True:
            page = acker.page(place, min(PAGE, walk.room), source_id, task, prefix=prefix)
            more = walk.show(page, place)
            told(walk.looked)
            place = page.next
            if more or place is None or not walk.room or walk.looked >= most:
                break
    if more := more or (str(place) if place else ""):
        warn(f"looked at {walk.looked:,}, there are more; go on with --cursor {more}")
        return
    warn(f"looked at all that is pending: {walk.looked:,}; found {walk.printed:,}")
    if not walk.printed and source_id and not prefix:
        warn(f"no source id or label is {source_id!r}; --prefix finds those that begin so")
    if not walk.printed:
        raise typer.Exit(Exit.FAILED)


class _Walk:
    """What was printed and looked at so far."""

    def __init__(self, limit: int, as_json: bool) -> None:
        self.looked = self.printed = 0
        self._limit, self._as_json = limit, as_json
        self._shown = set[str]()

    @property
    def room(self) -> int:
        """How many may still be printed."""
        return self._limit - self.printed

    def resume(self, cursor: str) -> PageCursor:
        """Return where to go on; what was printed of that page is not printed again."""
        from acker_redis.flows.browse import PageCursor

        place, _, printed = cursor.partition("+")
        self._shown = set(printed.split(",")) if printed else set()
        return PageCursor.parse(place)

    def show(self, page: TreePage, place: PageCursor | None) -> str:
        """Print a page; the cursor to go on with in the middle of it, or ''."""
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
        # This page again, without what was printed of it.
        again = [key for key in (*trees, *blocks) if key in self._shown]
        return f"{place or PageCursor()}+{','.join(again)}"

    def _say(self, found: TreeState | BlockEntry) -> None:
        from acker_redis.cli import shapes
        from acker_redis.protocol.tree import TreeState

        if isinstance(found, TreeState):
            say_json(shapes.tree(found), False) if self._as_json else say(_tree(found))
        else:
            say_json(shapes.block(found), False) if self._as_json else say(_block(found))


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """On a terminal, how many were looked at."""
    if not sys.stderr.isatty():
        yield lambda looked: None
        return
    from rich.console import Console

    with Console(stderr=True).status("looking") as status:
        yield lambda looked: status.update(f"looked at {looked:,}")


def _tree(tree: TreeState) -> str:
    fields = (tree.anchor, tree.state, tree.task, tree.source_id, tree.age_ms, tree.why)
    return "\t".join(map(str, fields))


def _block(block: BlockEntry) -> str:
    fields = (block.block, "block", block.task, block.label, block.age_ms, f"{block.slots} trees")
    return "\t".join(map(str, fields))


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(app, PANEL, find, "find orders order-17", "find orders --task shop --limit 100 --json")
