"""Draw the wings of the package from its imports: ``python -m tests.project.wings``.

An arrow leads from a wing to one that it imports. Arrows that a longer way implies are left out.
"""

import ast
from html import escape
from textwrap import wrap

from tests.project.imports import ORDER, PACKAGE, ROOT, own_imports, wing

PICTURE = ROOT / "docs/images/wings.svg"
WIDTH, ROW, BOX_HEIGHT, GAP, MARGIN = 1040, 128, 84, 24, 20
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"
WINGS = ORDER[1:-1]
"""Floors that are drawn, from the bottom to the top; files at the top of the package are not."""


def purpose(name: str) -> str:
    """Return what a wing is for: the first sentence of its docstring."""
    text = ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text())) or ""
    return text.splitlines()[0].split(". ")[0].rstrip(".").replace("``", "")


def arrows() -> dict[str, set[str]]:
    """For each wing those that it imports, without what a longer way implies."""
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
    height = ROW * len(WINGS) + 2 * MARGIN
    places: dict[str, tuple[float, float, float]] = {}
    for floor, names in enumerate(WINGS):
        width = min(420.0, (WIDTH - 2 * MARGIN - GAP * (len(names) - 1)) / len(names))
        left = (WIDTH - width * len(names) - GAP * (len(names) - 1)) / 2
        for number, name in enumerate(names):
            top = height - MARGIN - ROW * (floor + 1) + ROW - BOX_HEIGHT
            places[name] = (left + number * (width + GAP), top, width)
    lines = []
    for name, others in sorted(arrows().items()):
        for other in sorted(others):
            (x, y, w), (to_x, to_y, to_w) = places[name], places[other]
            begin, end = x + w / 2, to_x + to_w / 2
            # Where several floors are between, the arrow bends around what stands there.
            bend = (to_y - y) / 2
            path = f"M{begin:.0f} {y + BOX_HEIGHT:.0f} C{begin:.0f} {y + BOX_HEIGHT + bend:.0f}, "
            path += f"{end:.0f} {to_y - bend:.0f}, {end:.0f} {to_y - 2:.0f}"
            lines.append(f"<path d='{path}' marker-end='url(#tip)'/>")
    boxes = []
    for name, (x, y, w) in sorted(places.items()):
        words = wrap(purpose(name), int(w / 6.9))
        boxes.append(
            f"<rect x='{x:.0f}' y='{y:.0f}' width='{w:.0f}' height='{BOX_HEIGHT}' rx='6'/>"
            f"<text x='{x + w / 2:.0f}' y='{y + 24:.0f}' font-size='16' font-weight='bold'>"
            f"{name}/</text>"
            + "".join(
                f"<text x='{x + w / 2:.0f}' y='{y + 42 + 15 * n:.0f}' font-size='11.5'>"
                f"{escape(line)}</text>"
                for n, line in enumerate(words)
            )
        )
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' {FONT}>",
            "<title>The wings of acker_redis and their imports</title>",
            "<defs><marker id='tip' markerWidth='8' markerHeight='8' refX='7' refY='4' "
            "orient='auto'><path d='M0 0 L8 4 L0 8 z' fill='#57606a'/></marker></defs>",
            f"<rect width='{WIDTH}' height='{height}' fill='#ffffff'/>",
            "<g fill='none' stroke='#57606a' stroke-width='1.4'>",
            *lines,
            "</g>",
            "<g fill='#f6f8fa' stroke='#1f2328' text-anchor='middle'>",
            *(each.replace("<text", "<text fill='#1f2328' stroke='none'") for each in boxes),
            "</g>",
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(draw())
