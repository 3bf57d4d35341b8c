"""Which failures get a log line of their own, and how all the others are named together. Pure."""

from __future__ import annotations

from collections.abc import Hashable

BURST = 20
"""So many lines of a kind may come at once; one more a second from then on."""

RUNS_A_LINE = 40
"""So many runs of offsets fill a line: 1,640 characters at most, and one is never cut."""

KINDS_KEPT = 1000  # before those that may have a whole burst again are forgotten


class Allowance:
    """How many lines of each kind may be written now: a burst, then one a second."""

    def __init__(self) -> None:
        self._left: dict[Hashable, tuple[float, float]] = {}  # kind -> lines, and when that was so

    def take(self, kind: Hashable, now: float) -> bool:
        """Whether a line of this kind may be written; it counts as written then."""
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
        """Note one more."""
        self.count += 1
        if self._runs and self._runs[-1][1] == offset - 1:
            self._runs[-1][1] = offset
        else:
            self._runs.append([offset, offset])

    @property
    def is_full(self) -> bool:
        """Whether another run would make too long a line."""
        return len(self._runs) >= RUNS_A_LINE

    def __str__(self) -> str:
        return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in _joined(self._runs))


def _joined(runs: list[list[int]]) -> list[list[int]]:
    """Ascending, those that touch as one: concurrent handlers end in any order."""
    joined: list[list[int]] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    return joined
