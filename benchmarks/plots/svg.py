"""Small pictures as SVG: text, lines and rectangles that follow the reader's colour scheme, light
or dark.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

COLOURS = (
    ("#0969da", "#4493f8"),
    ("#bc4c00", "#f0883e"),
    ("#1a7f37", "#3fb950"),
    ("#8250df", "#ab7df8"),
    ("#9a6700", "#d29922"),
    ("#cf222e", "#ff7b72"),
    ("#1b7c83", "#39c5cf"),
    ("#6e7781", "#8b949e"),
)
"""Of series, in the light and in the dark scheme; none is told from its neighbours by its
brightness alone.
"""

FONT_PX = 12
WIDTH_OF_A_LETTER = 6.4
"""Of the font's letters on average, in pixels."""


def picture(width: int, height: int, title: str, body: Iterable[str]) -> str:
    """A whole file."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_style()}</style>",
            f'<rect class="paper" width="{width}" height="{height}" rx="6"/>',
            *body,
            "</svg>\n",
        ]
    )


def _style() -> str:
    light = [colour for colour, _ in COLOURS]
    dark = [colour for _, colour in COLOURS]
    return (
        f"text{{font:{FONT_PX}px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}}"
        ".title{font-size:14px;font-weight:600}.small{font-size:10.5px}"
        ".line{fill:none!important;stroke-width:2}.dashed{stroke-dasharray:5 4}"
        + _scheme("#ffffff", "#1f2328", "#d8dee4", light)
        + f"@media(prefers-color-scheme:dark){{{_scheme('#0d1117', '#e6edf3', '#30363d', dark)}}}"
    )


def _scheme(paper: str, ink: str, grid: str, colours: Iterable[str]) -> str:
    return (
        f".paper{{fill:{paper}}}text{{fill:{ink}}}.on{{fill:{paper}}}.grid{{stroke:{grid}}}"
        + "".join(
            f".c{number}{{fill:{colour};stroke:{colour}}}" for number, colour in enumerate(colours)
        )
        + f".edge{{stroke:{paper}}}"
    )


def text(
    x: float, y: float, words: str, *, anchor: str = "start", kind: str = "", turned: bool = False
) -> str:
    """Words at a place: their start, their middle or their end."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    name = f' class="{kind}"' if kind else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}{turn}>{escape(words)}</text>'
    )


def line(x: float, y: float, to_x: float, to_y: float) -> str:
    """A line of the grid."""
    return f'<line class="grid" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def path(points: Iterable[tuple[float, float]], colour: int, *, dashed: bool = False) -> str:
    """A line through *points*."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="line c{colour}{" dashed" * dashed}" points="{places}"/>'


def dot(x: float, y: float, colour: int, tip: str) -> str:
    """A point that says what it is under the pointer."""
    return f'<circle class="c{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{escape(tip)}</title></circle>'


def box(
    x: float, y: float, width: float, height: float, colour: int, tip: str = "", label: str = ""
) -> str:
    """A rectangle with a border of the paper's colour, and as much of a label as fits into it."""
    says = f"<title>{escape(tip)}</title>" if tip else ""
    drawn = f'<rect class="c{colour} edge" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}">{says}</rect>'
    fits = int((width - 6) / WIDTH_OF_A_LETTER)
    if fits < 3 or not label:
        return drawn
    cut = label if len(label) <= fits else label[: fits - 1] + "…"
    place = f'x="{x + 3:.1f}" y="{y + height - 4:.1f}"'
    return f'{drawn}<text class="small on" {place} pointer-events="none">{escape(cut)}</text>'


def legend(
    x: float, y: float, width: float, names: Iterable[tuple[str, int]]
) -> tuple[list[str], float]:
    """Names beside their colours, in rows; where the next thing below may begin."""
    drawn: list[str] = []
    left = x
    for name, colour in names:
        takes = 18 + len(name) * WIDTH_OF_A_LETTER + 16
        if left > x and left + takes > x + width:
            left = x
            y = y + 18
        drawn.append(
            f'<rect class="c{colour}" x="{left:.1f}" y="{y - 9:.1f}" width="11" height="11" rx="2"/>'
        )
        drawn.append(text(left + 17, y, name))
        left += takes
    return drawn, y + 18
