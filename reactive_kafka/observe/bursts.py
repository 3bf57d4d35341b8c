"""Which events get a log line of their own, and how the offsets of the others share one. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

REPEAT_INTERVAL_S = 1.0
BURST = 20  # lines of one kind of failure at once; after that one a second
RUNS_A_LINE = 40  # runs of offsets: at most 1,640 characters, so that none is cut off a line
KINDS_KEPT = 1000  # then the kinds that suppress nothing at the moment are forgotten


@dataclass(slots=True)
class _Line:
    written_at: float
    suppressed: int = 0


class Repeats:
    """Lets one line of each kind through per interval, and counts the others."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}
        self._forget_beyond = KINDS_KEPT

    def due(self, key: Hashable) -> float:
        """When the next line of this kind may be written; there has been one."""
        return self._lines[key].written_at + REPEAT_INTERVAL_S

    def take(self, key: Hashable, now: float) -> int | None:
        """How many lines were suppressed before this one, or None: suppress this one too."""
        line = self._lines.get(key)
        if line is not None and now - line.written_at < REPEAT_INTERVAL_S:
            line.suppressed += 1
            return None
        if line is None and len(self._lines) >= self._forget_beyond:
            self._forget(now)
        self._lines[key] = _Line(now)
        return line.suppressed if line is not None else 0

    def restart(self, key: Hashable, now: float) -> int:
        """Count a line of this kind as written, due or not; how many were suppressed since the last one."""
        suppressed, self._lines[key] = self._lines[key].suppressed, _Line(now)
        return suppressed

    def _forget(self, now: float) -> None:
        # A kind may stand for one batch or one rebalance and never come again. Twice what is left is allowed before
        # the next time, or in a burst of new kinds each of them would go through all the others.
        for key, line in list(self._lines.items()):
            if not line.suppressed and now - line.written_at >= REPEAT_INTERVAL_S:
                del self._lines[key]
        self._forget_beyond = max(KINDS_KEPT, 2 * len(self._lines))


class Allowance:
    """Allows a burst of lines of each kind, then one a second."""

    def __init__(self) -> None:
        self._left: dict[Hashable, tuple[float, float]] = {}  # kind -> lines left, and when that was so

    def take(self, kind: Hashable, now: float) -> bool:
        """Whether a line of this kind may be written; if so, it counts as written."""
        left, since = self._left.get(kind, (float(BURST), now))
        left = min(float(BURST), left + now - since)
        may = left >= 1
        if kind not in self._left and len(self._left) >= KINDS_KEPT:
            self._forget(now)
        self._left[kind] = (left - 1 if may else left, now)
        return may

    def _forget(self, now: float) -> None:
        self._left = {kind: (left, since) for kind, (left, since) in self._left.items() if now - since < BURST}


class OffsetRuns:
    """Offsets of one partition, in any order, as runs: ``3-17, 19``."""

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        self._runs: list[list[int]] = []  # first and last of each
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
        return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in _joined(self._runs))


def _joined(runs: list[list[int]]) -> list[list[int]]:
    """The runs in order, adjacent ones merged: concurrent handlers finish in any order."""
    joined: list[list[int]] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    return joined
