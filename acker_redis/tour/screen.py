"""Prints the tour: on a terminal with colours and a live table, elsewhere in plain lines."""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from acker_redis.tour.book import Book, Tree

WIDTH = 100
"""Columns that are used at most; longer lines are hard to read."""
ACTOR = 8
"""Columns for the component that does something."""
LOOK_EVERY = 0.1
READING = 4.0
"""Seconds of a pause with ``--slow`` where there is no Enter key."""
PACE, SLOW_PACE = 1.0, 3.0
"""How long the pauses inside a step are, without and with ``--slow``."""
PALETTE = ("cyan", "magenta", "yellow", "bright_blue")
COLUMNS = {"order": 7, "try": 3, "checksum": 16, "open messages": 17, "state": 17, "age": 6}
"""Columns of the table of trees, and their widths: a table that changes stays where it is."""
STYLES = {"ack": "bold green", "nack": "bold red", "": "yellow"}


class Screen:
    """Prints the tour. ``slow`` waits for the Enter key between two steps."""

    def __init__(self, slow: bool = False) -> None:
        console = Console(highlight=False)
        self._watched = console.is_terminal or slow
        plain = not console.is_terminal or console.is_dumb_terminal or console.no_color
        if plain:
            console = Console(highlight=False, force_terminal=False, color_system=None)
        self._console, self._plain, self._slow = console, plain, slow
        self._live: Live | None = None
        self._book: Book | None = None
        self._shown = 0
        """Trees of earlier steps, which are not in the table."""

    def heading(self, title: str, number: int = 0, steps: int = 0) -> None:
        """Begin a step; without a number, the end of the tour."""
        place = f"{number} of {steps}  " if number else ""
        name = Text.assemble((place, "dim"), (title, "bold"))
        self._console.print()
        self.show(Rule(name, align="left", style="dim"))

    def say(self, words: str, style: str = "") -> None:
        """Print a paragraph."""
        self._lines(Text(), Text(words, style))

    def event(self, actor: str, words: str | Text, style: str = "bold") -> None:
        """Print what a component did."""
        said = Text(words) if isinstance(words, str) else words
        self._lines(Text.assemble("  ", (f"{actor:{ACTOR}} ", style)), said)

    def verdict(self, tree: Tree, words: str) -> None:
        """Print a verdict that the source received, and what it means."""
        self.event(tree.verdict, words, STYLES[tree.verdict])

    def show(self, what: RenderableType) -> None:
        """Print a table, a line or a picture."""
        self._console.print(Constrain(what, WIDTH))

    @contextlib.contextmanager
    def trees(self, book: Book) -> Iterator[None]:
        """Show the trees that are tracked in this block, in a table below all other lines."""
        self._book, self._shown = book, len(book.trees)
        self._console.print()
        try:
            if self._plain:
                yield
            else:
                with Live(
                    get_renderable=self._trees, console=self._console, auto_refresh=False
                ) as self._live:
                    yield
            if self._plain:
                self._console.print(self._trees())
        finally:
            self._live = self._book = None

    def refresh(self) -> None:
        """Read the trees from Redis, and draw them again."""
        if self._book:
            self._book.look()
        if self._live:
            self._live.refresh()

    def pause(self, seconds: float) -> None:
        """Give the reader time, and keep the table up to date. A pipe gets no pauses."""
        pace = SLOW_PACE if self._slow else PACE
        end = time.monotonic() + (pace * seconds if self._watched else 0.0)
        self.refresh()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(LOOK_EVERY, left))
            self.refresh()

    def between(self) -> None:
        """End a step: with ``--slow`` wait for the reader."""
        if not self._slow:
            return
        if sys.stdin.isatty() and sys.stdout.isatty():
            self._console.print("\n[dim]Press Enter to go on.[/dim] ", end="")
            sys.stdout.flush()
            sys.stdin.readline()
        else:
            time.sleep(READING)

    def _lines(self, head: Text, words: Text) -> None:
        """Print words in lines, indented to the width of a head that stands before the first."""
        room = max(20, min(self._console.width, WIDTH) - head.cell_len)
        for line in words.wrap(self._console, room):
            line.rstrip()
            self._console.print(head + line)
            head = Text(" " * head.cell_len)

    def _trees(self) -> RenderableType:
        table = new_table(*COLUMNS)
        for column, width in zip(table.columns, COLUMNS.values(), strict=True):
            column.min_width = width
        table.columns[-1].justify = "right"
        for tree in self._book.trees[self._shown :] if self._book else ():
            table.add_row(*_row(tree))
        return Padding(table, (1, 0, 0, 0), expand=False)


def new_table(*names: str) -> Table:
    """Return a table without rows."""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        header_style="dim",
    )
    for name in names:
        table.add_column(name, no_wrap=True)
    return table


def hexadecimal(number: int) -> str:
    """Return a checksum or an id as 16 hexadecimal digits."""
    return f"{number:016x}"


def colour_of(tree: Tree, name: str) -> str:
    """Return the colour of a message, the same wherever it is shown."""
    names = ("price", *tree.order.items)
    return PALETTE[names.index(name) % len(PALETTE)]


def listed(names: Sequence[str]) -> str:
    """Return names as a text.

    >>> listed(["chair", "desk", "rug"])
    'chair, desk and rug'
    """
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last


def _row(tree: Tree) -> list[RenderableType]:
    names = Text(", ").join(Text(name, colour_of(tree, name)) for name in tree.open)
    age = f"{tree.age_ms / 1000:.1f} s"
    state = Text(_state(tree), STYLES[tree.verdict])
    return [tree.order.id, str(tree.attempt), _checksum(tree), names, state, age]


def _state(tree: Tree) -> str:
    if tree.verdict:
        return f"{tree.verdict}: {tree.reason}"
    if not tree.pending:
        return "verdict waits"  # in Redis, until the source reads it
    return f"open, {tree.bucket} tick{'s' * (tree.bucket > 1)} old" if tree.bucket else "open"


def _checksum(tree: Tree) -> Text:
    if tree.pending and not tree.verdict:
        [only] = tree.open if len(tree.open) == 1 else [""]
        return Text(hexadecimal(tree.checksum), colour_of(tree, only) if only else "")
    # Redis deletes the record of a tree that has ended.
    return Text("deleted", "dim") if tree.open else Text(hexadecimal(0), "green")
