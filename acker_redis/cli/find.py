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
    from acker_redis.flows.browse import BlockEntry, PageCursor
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
    from acker_redis.cli import shapes
    from acker_redis.flows.browse import PageCursor

    place, shown = _resume(cursor) if cursor else (None, set[str]())
    looked = printed = 0
    with options.acker(namespace, url) as acker, _progress() as told:
        while True:
            page = acker.page(place, min(PAGE, limit - printed), source_id, task, prefix=prefix)
            looked += page.looked
            # HSCAN may return a record twice.
            trees = {f"{tree.anchor:x}": tree for tree in page.trees}
            blocks = {f"b{block.block:x}": block for block in page.blocks}
            new = [key for key in (*trees, *blocks) if key not in shown]
            for key in new[: limit - printed]:
                shown.add(key)
                if key in trees:
                    tree = trees[key]
                    say_json(shapes.tree(tree), False) if as_json else say(_tree(tree))
                else:
                    block = blocks[key]
                    say_json(shapes.block(block), False) if as_json else say(_block(block))
            cut = len(new) > limit - printed
            printed += min(len(new), limit - printed)
            told(looked)
            if cut:
                # This page again, without what was printed of it.
                again = [key for key in (*trees, *blocks) if key in shown]
                more = f"{place or PageCursor()}+{','.join(again)}"
                break
            place = page.next
            more = str(place) if place else ""
            if place is None or printed >= limit or looked >= most:
                break
    if more:
        warn(f"looked at {looked:,}, there are more; go on with --cursor {more}")
    else:
        warn(f"looked at all that is pending: {looked:,}; found {printed:,}")
        if not printed and source_id and not prefix:
            warn(f"no source id or label is {source_id!r}; --prefix finds those that begin so")
        if not printed:
            raise typer.Exit(Exit.FAILED)


def _resume(cursor: str) -> tuple[PageCursor, set[str]]:
    """Return where to go on, and what was printed of that page already."""
    from acker_redis.flows.browse import PageCursor

    place, _, printed = cursor.partition("+")
    return PageCursor.parse(place), set(printed.split(",")) if printed else set()


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
