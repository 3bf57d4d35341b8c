"""When a worker that has ended is started again, and when its end is the end of all. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reactive_kafka.backoff import Backoff

RESTARTS = Backoff(first_s=1.0, last_s=30.0, jitter=0.0)
"""Waits between restarts. The first restart does not wait."""
STABLE_S = 60.0
"""A worker that ran for this long is well again: its next restart does not wait."""
FAILING_RESTARTS = 5
"""After so many early ends in a row, a worker counts as one that cannot heal by itself."""
TERMINATED = -15
"""The exit code of a process that SIGTERM has ended before it could handle that signal."""

AfterEnd = Literal["restart", "finished", "end all"]


class RestartDelays:
    """How long one worker waits before each restart."""

    def __init__(self) -> None:
        # How often it has ended early since it last ran for a while.
        self.ends_in_row = 0

    @property
    def keeps_failing(self) -> bool:
        """True if restarts have not helped: a supervisor of the whole should know."""
        return self.ends_in_row >= FAILING_RESTARTS

    def ended(self, started_at: float, now: float) -> float:
        """Return how many seconds to wait, for a worker that ended *now*."""
        self.settled(started_at, now)
        self.ends_in_row += 1
        if self.ends_in_row == 1:
            return 0.0
        return RESTARTS.wait_s(self.ends_in_row - 2)

    def settled(self, started_at: float, now: float) -> None:
        """Forget earlier ends if the worker has run for a while."""
        if now - started_at >= STABLE_S:
            self.ends_in_row = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRules:
    """The options that say what the end of a worker means."""

    exit_on_failure: bool
    until_end: bool

    def after_end(self, code: int, *, is_stopping: bool, has_loaded: bool) -> AfterEnd:
        """Return what follows when a worker has ended.

        Args:
            code: Its exit code; negative is the number of the signal that has ended it.
            is_stopping: The workers were asked to end.
            has_loaded: One of the workers could load the application and its configuration.
        """
        if is_stopping:
            return "finished"
        if not has_loaded and code >= 0:
            # The application cannot be loaded. Another attempt would read the same files.
            return "end all"
        if self.until_end and code in (0, 1):
            return "finished"
        if self.exit_on_failure:
            return "end all"
        return "restart"


def exit_code_of(codes: list[int], *, is_until_end: bool) -> int:
    """Return the exit code of a supervisor whose workers have ended with *codes*."""
    for code in codes:
        if code == TERMINATED and not is_until_end:
            # It was asked to end before it had begun.
            continue
        if code != 0:
            return code if code > 0 else 1
    return 0
