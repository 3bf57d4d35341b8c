"""When a commit is due for the number of offsets that it would store: ``commit_every``. No I/O, no
clock.

Nothing counts records as they are settled. The partitions are looked at when so many may be, by how
fast they were settled until then: between two hundred times and ten times a second, and not at all
while nothing is unsettled.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from reactive_kafka.commit.strategy import CommitStrategy, ThrottledCommits
from reactive_kafka.config.schema import IncomingSettings

Ahead = Callable[[], tuple[int, int]]
"""How many offsets the positions that are due are ahead of those that are stored; how many records
are behind.
"""

LEAST_S = 0.005
MOST_S = 0.1
"""How soon after a look the next one comes, at the soonest and at the latest."""


class CommitEvery:
    """Says when *most* offsets are settled and not committed; times are monotonic."""

    def __init__(self, most: int, ahead: Ahead) -> None:
        self._most = most
        self._ahead = ahead
        # At the last look.
        self._found = 0
        self._at = -inf
        # When to look; endless: only what comes can become due.
        self._look_at = inf

    def came(self, now: float) -> bool:
        """Records have come; whether there is to be a look that nobody waits for."""
        if self._look_at < inf:
            return False
        self._look_at = now + LEAST_S
        return True

    def due_at(self, now: float) -> float:
        """When to ask again, endless where only what comes can change the answer; in the past: a
        commit is due.
        """
        if now < self._look_at:
            return self._look_at
        ahead, window = self._ahead()
        settled = ahead - self._found if ahead >= self._found else ahead
        self._found = ahead
        took_s = now - self._at
        self._at = now
        if ahead >= self._most:
            self._look_at = now + LEAST_S
            return -inf
        wait_s = MOST_S if not settled else (self._most - ahead) * took_s / settled
        self._look_at = now + min(max(wait_s, LEAST_S), MOST_S) if window else inf
        return self._look_at


def every_of(
    settings: IncomingSettings, strategy: CommitStrategy, ahead: Ahead
) -> CommitEvery | None:
    """What one client of a channel goes by; None: it is not told to, or its strategy says itself
    when.
    """
    if settings.commit_every is None or type(strategy) is not ThrottledCommits:
        return None
    return CommitEvery(max(1, settings.commit_every // settings.consumers), ahead)
