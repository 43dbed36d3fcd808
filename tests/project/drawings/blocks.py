"""A block of eight slots: one string of checksums, two columns of deltas, one verdict."""

from tests.project.drawings.canvas import COLOURS, SOFT, Canvas

LEFT, CELL = 210, 58
ABSENT = 4
"""The slot without a tree; its delta and its checksum are 0, which the drawing leaves out."""


def draw() -> str:
    """Return the drawing as SVG."""
    c = Canvas(
        "A block of eight slots",
        "A source tracks seven records as one string of checksums; one slot holds no tree. Columns "
        "of deltas from bolts are XORed onto it. Slots that are zero are complete. The verdict has "
        "bitmaps of slots.",
        *(790, 430),
    )
    for y, name, first in ((32, "offset", 1000), (50, "slot", 0)):
        c.text(202, y, name, size=12, colour=SOFT, anchor="end")
        for slot in range(8):
            c.text(LEFT + CELL * slot + CELL / 2, y, str(first + slot), size=12, colour=SOFT)
    inner, dense, faint = ["inner"] * 8, ["plain"] * 8, ["faint"] * 8
    faint[1] = faint[7] = "plain"
    redis = ["redis"] * 8
    redis[3] = "alarm"
    inner[ABSENT] = dense[ABSENT] = redis[ABSENT] = "faint"
    for y, name, note, texts, kinds in (
        (62, "source", 'track_block("flights/3/1000")', "a,b,c,d,,f,g,h", inner),
        (
            126,
            "bolt 1, dense",
            "one row a slot: input ^ emitted",
            "a,b ^ i,c,d ^ j,,f,g,h ^ k",
            dense,
        ),
        (190, "bolt 2, sparse", "slots 1 and 7 only", ",i,,,,,,k", faint),
        (258, "in Redis", "one string, 8 bytes a slot", "0,0,0,j,,0,0,0", redis),
    ):
        c.text(24, y + 14, name, size=14, bold=True, anchor="start")
        c.text(24, y + 32, note, size=12, colour=SOFT, anchor="start")
        c.cells(LEFT, y, CELL, texts.split(","), list(kinds))
    for y in (116, 180, 244):
        c.text(696, y, "⊕", size=20, colour=COLOURS["redis"])
    c.text(413, 312, "message j is outstanding", size=12, colour=COLOURS["alarm"])
    c.text(580, 312, "slot 4 holds no tree", size=12, colour=SOFT)
    _verdict(c)
    return c.svg()


def _verdict(c: Canvas) -> None:
    c.arrow("M44 322 L44 346", "redis")
    c.text(
        58,
        338,
        "message j is not acked within N ticks (otherwise: ack completed, all trees)",
        size=12,
        colour=COLOURS["redis"],
        anchor="start",
    )
    c.box(24, 350, 742, 58, "inner")
    c.text(
        40,
        374,
        "mixed expired  label flights/3/1000  slots 8  nacked 10  present f7",
        mono=True,
        anchor="start",
    )
    c.text(
        40,
        396,
        "bitmaps in hex: slots 0-2 and 5-7 are acked, 3 is nacked; the frontier stays at 1003",
        size=12,
        colour=SOFT,
        anchor="start",
    )
