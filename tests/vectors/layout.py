"""JSON with readable diffs: a value that fits is on one line, and a call always is."""

import json
import re
from typing import Any

WIDTH = 100
FLAT = {"config", "counters"}
"""Names of values that are on one line, at any length."""
LINES = {"calls", "rows", "outcomes"}
"""Names of lists with one line per item."""
DEEP = {"vectors", "steps", "calls", "state"}
MANY = 64
"""A list with more items than this has several items per line."""


def render(value: Any) -> str:
    """Return the text of a file of vectors."""
    return _render(value, 0, "") + "\n"


def _render(value: Any, indent: int, name: str, one_line: bool = False) -> str:
    compact = _visible(json.dumps(value, ensure_ascii=False))
    if one_line or name in FLAT or not isinstance(value, dict | list) or not value:
        return compact
    # Vectors, steps and calls are never on one line with others.
    deep = (isinstance(value, dict) and not DEEP.isdisjoint(value)) or name in DEEP
    if not deep and indent + len(compact) <= WIDTH:
        return compact
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [
            f"{inner}{_visible(json.dumps(key, ensure_ascii=False))}: "
            + _render(item, indent + 1, key)
            for key, item in value.items()
        ]
        return "{\n" + ",\n".join(parts) + "\n" + " " * indent + "}"
    parts = [inner + _render(item, indent + 1, "", name in LINES) for item in value]
    if len(parts) > MANY:
        parts = _filled(parts, inner)
    return "[\n" + ",\n".join(parts) + "\n" + " " * indent + "]"


def _filled(parts: list[str], inner: str) -> list[str]:
    lines = [parts[0]]
    for part in parts[1:]:
        longer = f"{lines[-1]}, {part.removeprefix(inner)}"
        if len(longer) < WIDTH:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def _visible(text: str) -> str:
    """Replace each letter that is not printable by \\u and its number."""
    return re.sub(
        r"[^\x20-\x7e]", lambda m: m[0] if m[0].isprintable() else json.dumps(m[0])[1:-1], text
    )
