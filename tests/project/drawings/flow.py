"""The overview: how a record is accounted for."""

from tests.project.drawings.canvas import COLOURS, SOFT, Canvas


def draw() -> str:
    """Return the drawing as SVG."""
    c = Canvas(
        "How a record is accounted for",
        "A source tracks a record. Bolts ack messages and name the messages they emit. Redis keeps "
        "one checksum per record. A rotator expires records. The source reads its verdicts.",
        *(790, 404),
    )
    _programs(c)
    _redis(c)
    _calls(c)
    return c.svg()


def _programs(c: Canvas) -> None:
    for x, y, height, name in (
        *((40, 40, 62, "source"), (330, 22, 44, "bolt"), (330, 80, 44, "bolt")),
        (620, 48, 44, "bolt"),
    ):
        c.box(x, y, 130, height)
        c.text(x + 65, y + 27, name, size=14, bold=True)
    c.text(105, 87, "Spark job, service", size=12, colour=SOFT)
    for path in (
        *("M170 62 C240 44 270 44 326 44", "M170 80 C240 102 270 102 326 102"),
        *("M460 44 C540 44 560 62 616 66", "M460 102 C540 102 560 80 616 76"),
    ):
        c.arrow(path)
    for x, y, words in (
        (246, 38, "message a"),
        (246, 118, "message b"),
        (540, 42, "c"),
        (540, 110, "d"),
    ):
        c.text(x, y, words, size=12, colour=SOFT)


def _redis(c: Canvas) -> None:
    green, amber = COLOURS["redis"], COLOURS["alarm"]
    c.box(40, 196, 710, 124, "redis")
    c.text(
        60,
        220,
        "Redis, changed only by atomic Lua scripts",
        size=14,
        colour=green,
        bold=True,
        anchor="start",
    )
    for x, width, kind, title, rows in (
        (60, 120, "inner", "newest bucket", ("order-3  9f2c…", "order-4  51aa…")),
        (190, 120, "inner", "older bucket", ("order-2  07d1…",)),
        (320, 120, "alarm", "expiring bucket", ("order-1  c3e8…",)),
        (
            540,
            190,
            "inner",
            "outcomes, a durable stream",
            ("ack  order-0", "nack order-1  expired"),
        ),
    ):
        c.box(x, 234, width, 70, kind)
        c.text(x + width / 2, 254, title, size=12)
        for number, row in enumerate(rows):
            c.text(x + width / 2, 274 + 17 * number, row, size=11, mono=True)
    c.arrow("M440 269 L536 269", "alarm")
    c.text(488, 260, "nack", size=12, colour=amber)
    c.arrow("M120 336 L376 336", "alarm", dashed=True)
    c.text(248, 354, "each tick, the rotator ages every bucket by one", size=12, colour=amber)


def _calls(c: Canvas) -> None:
    green = COLOURS["redis"]
    for path in ("M82 102 L82 192", "M378 124 L378 192", "M685 92 L685 192"):
        c.arrow(path, "redis")
    for x, y, verb, ids in (
        (90, 142, "track", "a ^ b"),
        (386, 150, "ack", "a ^ c,  b ^ d"),
        (693, 142, "ack", "c,  d"),
    ):
        c.text(x, y, verb, size=12, colour=green, anchor="start")
        c.text(x, y + 16, ids, size=12, colour=green, mono=True, anchor="start")
    c.arrow("M635 304 L635 372 L22 372 L22 71 L36 71")
    c.text(
        395, 391, "the source reads its verdicts and replays nacked records", size=12, colour=SOFT
    )
