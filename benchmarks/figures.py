"""What one run has measured: figures by their names, which say the unit. No I/O."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

Figures = Mapping[str, float]
"""name of a figure -> its value"""

Round = Mapping[str, Figures]
"""name of a row -> what it measured in that round; without those that failed."""

RECORDS = "records"
RATE = "records/s"
CPU = "CPU µs a record"
RSS = "peak RSS MB"

BEST: Mapping[str, Callable[[Iterable[float]], float]] = {RATE: max, CPU: min}
"""Of these figures the best over the rounds counts: other guests of the host only ever slow a run
down, here by 1.6 times for parts of a second to minutes, and a median would say how busy they were.
Of others the median counts."""


def medians(runs: Sequence[Figures]) -> dict[str, float]:
    """Of each figure the median over *runs*, which all have the same."""
    return {
        name: statistics.median(run[name] for run in runs) for name in (runs[0] if runs else ())
    }


def percentile(samples: Sequence[float], share: float) -> float:
    """The least sample that this share of *samples* does not exceed."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def written(value: float) -> str:
    """A figure for a table: three digits that count, and thousands divided."""
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"
