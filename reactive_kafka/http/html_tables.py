"""Makes tables and the words of numbers for the HTML of the page. Pure.

``static/elements.js`` has the same rules for where scripts run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from reactive_kafka.observe.safe_text import one_line

_WORDS = {
    "member",
    "host",
    "channel",
    "topic and group",
    "handler",
    "last error",
    "topic",
    "mode",
    "session",
    "batch",
    "progress",
    "ranges",
    "reason",
    "outcome",
    "ended",
    "partition",
    "marks",
    "state",
    "time",
    "kind",
    "what happened",
}
"""The columns of words, which begin at the left. Numbers end at the right."""


def number_text(number: int | None) -> str:
    """Return a count with a space between thousands, ``-`` if it is not known."""
    return "-" if number is None else f"{number:,}".replace(",", "\u202f")


def rate_text(per_s: float | None) -> str:
    """Return a rate, with digits after the point below 10 only."""
    if per_s is None:
        return "-"
    return f"{per_s:.1f}" if per_s < 10 else number_text(round(per_s))


def age_text(seconds: float | None) -> str:
    """Return a short time, such as ``4.2 ms`` or ``1.5 s``; longer ones as `duration_text`."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds)


def duration_text(seconds: float) -> str:
    """Return a time in its two largest units, such as ``3 d 4 h``."""
    whole = int(seconds)
    for unit_s, unit, part_s, part in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit_s:
            rest = whole % unit_s // part_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"


class Html(str):
    """Markup for a table cell. Any other cell is escaped."""

    __slots__ = ()


def section_html(
    heading: str, columns: Sequence[str], rows: Sequence[Iterable[object]], style: str = ""
) -> str:
    """Return a heading and a table, or nothing if there are no rows."""
    return f"{heading}{table_html(columns, rows, style)}" if rows else ""


def list_html(items: Sequence[str]) -> str:
    """Return a list of items that are escaped already, or nothing if there are none."""
    if not items:
        return ""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def table_html(columns: Sequence[str], rows: Iterable[Iterable[object]], style: str = "") -> str:
    """Return a table; *style* is its class."""
    head = "".join(f'<th scope="col"{_kind(column)}>{column}</th>' for column in columns)
    body = "".join(_row(columns, row) for row in rows)
    of_class = f' class="{style}"' if style else ""
    return (
        f'<div class="scroll"><table{of_class}><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(columns: Sequence[str], row: Iterable[object]) -> str:
    # On a phone, a row is a card, and each cell says what it is.
    cells = "".join(
        f'<td data-label="{column}"{_kind(column)}>{escaped(cell)}</td>'
        for column, cell in zip(columns, row, strict=True)
    )
    return f"<tr>{cells}</tr>"


def _kind(column: str) -> str:
    return ' class="words"' if column in _WORDS else ""


def escaped(value: object) -> str:
    """Return a value as text of one line in which nothing is markup, or markup as it is."""
    if isinstance(value, Html):
        return value
    return "" if value is None else escape(one_line(str(value)))
