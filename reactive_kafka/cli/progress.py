"""Says on stderr how far a command has come, if it takes longer than a moment."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from reactive_kafka.observe.wording import whole_seconds

FIRST_AFTER_S = 1.0
ON_TERMINAL_S = 0.25
IN_LOG_S = 5.0
"""How often the line of a terminal is written again, and how often one is added elsewhere."""
_ERASE = "\r\x1b[K"


class ProgressLine:
    """Writes a line on stderr while its block runs: every few seconds, or in place on a terminal.

    A thread writes it, so that it appears also while the event loop is busy or not running.

    Args:
        doing: What is done, in the past tense: ``replayed``.
        done: Returns how many are done. It is called from another thread.
        total: How many there are, if that is known.
        what: The noun of what is counted.
    """

    def __init__(
        self,
        doing: str,
        done: Callable[[], int],
        total: int | None = None,
        what: str = "records",
    ) -> None:
        self._doing = doing
        self._done = done
        self._total = total
        self._what = what
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> ProgressLine:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        started = time.monotonic()
        is_terminal = _is_terminal()
        wait_s = FIRST_AFTER_S
        has_line = False
        while not self._is_over.wait(wait_s):
            line = progress_line(
                self._doing, self._done(), self._total, self._what, time.monotonic() - started
            )
            if is_terminal:
                sys.stderr.write(_ERASE + line)
                has_line = True
                wait_s = ON_TERMINAL_S
            else:
                sys.stderr.write(line + "\n")
                wait_s = IN_LOG_S
            sys.stderr.flush()
        if has_line:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def progress_line(doing: str, done: int, total: int | None, what: str, elapsed_s: float) -> str:
    """Return a line such as ``1500 of 11868 records replayed, 300 a second, 34s to go``."""
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    counts = f"{done} {what}" if total is None else f"{done} of {total} {what}"
    parts = [f"{counts} {doing}", f"{rate:.0f} a second"]
    if total is not None and rate > 0 and done < total:
        parts.append(f"{whole_seconds((total - done) / rate)} to go")
    return ", ".join(parts)
