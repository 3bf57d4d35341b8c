"""The commit engine: one partition as a bar of offsets, and which position is safe."""

from __future__ import annotations

from docs_tools.pictures.canvas import Canvas

LEFT = 34
CELL = 44
TOP = 96
FIRST = 38
STATES = "CCCCSSFSSFSFWWWW"
"""Of each offset: committed, settled, in flight, waiting in the log."""

LOOKS = {
    "C": ("plain", "committed"),
    "S": ("green", "settled"),
    "F": ("amber", "in flight"),
    "W": ("empty", "not fetched yet"),
}


def commit_engine() -> str:
    """Draw the offsets of a partition with the marks above and a legend below."""
    canvas = Canvas(
        768,
        236,
        "A partition as a row of offsets: 38 to 41 are committed, 42 and 43 are settled, 44 is in "
        "flight. The next commit stores 44. Offsets that are settled behind 44 wait for it.",
    )
    for number, state in enumerate(STATES):
        kind, _ = LOOKS[state]
        x = LEFT + number * CELL
        canvas.box(x, TOP, CELL - 4, 40, kind)
        canvas.text(x + CELL / 2 - 2, TOP + 25, str(FIRST + number), style="small")
    _mark(canvas, 42, "committed position: 42", TOP - 64)
    _mark(canvas, 44, "next commit: 44", TOP - 40, kind="green")
    _mark(canvas, 50, "next to fetch: 50", TOP - 64)
    _mark(canvas, 54, "log end: 54", TOP - 40, anchor="end")
    under = TOP + 62
    # The islands are the settled offsets behind the first one in flight.
    island_from = LEFT + (45 - FIRST) * CELL
    island_to = LEFT + (49 - FIRST) * CELL - 4
    canvas.line(
        (island_from, under - 14),
        (island_from, under - 8),
        (island_to, under - 8),
        (island_to, under - 14),
    )
    canvas.text(
        (island_from + island_to) / 2, under + 10, "settled islands wait for 44", style="small"
    )
    x = LEFT
    for kind, name in LOOKS.values():
        canvas.box(x, 200, 18, 18, kind)
        canvas.text(x + 26, 213, name, anchor="start", style="small")
        x += 130
    return canvas.svg()


def _mark(
    canvas: Canvas, offset: int, text: str, y: float, *, kind: str = "plain", anchor: str = "start"
) -> None:
    """A position lies between two offsets: before the one that it names."""
    x = LEFT + (offset - FIRST) * CELL - 2
    canvas.arrow((x, y - 12), (x, TOP - 2), kind=kind)
    shift = 7 if anchor == "start" else -7
    canvas.text(x + shift, y, text, anchor=anchor, style="small")
