"""Tables and counts as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(head: Sequence[str], rows: Sequence[Sequence[object]], *, left: Sequence[str]) -> list[str]:
    """Lines with two blanks between columns; those that *left* names to the left, the others, numbers, to the right.

    None is a dash.
    """
    columns = []
    for column in zip(head, *rows, strict=True):
        texts = ["-" if cell is None else str(cell) for cell in column]
        width = max(map(len, texts))
        columns.append([text.ljust(width) if column[0] in left else text.rjust(width) for text in texts])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def counted(count: int, what: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{count} {what}{'' if count == 1 else 's'}"
