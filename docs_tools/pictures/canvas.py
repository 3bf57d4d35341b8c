"""A canvas for diagrams: boxes, arrows and text, written as SVG with a light and a dark scheme.

A picture stands by itself on a code host, where it follows the reader's system. The site puts it
into the page, where it follows the switch of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

Point = tuple[float, float]

LINE_HEIGHT = 16
HEAD = 7
"""Length of the head of an arrow, in pixels."""

KINDS = {
    # kind: (fill, edge) in the light scheme, (fill, edge) in the dark one
    "plain": (("#f6f8fa", "#57606a"), ("#1c2128", "#8b949e")),
    "blue": (("#ddf4ff", "#0969da"), ("#0c2d4d", "#4493f8")),
    "green": (("#dafbe1", "#1a7f37"), ("#12361f", "#3fb950")),
    "amber": (("#fff8c5", "#9a6700"), ("#3a2a08", "#d29922")),
    "red": (("#ffebe9", "#cf222e"), ("#46161a", "#ff7b72")),
    "empty": (("#ffffff", "#8c959f"), ("#0d1117", "#6e7681")),
}
INKS = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "soft": ("#57606a", "#9da7b3"),
}


@dataclass
class Canvas:
    """What is drawn so far.

    Args:
        title: What screen readers say, and browsers show as a hint.
    """

    width: int
    height: int
    title: str
    elements: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, kind: str = "plain") -> None:
        """Draw a rectangle with round corners."""
        self.elements.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            'rx="6"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "middle",
        style: str = "",
    ) -> None:
        """Write lines of text, the first with its baseline at *y*. Styles: bold, small, soft."""
        for number, line in enumerate(text.split("\n")):
            self.elements.append(
                f'<text class="{style}" x="{x:g}" y="{y + number * LINE_HEIGHT:g}" '
                f'text-anchor="{anchor}">{escape(line)}</text>'
            )

    def labelled(
        self, x: float, y: float, width: float, height: float, text: str, kind: str = "plain"
    ) -> None:
        """Draw a box with a name in bold and lines below it, in its middle."""
        self.box(x, y, width, height, kind)
        name, _, rest = text.partition("\n")
        lines = 1 + (rest.count("\n") + 1 if rest else 0)
        top = y + height / 2 - (lines - 1) * LINE_HEIGHT / 2 + 4
        self.text(x + width / 2, top, name, style="bold")
        if rest:
            self.text(x + width / 2, top + LINE_HEIGHT, rest, style="small")

    def arrow(self, *points: Point, kind: str = "plain", is_dashed: bool = False) -> None:
        """Draw a line through the points, with a head at the last one."""
        (x0, y0), (x1, y1) = points[-2:]
        length = max(abs(x1 - x0), abs(y1 - y0))
        dx = (x1 - x0) / length
        dy = (y1 - y0) / length
        base = (x1 - dx * HEAD, y1 - dy * HEAD)
        path = " ".join(f"{x:g},{y:g}" for x, y in [*points[:-1], base])
        dashed = " dashed" if is_dashed else ""
        self.elements.append(f'<polyline class="line-{kind}{dashed}" points="{path}"/>')
        half = HEAD * 0.6
        head: Sequence[Point] = (
            (x1, y1),
            (base[0] - dy * half, base[1] + dx * half),
            (base[0] + dy * half, base[1] - dx * half),
        )
        shape = " ".join(f"{x:g},{y:g}" for x, y in head)
        self.elements.append(f'<polygon class="head-{kind}" points="{shape}"/>')

    def line(self, *points: Point, kind: str = "plain", is_dashed: bool = False) -> None:
        """Draw a line without a head."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashed = " dashed" if is_dashed else ""
        self.elements.append(f'<polyline class="line-{kind}{dashed}" points="{path}"/>')

    def svg(self) -> str:
        """Return the whole file."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" role="img" '
                f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
                f'height="{self.height}">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{_style()}</style>",
                f'<rect class="paper" width="{self.width}" height="{self.height}" rx="8"/>',
                *self.elements,
                "</svg>\n",
            ]
        )


def _style() -> str:
    shapes = "".join(
        f".drawing .{kind}{{fill:var(--{kind});stroke:var(--{kind}-edge)}}"
        f".drawing .line-{kind}{{fill:none;stroke:var(--{kind}-edge);stroke-width:1.6}}"
        f".drawing .head-{kind}{{fill:var(--{kind}-edge)}}"
        for kind in KINDS
    )
    return (
        ".drawing text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
        "fill:var(--ink)}.drawing .bold{font-weight:600}.drawing .small{font-size:11.5px}"
        ".drawing .soft{font-size:11.5px;fill:var(--soft)}.drawing .paper{fill:var(--paper)}"
        f".drawing .dashed{{stroke-dasharray:5 4}}{shapes}"
        f".drawing{{{_scheme(0)}}}"
        f"@media(prefers-color-scheme:dark){{.drawing{{{_scheme(1)}}}}}"
    )


def _scheme(which: int) -> str:
    inks = [f"--{name}:{colours[which]}" for name, colours in INKS.items()]
    for kind, schemes in KINDS.items():
        fill, edge = schemes[which]
        inks += [f"--{kind}:{fill}", f"--{kind}-edge:{edge}"]
    return ";".join(inks)
