"""The stored result as text. Pure: it reads no file and measures nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Loss:
    """The observation of a tree that lost a message."""

    kind: str
    """nothing, redelivered, error or name."""
    words: str
    after_s: float

    def __str__(self) -> str:
        if self.kind == "nothing":
            return f"nothing in {self.after_s:g} s"
        return f"{self.kind} after {self.after_s:.0f} s"


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of a peer, or the reason why it was skipped."""

    name: str
    also: str
    trees_per_s: float = 0
    bytes_per_tree: float = 0
    sent_per_tree: float = 0
    """Commands that its clients sent, by MONITOR."""
    commands_per_tree: float = 0
    """Commands that the server executed, those of scripts included, by commandstats."""
    lost: dict[str, Loss] = field(default_factory=dict)
    """By how the message was lost: ``killed`` or ``dropped``."""
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One run."""

    date: str
    server: str
    cores: int
    wait_s: int
    small: bool
    """Whether each peer had a twentieth of its trees: the figures then show the order only."""
    load: float
    """Load of the machine before the run: of other work."""
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON has it."""
        return asdict(self)

    @classmethod
    def of_json(cls, stored: dict[str, Any]) -> Result:
        """Read a result that :meth:`to_json` made."""
        rows = (
            Row(**{**row, "lost": {how: Loss(**loss) for how, loss in row["lost"].items()}})
            for row in stored["rows"]
        )
        return cls(**{**stored, "rows": tuple(rows)})


def number(value: float) -> str:
    """Return a figure with two significant digits below ten, and none after the point above."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


HEAD = ("", "trees/s", "bytes a pending tree", "sent a tree", "executed a tree",
        "worker killed", "message dropped", "does besides")  # fmt: skip


def table(result: Result) -> str:
    """Return a Markdown table, a row for each peer."""
    lines = [HEAD, ("---", *("---:",) * 4, *("---",) * 3)]
    for row in result.rows:
        if row.skipped:
            lines.append((row.name, *("",) * 6, f"skipped: {row.skipped}"))
            continue
        figures = (row.trees_per_s, row.bytes_per_tree, row.sent_per_tree, row.commands_per_tree)
        losses = (str(row.lost[how]) if how in row.lost else "-" for how in ("killed", "dropped"))
        lines.append((row.name, *map(number, figures), *losses, row.also))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def heading(result: Result) -> str:
    """Return the line that says where and when the figures were measured."""
    small = ", small run" if result.small else ""
    return (
        f"{result.server}, {result.cores} cores, {result.date}, load {result.load:.1f} before"
        f"{small}; waited {result.wait_s} s for lost messages"
    )
