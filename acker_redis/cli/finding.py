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
    from acker_redis.tree_page import BlockEntry
    from acker_redis.tree_state import TreeState

PAGE = 500
"""Trees of a page, about."""
PANEL = "What is pending"


def find(
    namespace: Namespace,
    source_id: Annotated[
        str, typer.Argument(help="The source's own id, or the label of a block; all, if none")
    ] = "",
    task: Annotated[str, typer.Option(help="Only what this source has tracked")] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Stop after about so many were found")
    ] = 20,
    most: Annotated[
        int, typer.Option(min=1, help="Stop after about so many were looked at")
    ] = 1_000_000,
    cursor: Annotated[
        str | None, typer.Option(help="Where to go on, as the last call has said")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Find pending trees by the source's own id.

    This is a scan over all that is pending, in short calls between which Redis serves others. It
    ends when enough was shown or looked at, and says where to go on. A line each: anchor, state,
    task, source id, age in ms, why, with tabs between; of a block: its number, slots, task, label,
    age. Exit code 1 if nothing was found. If you have the anchor, ask show.
    """
    from acker_redis.cli import shapes
    from acker_redis.tree_page import PageCursor

    place = PageCursor.parse(cursor) if cursor else None
    looked, seen = 0, set[tuple[str, int]]()
    with options.acker(namespace, url) as acker, _progress() as told:
        while True:
            page = acker.page(place, min(PAGE, limit), source_id, task)
            looked, place = looked + page.looked, page.next
            for tree in page.trees:
                if ("tree", tree.anchor) not in seen:
                    seen.add(("tree", tree.anchor))
                    say_json(shapes.tree(tree), False) if as_json else say(_tree(tree))
            for block in page.blocks:
                if ("block", block.block) not in seen:
                    seen.add(("block", block.block))
                    say_json(shapes.block(block), False) if as_json else say(_block(block))
            told(looked)
            if place is None or len(seen) >= limit or looked >= most:
                break
    if place is None:
        warn(f"looked at all that is pending: {looked:,}; found {len(seen):,}")
    else:
        warn(f"looked at {looked:,}, there are more; go on with --cursor {place}")
    if not seen and place is None:
        raise typer.Exit(Exit.FAILED)


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
