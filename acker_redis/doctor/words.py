"""Format durations and lists for messages."""

from collections.abc import Sequence

SHOWN = 4
"""Maximum number of names in a list."""


def span(ms: float) -> str:
    """Return a duration as text: ``250 ms``, ``12.5 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def some(names: Sequence[object]) -> str:
    """Return the first names of a list, separated by commas; ``..`` stands for the others."""
    return ", ".join(map(str, names[:SHOWN])) + (", .." if len(names) > SHOWN else "")
