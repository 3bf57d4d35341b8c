"""Tables and numbers as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str]) -> list[str]:
    """Lines with two blanks between columns; those that *left* names to the left, the others, numbers, to the right."""
    cells = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_left = [name in left for name in head]
    return [
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(line, widths, is_left, strict=True)
        ).rstrip()
        for line in cells
    ]


def counted(count: int, what: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def number(value: int | None) -> str:
    """The number, or a dash."""
    return "-" if value is None else str(value)
