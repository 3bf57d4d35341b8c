"""When the number of settled offsets makes a commit due: ``commit_every``. No I/O, no clock.

Records are not counted as they are settled. The partitions are looked at when enough records may
have been settled, by the speed until then: between ten and two hundred times a second, and not at
all while nothing is unsettled.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from reactive_kafka.commit.strategy import CommitStrategy, ThrottledCommits
from reactive_kafka.config.settings import IncomingSettings

Ahead = Callable[[], tuple[int, int]]
"""Returns the number of offsets that are settled and not stored, and the number of records in the
windows behind them."""

LEAST_S = 0.005
MOST_S = 0.1
"""How soon after a look the next one comes, at the soonest and at the latest."""


class CommitEvery:
    """Says when *most* offsets are settled and not committed; times are monotonic."""

    def __init__(self, most: int, ahead: Ahead) -> None:
        self._most = most
        self._ahead = ahead
        # What the last look found, and when it was.
        self._found = 0
        self._looked_at = -inf
        # When to look; infinite: only new records can make a commit due.
        self._look_at = inf

    def came(self, now: float) -> bool:
        """Records have come; returns whether a look is due that is not waited for yet."""
        if self._look_at < inf:
            return False
        self._look_at = now + LEAST_S
        return True

    def due_at(self, now: float) -> float:
        """When to ask again; in the past: a commit is due. Infinite: when records have come."""
        if now < self._look_at:
            return self._look_at
        ahead, window = self._ahead()
        # After a commit the count begins again.
        settled = ahead - self._found if ahead >= self._found else ahead
        self._found = ahead
        took_s = now - self._looked_at
        self._looked_at = now
        if ahead >= self._most:
            self._look_at = now + LEAST_S
            return -inf
        if not window:
            self._look_at = inf
            return self._look_at
        wait_s = (self._most - ahead) * took_s / settled if settled else MOST_S
        self._look_at = now + min(max(wait_s, LEAST_S), MOST_S)
        return self._look_at


def every_of(
    settings: IncomingSettings, strategy: CommitStrategy, ahead: Ahead
) -> CommitEvery | None:
    """The rule for one client of a channel; None: it is not configured, or the strategy decides."""
    if settings.commit_every is None or type(strategy) is not ThrottledCommits:
        return None
    return CommitEvery(max(1, settings.commit_every // settings.consumers), ahead)
