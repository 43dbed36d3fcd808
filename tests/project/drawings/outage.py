"""An outage of a worker over time, with and without windows, as the benchmark has measured it."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from tests.project.drawings.canvas import COLOURS, SOFT, Canvas
from tests.project.imports import ROOT

RESULTS = ROOT / "benchmarks" / "outage.json"
LEFT, WIDTH, HEIGHT = 60, 640, 120
WORDS = {True: ("with windows", "redis"), False: ("without", "alarm")}


def draw() -> str:
    """Return the drawing of the stored results as SVG."""
    found = json.loads(RESULTS.read_text())
    return chart({each["case"]["adaptive"]: each for each in found})


def chart(found: dict[bool, dict[str, Any]]) -> str:
    """Return the drawing of a case with windows, and the same case without."""
    case = found[True]["case"]
    away = case["lifetimes"] * 2.0
    c = Canvas(
        f"A worker is away for {case['lifetimes']:g} lifetimes, at {case['load']:.0%} of capacity",
        "With windows the backlog is worked off, and acks go on. Without, nothing is acked again.",
        *(740, 400),
    )
    end = max(point[0] for each in found.values() for point in each["series"])
    start = min(point[0] for each in found.values() for point in each["series"])

    def x(seconds: float) -> float:
        return LEFT + (seconds - start) / (end - start) * WIDTH

    for number, (title, values) in enumerate(
        (("records acked a second", _rates), ("records that wait or are in flight", _waiting))
    ):
        top = 60 + number * 165
        lines = {windows: values(each["series"]) for windows, each in found.items()}
        most = max(1.0, *(value for line in lines.values() for _, value in line))
        c.text(LEFT, top - 10, title, size=12, colour=SOFT, anchor="start")
        c.box(x(0), top, x(away) - x(0), HEIGHT, "alarm")
        c.text((x(0) + x(away)) / 2, top + 16, "away", size=11, colour=COLOURS["alarm"])
        c.line(f"M{LEFT} {top + HEIGHT} H{LEFT + WIDTH}")
        c.text(LEFT - 8, top + 8, f"{most:.0f}", size=11, colour=SOFT, anchor="end")
        c.text(LEFT - 8, top + HEIGHT, "0", size=11, colour=SOFT, anchor="end")
        for windows, line in lines.items():
            points = [f"{x(at):.1f} {top + HEIGHT * (1 - max(0, v) / most):.1f}" for at, v in line]
            c.line("M" + " L".join(points), WORDS[windows][1], dashed=not windows)
    for seconds in range(0, int(end) + 1, 10):
        c.text(x(seconds), 60 + 165 + HEIGHT + 18, f"{seconds} s", size=11, colour=SOFT)
    for number, (words, kind) in enumerate(WORDS.values()):
        left = LEFT + 150 * number
        c.line(f"M{left} 380 H{left + 30}", kind, dashed=kind == "alarm")
        c.text(left + 38, 384, words, size=12, anchor="start")
    return c.svg()


def _rates(series: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Return the acks a second between each two points."""
    pairs = itertools.pairwise(series)
    return [(b[0], (b[2] - a[2]) / max(0.1, b[0] - a[0])) for a, b in pairs]


def _waiting(series: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    return [(point[0], point[1]) for point in series]
