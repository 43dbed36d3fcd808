"""The lifetime of a tree: between N-1 and N ticks, here with three buckets."""

from tests.project.drawings.canvas import COLOURS, INK, SOFT, Canvas

LEFT, TICK, BUCKETS = 210, 150, 3


def draw() -> str:
    """Return the drawing as SVG."""
    c = Canvas(
        "The lifetime of a tree with three buckets",
        "A tree that begins directly after a tick lives three ticks; one that begins directly "
        "before a tick lives a little more than two.",
        *(790, 236),
    )
    for number in range(BUCKETS + 1):
        x = LEFT + number * TICK
        c.line(f"M{x} 44 L{x} 206", dashed=True)
        c.text(x, 34, f"tick {number}", size=12, colour=SOFT)
    for y, name, begin in ((64, "begins after tick 0", 0.04), (132, "begins before tick 1", 0.94)):
        _life(c, y, name, begin)
    c.text(
        395,
        226,
        "each tick ages every bucket by one; the trees of the oldest bucket are nacked",
        size=12,
        colour=COLOURS["alarm"],
    )
    return c.svg()


def _life(c: Canvas, y: float, name: str, begin: float) -> None:
    c.text(24, y + 22, "a tree that", size=12, colour=SOFT, anchor="start")
    c.text(24, y + 38, name, size=12, colour=INK, anchor="start")
    for age in range(BUCKETS):
        start, end = max(begin, int(begin) + age), int(begin) + age + 1
        x, width = LEFT + start * TICK, (end - start) * TICK
        c.box(x, y + 6, width, 40, ("inner", "redis", "alarm")[age])
        if width > 60:
            c.text(x + width / 2, y + 31, ("newest bucket", "older", "oldest")[age], size=12)
    x = LEFT + (int(begin) + BUCKETS) * TICK
    c.arrow(f"M{x} {y + 26} L{x + 56} {y + 26}", "alarm")
    c.text(x + 62, y + 30, "nack", size=12, colour=COLOURS["alarm"], anchor="start")
