"""Which events get a log line of their own, and how the offsets of the others share one. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

REPEAT_INTERVAL_S = 1.0
# Lines of one kind of failure at once; after that one a second.
BURST = 20
# Runs of offsets: at most 1,640 characters, so that none is cut off a line.
RUNS_A_LINE = 40
# Then the kinds that suppress nothing at the moment are forgotten.
KINDS_KEPT = 1000


@dataclass(slots=True)
class _Line:
    # How many more may be written at once.
    left: float
    written_at: float
    suppressed: int = 0


class Allowance:
    """Lets a burst of lines of each kind through, then one a second, and counts the others."""

    def __init__(self, burst: int = 1) -> None:
        self._burst = burst
        self._lines: dict[Hashable, _Line] = {}
        self._forget_beyond = KINDS_KEPT

    def due(self, key: Hashable) -> float:
        """When the next line of this kind may be written; there has been one."""
        line = self._lines[key]
        return line.written_at + (1 - line.left) * REPEAT_INTERVAL_S

    def take(self, key: Hashable, now: float) -> int | None:
        """How many lines were suppressed before this one, or None: suppress this one too."""
        line = self._lines.get(key)
        left = self._burst if line is None else self._left(line, now)
        if line is not None and left < 1:
            line.suppressed += 1
            return None
        if line is None and len(self._lines) >= self._forget_beyond:
            self._forget(now)
        self._lines[key] = _Line(left - 1, now)
        return line.suppressed if line is not None else 0

    def restart(self, key: Hashable, now: float) -> int:
        """Count a line of this kind as written, due or not; how many were suppressed since the last
        one.
        """
        suppressed = self._lines[key].suppressed
        self._lines[key] = _Line(0, now)
        return suppressed

    def _left(self, line: _Line, now: float) -> float:
        return min(self._burst, line.left + (now - line.written_at) / REPEAT_INTERVAL_S)

    def _forget(self, now: float) -> None:
        # A kind may stand for one batch or one rebalance and never come again. Twice what is left
        # is allowed before the next time, or in a burst of new kinds each of them would go through
        # all the others.
        self._lines = {
            key: line
            for key, line in self._lines.items()
            if line.suppressed or self._left(line, now) < self._burst
        }
        self._forget_beyond = max(KINDS_KEPT, 2 * len(self._lines))


class OffsetRuns:
    """Offsets of one partition, in any order, as runs: ``3-17, 19``."""

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        # First and last of each.
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
        """Whether another run would make the line too long."""
        return len(self._runs) >= RUNS_A_LINE

    def __str__(self) -> str:
        joined: list[list[int]] = []
        # Concurrent handlers finish in any order.
        for first, last in sorted(self._runs):
            if joined and first <= joined[-1][1] + 1:
                joined[-1][1] = max(joined[-1][1], last)
            else:
                joined.append([first, last])
        return ", ".join(
            str(first) if first == last else f"{first}-{last}" for first, last in joined
        )
