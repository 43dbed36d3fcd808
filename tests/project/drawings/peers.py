"""Peers side by side: trees per second on a logarithmic scale, memory, and a lost message."""

import json
import math

from benchmarks.peers.report import Result, Row, heading, number
from tests.project.drawings.canvas import COLOURS, SOFT, Canvas
from tests.project.imports import ROOT

FOLDER = ROOT / "benchmarks" / "peers"

LEFT, WIDTH, STEP = 190, 260, 30
LOW, HIGH = 1, 6
"""The powers of ten at both ends of the scale."""


def stored() -> Result:
    """Return the stored result."""
    return Result.of_json(json.loads((FOLDER / "result.json").read_text()))


def draw() -> str:
    """Return the drawing of the stored result as SVG."""
    return chart(stored())


def chart(result: Result) -> str:
    """Return the drawing of a result as SVG."""
    rows = [row for row in result.rows if not row.skipped]
    c = Canvas(
        "A tree of five messages through acker-redis and its peers",
        "For each peer: trees per second, bytes of Redis for a pending tree, and the observation "
        "of a tree that lost a message. Task queues also carry and execute the messages.",
        *(790, 84 + STEP * len(rows)),
    )
    for x, words in (
        (LEFT, "trees/s, logarithmic"),
        (532, "bytes/tree"),
        (620, "a message is lost"),
    ):
        c.text(x, 34, words, size=12, colour=SOFT, anchor="start")
    for place, row in enumerate(rows):
        _row(c, 46 + STEP * place, row)
    c.text(24, 66 + STEP * len(rows), heading(result), size=11, colour=SOFT, anchor="start")
    return c.svg()


def _row(c: Canvas, y: float, row: Row) -> None:
    own = row.name.startswith("acker-redis")
    c.text(24, y + 15, row.name, size=12, bold=own, anchor="start")
    c.box(LEFT, y, length(row.trees_per_s), 20, "redis" if own else "plain")
    x = LEFT + length(row.trees_per_s) + 8
    c.text(x, y + 15, number(row.trees_per_s), size=12, anchor="start")
    c.text(592, y + 15, number(row.bytes_per_tree), size=12, anchor="end")
    loss = row.lost.get("dropped")
    named = loss is not None and loss.kind == "name"
    colour = COLOURS["redis" if named else "alarm"]
    c.text(620, y + 15, str(loss or "not seen"), size=12, colour=colour, anchor="start")


def length(trees_per_s: float) -> float:
    """Return the pixels of a bar; a figure outside the scale is drawn at its end."""
    power = min(max(math.log10(max(trees_per_s, 1)), LOW), HIGH)
    return 8 + (WIDTH - 8) * (power - LOW) / (HIGH - LOW)
