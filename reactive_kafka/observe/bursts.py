"""Limits the log lines of repeated events, and joins the offsets of events in a flood. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

REPEAT_INTERVAL_S = 1.0
# So many lines of one kind of failure may be written at once; after that one a second.
BURST = 20
# 40 runs of offsets have at most 1,640 characters, so that none is cut off its line.
RUNS_PER_LINE = 40
# Beyond so many kinds, those without suppressed lines are forgotten.
KINDS_KEPT = 1000


@dataclass(slots=True)
class _Line:
    """The last line of one kind."""

    # How many more may be written at once; it grows by one a second.
    left: float
    written_at: float
    suppressed: int = 0


class Allowance:
    """Allows a burst of lines of each kind, then one a second, and counts the suppressed ones."""

    def __init__(self, burst: int = 1) -> None:
        self._burst = burst
        self._lines: dict[Hashable, _Line] = {}
        self._forget_beyond = KINDS_KEPT

    def due(self, key: Hashable) -> float:
        """Return when the next line of this kind may be written. There must have been one."""
        line = self._lines[key]
        return line.written_at + (1 - line.left) * REPEAT_INTERVAL_S

    def take(self, key: Hashable, now: float) -> int | None:
        """Return how many lines were suppressed before this one, or None to suppress this one."""
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= self._forget_beyond:
                self._forget_idle_kinds(now)
            self._lines[key] = _Line(self._burst - 1, now)
            return 0
        left = self._left(line, now)
        if left < 1:
            line.suppressed += 1
            return None
        self._lines[key] = _Line(left - 1, now)
        return line.suppressed

    def restart(self, key: Hashable, now: float) -> int:
        """Count a line as written, due or not, and return how many were suppressed before it."""
        suppressed = self._lines[key].suppressed
        self._lines[key] = _Line(0, now)
        return suppressed

    def _left(self, line: _Line, now: float) -> float:
        return min(self._burst, line.left + (now - line.written_at) / REPEAT_INTERVAL_S)

    def _forget_idle_kinds(self, now: float) -> None:
        """Drop the kinds that have suppressed nothing and have their whole burst again.

        A kind may belong to one batch or one rebalance, and never come again. The next time is when
        twice as many are kept: otherwise each new kind in a flood would go through all the others.
        """
        self._lines = {
            key: line
            for key, line in self._lines.items()
            if line.suppressed or self._left(line, now) < self._burst
        }
        self._forget_beyond = max(KINDS_KEPT, 2 * len(self._lines))


class OffsetRuns:
    """Offsets of one partition, added in any order and shown as runs: ``3-17, 19``."""

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        # First and last offset of each run.
        self._runs: list[list[int]] = []
        self.count = 0

    def add(self, offset: int) -> None:
        """Add one offset."""
        self.count += 1
        if self._runs and self._runs[-1][1] == offset - 1:
            self._runs[-1][1] = offset
        else:
            self._runs.append([offset, offset])

    @property
    def is_full(self) -> bool:
        """True if another run would make the line too long."""
        return len(self._runs) >= RUNS_PER_LINE

    def __str__(self) -> str:
        joined: list[list[int]] = []
        # Concurrent handlers finish in any order, so runs may touch.
        for first, last in sorted(self._runs):
            if joined and first <= joined[-1][1] + 1:
                joined[-1][1] = max(joined[-1][1], last)
            else:
                joined.append([first, last])
        return ", ".join(
            str(first) if first == last else f"{first}-{last}" for first, last in joined
        )
