"""The bound on what is settled and not committed, which a crash repeats. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from reactive_kafka.commit.strategy import CommitStrategy, LatestCommits, ThrottledCommits
from reactive_kafka.records import TopicPartition

TELL_AFTER_S = 1.0
"""How long nothing may be fetched before the channel is not ready: the commit that is due takes a
moment."""

EARLY_EVERY_S = 0.2
"""How often a commit is requested before its time, unless the bound is strict or nearly reached."""

LOOK_EVERY_S = 0.05
"""How often the partitions are counted, unless the bound is strict or nearly reached."""

LATE_S = 1.0
"""How long no commit is stored before it counts as late, unless the bound is strict."""

AT_ANY_MOMENT = 10
"""How many times the bound may ever be uncommitted, unless the bound is strict. A fast channel
settles many records before a commit counts as late."""


class UncommittedBound:
    """Bounds the offsets of one client that are settled and not committed: ``max_uncommitted``.

    At half of the bound it requests a commit. At the bound nothing more may be fetched.

    A *strict* bound holds at every moment. That costs fast channels: no more than half of it is
    handled while one commit is answered. A bound that is not strict holds only while commits are
    refused or late. Ten times the bound is never exceeded. What is settled behind an unsettled
    record cannot be committed, and is not counted.

    Args:
        ahead: Returns the number of offsets that are settled and not stored, and the number of
            records in the windows behind them.
        request: Requests a commit.
        failing: Returns why the last commit was not stored.
        stored_at: Returns when a commit was stored last; monotonic.
        refused: Returns partition -> its offsets that are settled and not stored, where the broker
            refuses the positions of that partition; they are not in *ahead*.
    """

    def __init__(
        self,
        most: int,
        strategy: CommitStrategy,
        ahead: Callable[[], tuple[int, int]],
        request: Callable[[], None],
        failing: Callable[[], str | None],
        stored_at: Callable[[], float],
        refused: Callable[[], Mapping[TopicPartition, int]] = dict,
        *,
        is_strict: bool,
    ) -> None:
        self.most = most
        # Since when the bound is reached; monotonic.
        self.since: float | None = None
        # A custom strategy may commit as rarely as it likes: nothing is late until a commit has
        # failed. NoCommits never commits, so no commit of it fails.
        self._commits_by_itself = type(strategy) in (ThrottledCommits, LatestCommits)
        self._ahead = ahead
        self._request = request
        self._failing = failing
        self._stored_at = stored_at
        self._refused = refused
        self._is_strict = is_strict
        self._half = -(-most // 2)
        # Nothing is fetched from here on, whether commits are late or not.
        self._ceiling = most if is_strict else AT_ANY_MOMENT * most
        # A commit is requested from here on, however recent the last one was.
        self._urgent = self._half if is_strict else self._ceiling - self._ceiling // 4
        # What the last look found.
        self._count = 0
        # The next look is due when polls have brought this number of records ...
        self._look_from_count: float = 0
        # ... but not before this time, unless this number of records comes sooner.
        self._again_at = -inf
        self._urgent_count = 0
        # When the next early commit may be requested.
        self._early_at = -inf
        # When less than the bound was found last.
        self._below_at = -inf

    def look(self, brought: int, now: float) -> None:
        """Find out whether the bound is reached; most calls return at once.

        Args:
            brought: How many records polls have brought since the start.
            now: Monotonic.
        """
        is_failing = self._failing() is not None
        if not self._commits_by_itself and not is_failing:
            self.since = None
            self._look_from_count = 0
            return
        # Only what was in the windows at the last look, and what polls have brought since, can have
        # been settled. So until enough records have come the bound cannot be reached.
        if brought < self._look_from_count and (self._is_strict or not is_failing):
            return
        # A look goes through all partitions. A bound that is not strict may be exceeded for a
        # while, so looking every few thousand records would be too often.
        if now < self._again_at and brought < self._urgent_count and not is_failing:
            return
        ahead, window = self._ahead()
        self._count = ahead
        is_early = ahead >= self._half and now >= self._early_at
        if self._commits_by_itself and (ahead >= self._urgent or is_early):
            self._early_at = now + EARLY_EVERY_S
            self._request()
        if ahead < self.most:
            self._below_at = now
        self._again_at = -inf
        if ahead >= self._ceiling or (ahead >= self.most and self._is_failing_or_late(now)):
            self.since = now if self.since is None else self.since
            self._look_from_count = 0
            return
        self.since = None
        if ahead >= self._half and not self._is_strict:
            # A commit is on its way.
            urgent = self._urgent if ahead < self._urgent else self._ceiling
            self._again_at = now + LOOK_EVERY_S
            self._urgent_count = brought + urgent - ahead
        next_mark = min(mark for mark in (self._half, self.most, self._ceiling) if mark > ahead)
        room = min(self._half, next_mark - ahead)
        self._look_from_count = brought + max(0, room - (window if self._is_strict else 0))

    def _is_failing_or_late(self, now: float) -> bool:
        """Whether the last commit failed, or none was stored for a while in which one was due."""
        if self._failing() is not None:
            return True
        return now >= max(self._below_at, self._stored_at()) + LATE_S

    @property
    def is_reached(self) -> bool:
        """Whether nothing may be fetched until something is committed."""
        return self.since is not None

    def held_back(self) -> set[TopicPartition]:
        """The partitions that reach the bound alone, because their positions are refused."""
        return {partition for partition, ahead in self._refused().items() if ahead >= self.most}

    def not_ready(self, now: float) -> str | None:
        """Why nothing is fetched, of all partitions or of some, once that has lasted a moment."""
        if self.since is None:
            return self._why_held_back()
        if now - self.since < TELL_AFTER_S:
            return None
        return f"nothing is fetched: {self._uncommitted(self._count)}"

    def _why_held_back(self) -> str | None:
        held_back = self.held_back()
        if not held_back:
            return None
        names = ", ".join(map(str, sorted(held_back)))
        count = sum(ahead for name, ahead in self._refused().items() if name in held_back)
        return f"nothing is fetched of {names}: {self._uncommitted(count)}"

    def _uncommitted(self, count: int) -> str:
        return f"{count} offsets are settled and not committed (max_uncommitted = {self.most})"
