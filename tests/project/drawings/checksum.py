"""The checksum of one tree, step by step, with real numbers of 16 bits."""

from tests.project.drawings.canvas import COLOURS, SOFT, Canvas

A, B, C = 0x9F2C, 0x51AA, 0x07D1
STEPS = (
    ("the source tracks the record", "a", A),
    ("bolt 1 acks a and emits b and c", "a ^ b ^ c", A ^ B ^ C),
    ("bolt 2 acks b", "b", B),
    ("bolt 3 acks c", "c", C),
)


def draw() -> str:
    """Return the drawing as SVG."""
    c = Canvas(
        "The checksum of a tuple tree",
        "Each row is XORed onto the checksum. Each message id enters it twice, so it is zero when "
        "every message that was emitted has also been processed.",
        *(790, 268),
    )
    c.box(34, 104, 74, 40)
    c.text(71, 129, "source", bold=True)
    c.text(125, 116, "a", size=12, colour=SOFT)
    for x, y, name in ((142, 104, "bolt 1"), (246, 60, "bolt 2"), (246, 148, "bolt 3")):
        c.box(x, y, 70, 40)
        c.text(x + 35, y + 25, name, bold=True)
    c.arrow("M108 124 L138 124")
    c.arrow("M212 116 C228 108 224 84 242 80")
    c.arrow("M212 132 C228 140 224 164 242 168")
    c.text(218, 92, "b", size=12, colour=SOFT)
    c.text(218, 166, "c", size=12, colour=SOFT)
    _table(c)
    return c.svg()


def _table(c: Canvas) -> None:
    for x, words in ((350, "call"), (570, "row"), (680, "checksum")):
        c.text(x, 36, words, size=12, colour=SOFT, anchor="start")
    checksum = 0
    for number, (call, row, delta) in enumerate(STEPS):
        checksum ^= delta
        y = 50 + 46 * number
        c.box(680, y, 76, 34, "redis" if checksum == 0 else "plain")
        c.text(718, y + 22, f"{checksum:04x}", mono=True, bold=checksum == 0)
        c.text(350, y + 22, call, anchor="start")
        c.text(570, y + 22, row, mono=True, anchor="start")
    assert checksum == 0
    c.text(
        756,
        250,
        f"zero: the tree is complete (a={A:04x}, b={B:04x}, c={C:04x}; real ids have 63 bits)",
        size=12,
        colour=COLOURS["redis"],
        anchor="end",
    )
