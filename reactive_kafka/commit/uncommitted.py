"""The bound on what is settled and not committed, which is what a crash repeats beside what is in
flight. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from reactive_kafka.commit.strategy import CommitStrategy, LatestCommits, ThrottledCommits
from reactive_kafka.records import TopicPartition

TELL_AFTER_S = 1.0
"""How long nothing may be fetched before the channel is not ready: the commit that is due takes a
moment.
"""

EARLY_EVERY_S = 0.2
"""How often a commit is sent before its time, unless the bound is strict, or what it may be at any
moment is near.
"""

LOOK_EVERY_S = 0.05
"""How often the partitions are looked through, unless the bound is strict, or what it may be at any
moment is near.
"""

LATE_S = 1.0
"""How long no commit is stored before it counts as late, unless the bound is strict."""

AT_ANY_MOMENT = 10
"""How many times the bound it may be at any moment, unless the bound is strict: a second is long
for who is fast.
"""


class UncommittedBound:
    """Has the positions of one client committed early at half of ``max_uncommitted``, and says when
    it is reached.

    A *strict* bound holds at every moment, which costs whoever is fast: no more than half of it is
    handled while one commit is answered. One that is not holds while commits are refused or late,
    and ten times of it at every moment. What is settled behind an unsettled record cannot be
    committed, and is not counted.
    """

    def __init__(
        self,
        most: int,
        strategy: CommitStrategy,
        # how many offsets the positions that are due are ahead of those that are stored; how many
        # records are behind
        ahead: Callable[[], tuple[int, int]],
        # Has what is due committed.
        request: Callable[[], None],
        # Why the last commit was not stored.
        failing: Callable[[], str | None],
        # When one was last; monotonic.
        stored_at: Callable[[], float],
        # partition -> how many offsets it is ahead, where the broker refuses its positions alone;
        # not in *ahead*
        refused: Callable[[], Mapping[TopicPartition, int]] = dict,
        *,
        is_strict: bool,
    ) -> None:
        self.most = most
        # It is reached; monotonic.
        self.since: float | None = None
        # A custom strategy may commit as rarely as it likes: nothing of it is late until a commit
        # has failed. What is ignored is never committed, and no commit of it fails.
        self._is_always = type(strategy) in (ThrottledCommits, LatestCommits)
        self._ahead = ahead
        self._request = request
        self._failing = failing
        self._stored_at = stored_at
        self._refused = refused
        self._is_strict = is_strict
        self._half = -(-most // 2)
        self._ceiling = most if is_strict else AT_ANY_MOMENT * most
        self._urgent = self._half if is_strict else self._ceiling - self._ceiling // 4
        self._count = 0
        self._look_at: float = 0
        self._urgent_at = 0
        self._early_at = self._below_at = self._again_at = -inf

    def look(self, brought: int, now: float) -> None:
        """Look whether it is reached at *now* (monotonic), after *brought* records in all; most
        calls need not.
        """
        if not self._is_always and self._failing() is None:
            self.since = None
            self._look_at = 0
            return
        # Only what was brought can become due: what is in the window at a look, and what polls
        # bring after it.
        if brought < self._look_at and (self._is_strict or self._failing() is None):
            return
        # A look goes through all partitions, so what may be passed for a while is not looked at for
        # every few thousand.
        if now < self._again_at and brought < self._urgent_at and self._failing() is None:
            return
        ahead, window = self._ahead()
        self._count = ahead
        if self._is_always and (
            ahead >= self._urgent or (ahead >= self._half and now >= self._early_at)
        ):
            self._early_at = now + EARLY_EVERY_S
            self._request()
        if ahead < self.most:
            self._below_at = now
        if ahead >= self._ceiling or (
            ahead >= self.most and (self._failing() is not None or self._is_late(now))
        ):
            self.since = now if self.since is None else self.since
            self._look_at = 0
            self._again_at = -inf
        else:
            self._again_at = -inf
            # A commit is on its way.
            if ahead >= self._half and not self._is_strict:
                urgent = self._urgent if ahead < self._urgent else self._ceiling
                self._again_at = now + LOOK_EVERY_S
                self._urgent_at = brought + urgent - ahead
            marks = (self._half, self.most, self._ceiling)
            room = min(self._half, next(mark for mark in marks if mark > ahead) - ahead)
            self.since = None
            self._look_at = brought + max(0, room - (window if self._is_strict else 0))

    def _is_late(self, now: float) -> bool:
        """Whether no commit has been stored for a while, in which one was due."""
        return now >= max(self._below_at, self._stored_at()) + LATE_S

    @property
    def is_reached(self) -> bool:
        """Whether nothing may be fetched until something is committed."""
        return self.since is not None

    def held_back(self) -> set[TopicPartition]:
        """The partitions that reach the bound by themselves, because their positions are
        refused.
        """
        return {partition for partition, ahead in self._refused().items() if ahead >= self.most}

    def not_ready(self, now: float) -> str | None:
        """Why nothing is fetched, or nothing of some partitions, once that has lasted; None: all is
        fetched.
        """
        if self.since is None and (held_back := self.held_back()):
            of = ", ".join(map(str, sorted(held_back)))
            count = sum(
                ahead for partition, ahead in self._refused().items() if partition in held_back
            )
            what = f"{count} offsets are settled and not committed"
            return f"nothing is fetched of {of}: {what} (max_uncommitted = {self.most})"
        if self.since is None or now - self.since < TELL_AFTER_S:
            return None
        what = f"{self._count} offsets are settled and not committed"
        return f"nothing is fetched: {what} (max_uncommitted = {self.most})"
