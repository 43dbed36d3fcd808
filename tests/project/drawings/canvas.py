"""The style of all drawings: one palette, one font, one kind of box and arrow."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
INK, SOFT, LINE, PAPER = "#0f172a", "#475569", "#64748b", "#f8fafc"
FILLS = {
    "plain": ("#ffffff", "#334155"),
    "faint": ("#ffffff", "#cbd5e1"),
    "redis": ("#ecfdf5", "#0f766e"),
    "inner": ("#ffffff", "#0f766e"),
    "alarm": ("#fef3c7", "#b45309"),
}
"""Fill and border of each kind of box: a program, Redis, and a nack."""
COLOURS = {"plain": LINE, "redis": "#0f766e", "alarm": "#b45309"}


@dataclass(slots=True)
class Canvas:
    """A drawing of ``width`` times ``height`` pixels; calls add to it, :meth:`svg` returns it."""

    title: str
    description: str
    width: int
    height: int
    _parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, kind: str = "plain") -> None:
        """Draw a rectangle of a kind of :data:`FILLS`."""
        fill, border = FILLS[kind]
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" '
            f'fill="{fill}" stroke="{border}" stroke-width="1.5"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 13,
        colour: str = INK,
        bold: bool = False,
        mono: bool = False,
        anchor: str = "middle",
    ) -> None:
        """Write a line; ``y`` is its baseline."""
        more = ' font-weight="600"' if bold else ""
        more += f' font-family="{MONO}"' if mono else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour}" '
            f'text-anchor="{anchor}"{more}>{escape(words)}</text>'
        )

    def arrow(self, path: str, kind: str = "plain", *, dashed: bool = False) -> None:
        """Draw a line with a tip at its end; ``path`` is an SVG path."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="{COLOURS[kind]}" stroke-width="1.5" '
            f'marker-end="url(#{kind})"{dash}/>'
        )

    def line(self, path: str, kind: str = "plain", *, dashed: bool = False) -> None:
        """Draw a line without a tip."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="{COLOURS[kind]}" stroke-width="1.2"{dash}/>'
        )

    def cells(
        self, x: float, y: float, width: float, texts: Sequence[str], kinds: Sequence[str]
    ) -> None:
        """Draw a row of cells of 34 pixels height, each with its text and kind."""
        for number, (words, kind) in enumerate(zip(texts, kinds, strict=True)):
            left = x + number * width
            fill, border = FILLS[kind]
            self._parts.append(
                f'<rect x="{left:g}" y="{y:g}" width="{width:g}" height="34" fill="{fill}" '
                f'stroke="{border}"/>'
            )
            if words:
                self.text(left + width / 2, y + 22, words, size=12, mono=True)

    def svg(self) -> str:
        """Return the drawing as an SVG document."""
        tips = "".join(
            f'<marker id="{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" '
            f'fill="{colour}"/></marker>'
            for kind, colour in COLOURS.items()
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'font-family="{FONT}" role="img" aria-labelledby="t d">',
                f'<title id="t">{escape(self.title)}</title>',
                f'<desc id="d">{escape(self.description)}</desc>',
                f"<defs>{tips}</defs>",
                f'<rect width="{self.width}" height="{self.height}" rx="12" fill="{PAPER}" '
                'stroke="#e2e8f0"/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )
