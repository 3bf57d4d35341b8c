"""Says on stderr how far a command has come, if it takes longer than a moment."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reactive_kafka.cli.console_text import progress_text, waiting_text

FIRST_AFTER_S = 1.0
ON_TERMINAL_S = 0.25
IN_LOG_S = 5.0
"""How often the line of a terminal is written again, and how often one is added elsewhere."""
_ERASE = "\r\x1b[K"


class DoneCount:
    """How many are done. The command counts, and another thread reads."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, count: int) -> None:
        """Count more of them."""
        self.value += count


@contextmanager
def progress_line(
    doing: str, done: Callable[[], int], total: int | None = None, what: str = "records"
) -> Iterator[None]:
    """Show a count while the block runs: in place on a terminal, else a line every few seconds.

    Args:
        doing: The past participle of the work: ``replayed``.
        done: Returns how many are done. It is called from another thread.
        total: How many there are, if that is known.
        what: The noun of what is counted.
    """

    def text(elapsed_s: float) -> str:
        return progress_text(f"{what} {doing}", done(), total, elapsed_s)

    with _showing(text):
        yield


@contextmanager
def waiting_line(doing: str) -> Iterator[None]:
    """Show a text such as ``asking the brokers`` and the seconds so far, while the block runs."""
    with _showing(lambda elapsed_s: waiting_text(doing, elapsed_s)):
        yield


@contextmanager
def _showing(text: Callable[[float], str]) -> Iterator[None]:
    """Write *text* of the seconds so far.

    A thread writes it, so that it appears also while the event loop is busy or not running.
    """
    is_over = threading.Event()
    writer = threading.Thread(
        target=_write, args=(text, is_over), name="progress line", daemon=True
    )
    writer.start()
    try:
        yield
    finally:
        is_over.set()
        writer.join()


def _write(text: Callable[[float], str], is_over: threading.Event) -> None:
    started = time.monotonic()
    out = sys.stderr
    is_terminal = out is not None and out.isatty()
    is_shown = False
    wait_s = FIRST_AFTER_S if is_terminal else IN_LOG_S
    while not is_over.wait(wait_s):
        line = text(time.monotonic() - started)
        if is_terminal:
            out.write(_ERASE + line)
            is_shown = True
            wait_s = ON_TERMINAL_S
        else:
            out.write(line + "\n")
        out.flush()
    if is_shown:
        out.write(_ERASE)
        out.flush()
