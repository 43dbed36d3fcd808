"""Draw the wings of the package from its imports; ``python -m tests.project.drawings`` writes it.

An arrow leads from a wing to one that it imports. An arrow that a longer path implies is omitted.
"""

import ast
from textwrap import wrap

from tests.project.drawings.canvas import SOFT, Canvas
from tests.project.imports import ORDER, PACKAGE, own_imports, wing

WIDTH, ROW, BOX_HEIGHT, GAP, MARGIN = 1040, 128, 84, 24, 20
WINGS = ORDER[1:-1]
"""Floors that are drawn, from the bottom to the top; files at the root of the package are not."""


def purpose(name: str) -> str:
    """Return the purpose of a wing: the first sentence of its docstring."""
    text = ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text())) or ""
    return text.splitlines()[0].split(". ")[0].rstrip(".").replace("``", "")


def arrows() -> dict[str, set[str]]:
    """Return the wings that each wing imports, without those that a longer path implies."""
    drawn = {name for names in WINGS for name in names}
    uses: dict[str, set[str]] = {name: set() for name in drawn}
    for each in own_imports():
        own, other = each.file.relative_to(PACKAGE).parts[0], wing(each.module)
        if own in drawn and other in drawn and own != other:
            uses[own].add(other)

    def reached(name: str) -> set[str]:
        return uses[name] | {far for near in uses[name] for far in reached(near)}

    return {
        name: {
            other
            for other in others
            if not any(other in reached(near) for near in others - {other})
        }
        for name, others in uses.items()
    }


def draw() -> str:
    """Return the picture as SVG."""
    canvas = Canvas(
        "The wings of acker_redis and their imports",
        "Each box is a folder of the package. An arrow leads to a folder that it imports.",
        *(WIDTH, ROW * len(WINGS) + 2 * MARGIN),
    )
    places = _places(canvas.height)
    for name, others in sorted(arrows().items()):
        for other in sorted(others):
            (x, y, width), (to_x, to_y, to_width) = places[name], places[other]
            begin, end, bottom = x + width / 2, to_x + to_width / 2, y + BOX_HEIGHT
            # An arrow that passes several floors bends around the boxes between them.
            bend = (to_y - y) / 2
            canvas.arrow(
                f"M{begin:.0f} {bottom:.0f} C{begin:.0f} {bottom + bend:.0f}, "
                f"{end:.0f} {to_y - bend:.0f}, {end:.0f} {to_y - 2:.0f}"
            )
    for name, (x, y, width) in sorted(places.items()):
        canvas.box(x, y, width, BOX_HEIGHT)
        canvas.text(x + width / 2, y + 22, f"{name}/", size=15, bold=True)
        for number, line in enumerate(wrap(purpose(name), int(width / 6.4))):
            canvas.text(x + width / 2, y + 40 + 15 * number, line, size=11.5, colour=SOFT)
    return canvas.svg()


def _places(height: int) -> dict[str, tuple[float, float, float]]:
    """Return the left edge, the top and the width of the box of each wing."""
    places = {}
    for floor, names in enumerate(WINGS):
        width = min(420.0, (WIDTH - 2 * MARGIN - GAP * (len(names) - 1)) / len(names))
        left = (WIDTH - width * len(names) - GAP * (len(names) - 1)) / 2
        top = height - MARGIN - ROW * floor - BOX_HEIGHT
        for number, name in enumerate(names):
            places[name] = (left + number * (width + GAP), top, width)
    return places
