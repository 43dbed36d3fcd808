"""The reports of programs about themselves: the call of ``report``, and how they are read. No I/O.

A report is a text for operators. It is bounded, anybody with the rights of a namespace may write
one, and no verdict depends on it. So a reader drops a report that it does not understand.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from acker_redis.protocol.keys import is_name
from acker_redis.protocol.stored import MAX_COUNT, count

# From lua/spec.json, by python -m proof.spec
MAX_REPORT = 4096
MAX_EDGES = 8
REPORT_MS = 180_000
"""Milliseconds after which a report counts as gone."""


@dataclass(frozen=True, slots=True)
class SourceEdge:
    """What a source says of one of its edges: see :meth:`Source.status`.

    >>> from acker_redis import SourceEdge
    >>> SourceEdge("parts", window=1000, in_flight=12, waiting=0, down_for=None).edge
    'parts'
    """

    edge: str
    """Name of the edge that first messages travel on; '' for records without one."""
    window: int | None
    """Records that may be in flight; None with ``adaptive=False``, which has no window."""
    in_flight: int
    """Records that were sent, and have no verdict yet."""
    waiting: int
    """Records that wait for the window or for their back-off."""
    down_for: float | None
    """Seconds since which no answer comes, so that only probes are sent; None if answers come."""


@dataclass(frozen=True, slots=True)
class Report:
    """The last report of a program."""

    age_ms: int
    """Time since then."""
    windows: tuple[SourceEdge, ...]
    """The edges of a source; () for another program. ``down_for`` is as of the report."""

    def down_ms(self, edge: SourceEdge) -> int | None:
        """Return for how long an edge has been down by now, in ms; None if answers come."""
        return None if edge.down_for is None else round(1000 * edge.down_for) + self.age_ms


def told(edges: Iterable[SourceEdge]) -> tuple[SourceEdge, ...]:
    """Return the edges that a report has: at most 8, those that are down or have most records."""
    weight = {each: (each.down_for is None, -each.in_flight - each.waiting) for each in edges}
    return tuple(sorted(weight, key=lambda each: (weight[each], each.edge))[:MAX_EDGES])


def text_of(windows: Iterable[SourceEdge]) -> str:
    """Return the text of a source's report.

    >>> text_of([SourceEdge("parts", 10, 3, 1, 2.5)])
    '{"windows":[{"edge":"parts","window":10,"in_flight":3,"waiting":1,"down_ms":2500}]}'
    """
    shown = [
        {
            "edge": each.edge,
            "window": each.window,
            "in_flight": max(0, each.in_flight),
            "waiting": max(0, each.waiting),
            "down_ms": None if each.down_for is None else max(0, round(1000 * each.down_for)),
        }
        for each in windows
    ]
    return json.dumps({"windows": shown}, separators=(",", ":"))


def parse_reports(flat: Sequence[bytes | str], now_ms: int) -> dict[str, Report]:
    """Return the reports of ``status`` by program, without those that are gone or damaged."""
    texts = [each.decode(errors="replace") if isinstance(each, bytes) else each for each in flat]
    pairs = zip(texts[::2], texts[1::2], strict=False)
    found = {name: _parse(text, now_ms) for name, text in sorted(pairs) if is_name(name)}
    return {name: report for name, report in found.items() if report}


def _parse(stored: str, now_ms: int) -> Report | None:
    at, _, text = stored.partition(":")
    try:
        age_ms = now_ms - count(at)
        if not 0 <= age_ms < REPORT_MS or len(text) > MAX_REPORT:
            return None
        windows = tuple(map(_edge, json.loads(text).get("windows", ())))
        names = {each.edge for each in windows}
        return Report(age_ms, windows) if len(windows) == len(names) <= MAX_EDGES else None
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None


def _edge(entry: Any) -> SourceEdge:
    edge, window, down_ms = entry["edge"], entry["window"], entry["down_ms"]
    if edge and not is_name(edge):
        raise ValueError("no edge has this name")
    return SourceEdge(
        str(edge),
        None if window is None else _number(window),
        _number(entry["in_flight"]),
        _number(entry["waiting"]),
        None if down_ms is None else _number(down_ms) / 1000,
    )


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise ValueError("no program counts this")
    return int(value)
