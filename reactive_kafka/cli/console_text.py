"""Tables and counts as text for the console. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from reactive_kafka.observe.wording import whole_seconds


def aligned(
    head: Sequence[str], rows: Sequence[Sequence[object]], *, left: Sequence[str]
) -> list[str]:
    """Return the lines of a table, with two blanks between columns. None is shown as a dash.

    The columns whose heads are in *left* are aligned to the left. The others are numbers, and are
    aligned to the right.
    """
    columns = []
    for column in zip(head, *rows, strict=True):
        texts = ["-" if cell is None else str(cell) for cell in column]
        width = max(map(len, texts))
        is_left = column[0] in left
        columns.append([text.ljust(width) if is_left else text.rjust(width) for text in texts])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def counted(count: int, what: str) -> str:
    """Return a count with its noun: ``1 record``, ``2 records``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def progress_text(what: str, done: int, total: int | None, elapsed_s: float) -> str:
    """Return a line such as ``1500 of 9000 records replayed, 300 a second, 25s to go``."""
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    count = f"{done}" if total is None else f"{done} of {total}"
    parts = [f"{count} {what}", f"{rate:.0f} a second"]
    if total is not None and rate > 0 and done < total:
        parts.append(f"{whole_seconds((total - done) / rate)} to go")
    return ", ".join(parts)


def waiting_text(doing: str, elapsed_s: float) -> str:
    """Return a line such as ``asking the brokers, 3s``."""
    return f"{doing}, {whole_seconds(elapsed_s)}"
