"""A rebalance as a time line: member B joins, and partition 1 moves from A to B."""

from __future__ import annotations

from docs_tools.pictures.canvas import Canvas

LEFT = 108
ROW = 44


def rebalance() -> str:
    """Draw one row for each member and partition; time goes from left to right."""
    canvas = Canvas(
        768,
        286,
        "A rebalance. Member A stops fetching, lets handlers finish, commits and releases its "
        "partitions. Partition 0 returns to A and continues. Partition 1 goes to B, which starts "
        "at the committed position.",
    )
    steps = ((236, "revoke", 206), (316, "drain", 190), (436, "commit", 190), (516, "assign", 206))
    for x, name, bottom in steps:
        canvas.line((x, 34), (x, bottom), is_dashed=True)
        canvas.text(x + 6, 30, name, anchor="start", style="bold")
    canvas.text(LEFT, 30, "B joins the group", anchor="start", style="soft")
    _row(
        canvas,
        48,
        "A, partition 0",
        (
            (LEFT, 236, "handles records", "green"),
            (236, 316, "suspended", "plain"),
            (316, 436, "handlers finish", "amber"),
            (436, 516, "position", "blue"),
            (516, 744, "continues: nothing is repeated", "green"),
        ),
    )
    _row(
        canvas,
        48 + ROW,
        "A, partition 1",
        (
            (LEFT, 236, "handles records", "green"),
            (236, 316, "suspended", "plain"),
            (316, 436, "handlers finish", "amber"),
            (436, 516, "position", "blue"),
            (516, 744, "released: late acks do nothing", "empty"),
        ),
    )
    _row(
        canvas,
        48 + 2 * ROW,
        "B, partition 1",
        ((516, 744, "starts at the committed position", "green"),),
    )
    canvas.arrow((476, 48 + ROW + 34), (476, 48 + 2 * ROW + 17), (516, 48 + 2 * ROW + 17))
    canvas.line((236, 206), (516, 206))
    canvas.text(376, 224, "within rebalance.timeout.ms, 60 s by default", style="small")
    canvas.line((316, 190), (436, 190), kind="amber")
    canvas.text(376, 184, "revoke_grace, 5 s", style="small")
    canvas.arrow((LEFT, 256), (744, 256))
    canvas.text(LEFT, 274, "time", anchor="start", style="soft")
    return canvas.svg()


def _row(
    canvas: Canvas, y: float, name: str, parts: tuple[tuple[float, float, str, str], ...]
) -> None:
    canvas.text(16, y + 22, name, anchor="start", style="small")
    for start, end, text, kind in parts:
        canvas.box(start + 2, y, end - start - 4, 34, kind)
        canvas.text((start + end) / 2, y + 21, text, style="small")
