"""The bound on what is settled and not committed, which is what a crash repeats beside what is in flight. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from reactive_kafka.commit.strategy import CommitStrategy, Latest, Throttled

TELL_AFTER_S = 1.0
"""How long nothing may be fetched before the channel is not ready: the commit that is due takes a moment."""


EARLY_EVERY_S = 0.2
"""How often a commit is sent before its time, unless the bound is strict."""

LATE_S = 1.0
"""How long no commit is stored before it counts as late, unless the bound is strict."""


class UncommittedBound:
    """Has the positions of one client committed early at half of ``max_uncommitted``, and says when it is reached.

    A *strict* bound holds at every moment, which costs whoever is fast: no more than half of it is handled while one
    commit is answered. One that is not holds while commits are refused or late. What is settled behind an unsettled
    record cannot be committed, and is not counted.
    """

    def __init__(
        self,
        most: int,
        in_flight: int,  # the most records that are not settled
        strategy: CommitStrategy,
        ahead: Callable[[], int],  # how many offsets the positions that are due are ahead of those that are stored
        request: Callable[[], None],  # has what is due committed
        failing: Callable[[], str | None],  # why the last commit was not stored
        stored: Callable[[], int],  # how many commits have been
        *,
        is_strict: bool,
    ) -> None:
        self.most = most
        self.since: float | None = None  # it is reached; monotonic
        self._in_flight = in_flight
        # A custom strategy may commit as rarely as it likes: nothing of it is late until a commit has failed. What is
        # ignored is never committed, and no commit of it fails.
        self._is_always = type(strategy) in (Throttled, Latest)
        self._ahead = ahead
        self._request = request
        self._failing = failing
        self._stored = stored
        self._is_strict = is_strict
        self._count = self._seen = 0
        self._look_at: float = 0
        self._early_at = self._late_at = -inf

    def look(self, brought: int, now: float) -> None:
        """Look whether it is reached at *now* (monotonic), after *brought* records in all; most calls need not."""
        if not self._is_always and self._failing() is None:
            self.since, self._look_at = None, 0
            return
        # Only what was brought can have settled: what is in flight at a look, and what polls bring after it.
        if brought < self._look_at and (self._is_strict or self._failing() is None):
            return
        self._count = ahead = self._ahead()
        half = -(-self.most // 2)
        if ahead >= half and self._is_always and (self._is_strict or now >= self._early_at):
            self._early_at = now + EARLY_EVERY_S
            self._request()
        if ahead < self.most:
            room = (half if ahead < half else self.most) - ahead
            self.since, self._look_at = None, brought + max(0, room - self._in_flight)
            self._late_at = now + LATE_S
        elif self._is_strict or self._failing() is not None or self._is_late(now):
            self.since, self._look_at = now if self.since is None else self.since, 0
        else:
            self.since, self._look_at = None, brought + half

    def _is_late(self, now: float) -> bool:
        """Whether no commit has been stored for a while, in which one was due."""
        if self._seen != (stored := self._stored()):
            self._seen, self._late_at = stored, now + LATE_S
        return now >= self._late_at

    @property
    def is_reached(self) -> bool:
        """Whether nothing may be fetched until something is committed."""
        return self.since is not None

    def not_ready(self, now: float) -> str | None:
        """Why nothing is fetched, once that has lasted; None: something is."""
        if self.since is None or now - self.since < TELL_AFTER_S:
            return None
        what = f"{self._count} offsets are settled and not committed"
        return f"nothing is fetched: {what} (max_uncommitted = {self.most})"
