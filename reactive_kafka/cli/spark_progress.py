"""Shows running Spark batches as bars at the bottom of the terminal; other output goes above."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from io import StringIO
from threading import RLock
from typing import Any, TextIO, cast

from reactive_kafka.app import App
from reactive_kafka.observe.facts import SparkFacts
from reactive_kafka.observe.wording import progress_text, share_done, short_id

LOOK_EVERY_S = 0.5
MOST_BARS = 8
# Columns of a bar, in a narrow terminal and in a wide one.
BAR_WIDTHS = 10, 24
# The columns from which on a terminal is wide.
WIDE = 110


@contextmanager
def bottom_of_the_terminal() -> Iterator[Bottom | None]:
    """Reserve the last lines of the terminal; inside the context stderr and stdout write above.

    Yields None if stderr is not a terminal, or rich is not installed. stdout is left alone if it is
    not a terminal.
    """
    out = sys.stdout
    err = sys.stderr
    has_cursor = (
        err is not None and err.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    )
    if not has_cursor or find_spec("rich") is None:
        yield None
        return
    bottom = Bottom(err)
    sys.stderr = bottom.above(err)
    if out is not None and out.isatty():
        sys.stdout = bottom.above(out)
    try:
        yield bottom
    finally:
        bottom.show([])
        sys.stdout = out
        sys.stderr = err


def show_spark(app: App, bottom: Bottom) -> None:
    """Show the Spark batches of *app* in *bottom* while they run. The app must not have started."""
    tasks: list[asyncio.Task[None]] = []

    async def redraw() -> None:
        while True:
            bottom.show(drawn(app.spark_facts(), *bottom.size()))
            await asyncio.sleep(LOOK_EVERY_S)

    async def start() -> None:
        tasks.append(asyncio.create_task(redraw(), name="spark progress"))

    async def stop() -> None:
        # Handlers have ended, or are being cancelled, and the log says the rest.
        for task in tasks:
            task.cancel()
        bottom.show([])

    app.on_start(start)
    app.before_stop(stop)


def bars(sessions: Sequence[SparkFacts], columns: int, most: int = MOST_BARS) -> Any:
    """Return a rich table with a row for each running batch; None if none runs.

    Args:
        sessions: What runs.
        columns: The width of the table.
        most: The most rows. If there are more batches, the last row counts them.
    """
    running = [(session.channel, batch) for session in sessions for batch in session.running]
    if not running:
        return None
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    shown = running if len(running) <= most else running[: most - 1]
    names = [f"{channel} {short_id(batch.id)}" for channel, batch in shown] or [""]
    name_width = min(max(map(len, names)), columns // 3)
    bar_width = BAR_WIDTHS[columns >= WIDE]
    text_width = max(1, columns - name_width - bar_width - 2)
    table = Table.grid(padding=(0, 1))
    table.add_column(width=name_width, no_wrap=True)
    table.add_column(width=bar_width)
    table.add_column(width=text_width, no_wrap=True, overflow="ellipsis")
    for name, (_, batch) in zip(names, shown, strict=False):
        progress = ProgressBar(total=1.0, completed=share_done(batch), width=bar_width)
        table.add_row(Text(name), progress, Text(progress_text(batch)))
    if len(shown) < len(running):
        table.add_row("", "", Text(f"and {len(running) - len(shown)} more"))
    return table


def drawn(sessions: Sequence[SparkFacts], columns: int, lines: int) -> list[str]:
    """Return the bars as lines for a terminal of that size, each shorter than the terminal."""
    table = bars(sessions, columns - 1, max(1, min(MOST_BARS, lines - 2)))
    if table is None:
        return []
    from rich.console import Console

    console = Console(file=StringIO(), width=max(2, columns - 1), force_terminal=True)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


class Bottom:
    """The last lines of a terminal, which stay while other text scrolls by above.

    The cursor is always at the beginning of the line below them, so that the terminal is in order
    even if the process is killed. May be used from any thread.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._rows: list[str] = []
        self._above: list[_Above] = []
        # The text above does not end with a line break.
        self._is_mid_line = False
        self._lock = RLock()

    def size(self) -> tuple[int, int]:
        """Return the columns and lines of the terminal."""
        columns = 0
        lines = 0
        with suppress(OSError, ValueError):
            columns, lines = os.get_terminal_size(self._terminal.fileno())
        # A terminal that does not know its size says 0.
        return columns or 80, lines or 24

    def show(self, rows: Sequence[str]) -> None:
        """Replace the last lines by *rows*. Without rows there are no last lines any more."""
        with self._lock:
            if list(rows) == self._rows:
                return
            erase = self._erase()
            self._rows = list(rows)
            self._control(erase)
            if not rows:
                # Nothing is below any more, so text without a line break may be written.
                for above in self._above:
                    self._write_now(above, above.held)
                    above.held = ""
            elif self._is_mid_line:
                # The rows must begin on a line of their own.
                self._write_now(self._above[0], "\n")
            self._control(self._draw())

    def above(self, stream: TextIO) -> TextIO:
        """Return a stream that writes to *stream*, which is the same terminal, above the lines."""
        self._above.append(_Above(self, stream))
        return cast(TextIO, self._above[-1])

    def write(self, above: _Above, text: str) -> None:
        """Write *text* above the last lines. Text without a line break is held back."""
        with self._lock:
            if not self._rows:
                self._write_now(above, text)
                return
            lines, line_break, rest = (above.held + text).rpartition("\n")
            above.held = rest
            if line_break:
                self._control(self._erase())
                self._write_now(above, lines + line_break)
                self._control(self._draw())

    def _write_now(self, above: _Above, text: str) -> None:
        if text:
            _put(above.stream, text)
            self._is_mid_line = not text.endswith("\n")

    def _control(self, sequence: str) -> None:
        # If the terminal is gone, the bars are lost, and writing text raises the error.
        with suppress(OSError):
            _put(self._terminal, sequence)

    def _erase(self) -> str:
        return f"\x1b[{len(self._rows)}A\x1b[J" if self._rows else ""

    def _draw(self) -> str:
        return "".join(f"{row}\n" for row in self._rows)


def _put(stream: TextIO, text: str) -> None:
    stream.write(text)
    # Two streams write to one terminal. Without flushing, their texts would change places.
    stream.flush()


class _Above:
    """A stream whose text goes above the last lines of its terminal."""

    def __init__(self, bottom: Bottom, stream: TextIO) -> None:
        self._bottom = bottom
        self.stream = stream
        self.held = ""

    def write(self, text: str) -> int:
        self._bottom.write(self, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        # Everything else is the stream's own: isatty, fileno, flush, encoding...
        return getattr(self.stream, name)
