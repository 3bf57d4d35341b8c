"""The bound on what is settled and not committed, which is what a crash repeats beside what is in flight. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from reactive_kafka.commit.strategy import CommitStrategy, Latest, Throttled
from reactive_kafka.config.schema import IncomingSettings

TELL_AFTER_S = 1.0
"""How long nothing may be fetched before the channel is not ready: the commit that is due takes a moment."""


class UncommittedBound:
    """Has the positions of one client committed early at half of ``max_uncommitted``, and says when it is reached.

    What is settled behind an unsettled record cannot be committed, and is not counted.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        strategy: CommitStrategy,
        ahead: Callable[[], int],  # how many offsets the positions that are due are ahead of those that are stored
        request: Callable[[], None],  # has what is due committed
        failing: Callable[[], str | None],  # why the last commit was not stored
    ) -> None:
        self.most = settings.most_uncommitted
        self.since: float | None = None  # it is reached; monotonic
        self._ahead = ahead
        self._request = request
        self._failing = failing
        self._count = 0
        self._look_at: float = 0
        # A checkpoint store bounds by itself what it has not stored, and what is ignored is never committed.
        is_named = settings.commit_strategy in ("throttled", "latest")
        self._is_always = is_named and isinstance(strategy, Throttled | Latest)
        self._is_never = settings.commit_strategy in ("checkpoint", "ignore")

    def look(self, brought: int, now: float) -> None:
        """Look whether it is reached, after *brought* records in all; most calls need not."""
        # Only what was brought can have settled. So after a look it takes as many records more as there is room for.
        if brought < self._look_at or self._is_never:
            return
        self._count = ahead = self._ahead()
        half = -(-self.most // 2)
        # A custom strategy may commit as rarely as it likes: nothing of it is late until a commit has failed.
        is_bound = self._is_always or self._failing() is not None
        if ahead >= half and self._is_always:
            self._request()
        if not is_bound or ahead < self.most:
            self.since = None
            self._look_at = brought + max(1, (half if ahead < half else self.most) - ahead)
        else:
            self._look_at = -inf
            if self.since is None:
                self.since = now

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
