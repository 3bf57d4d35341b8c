"""How long each step of a rebalance may take, so that the group does not continue without us. Pure.

The group gives its members one time for all of it, from the moment at which the rebalance begins. A
member hears of that with its next heartbeat at the latest, and sends none while it runs the hooks
of an assignment. What it does then (its handlers end, its hooks run, it commits) shares what is
left. Each step is granted its time when it begins, so the next one can use what a step has left.
The last commit has a share that no other step can take.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from reactive_kafka.config.checks import COPIED_S, LAST_COMMIT_S, GroupTimes

HOOK_S = 30.0
"""How long one hook of a rebalance may take if there is time."""

CLEANUP_S = 2.0
"""How long a step that was cancelled may take to clean up, if there is time."""


class Slot(NamedTuple):
    """The time of a step: it is cancelled after *run_s*, and left behind *cleanup_s* later."""

    run_s: float
    cleanup_s: float

    @classmethod
    def within(cls, left_s: float, most_s: float) -> Slot:
        """A slot of *most_s* at most, that fits into *left_s* together with its cleanup."""
        left_s = max(0.0, left_s)
        cleanup_s = min(CLEANUP_S, left_s / 4)
        return cls(min(most_s, left_s - cleanup_s), cleanup_s)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The moments (monotonic) of one release of partitions."""

    # Until when handlers are waited for.
    grace: float
    # When everything has to be over; infinite: the group does not wait for it.
    end: float
    # Reserved for the last commit.
    commit_s: float = 0.0
    # Reserved for hooks.
    hooks_s: float = 0.0
    # The group waits for less time than the steps may take.
    is_short: bool = False

    @property
    def commit_at(self) -> float:
        """When the last commit begins at the latest."""
        return self.end - self.commit_s

    @property
    def drain_end(self) -> float:
        """When waiting for handlers ends at the latest, even if they need longer."""
        return self.commit_at - self.hooks_s

    def hook(self, now: float, hooks: int) -> Slot:
        """The time of the next hook: an equal share for each of the *hooks* still to run."""
        return Slot.within((self.commit_at - now) / hooks, HOOK_S)

    def commit(self, now: float) -> Slot:
        """The time of the last commit."""
        # It has its share even if the loop was blocked until now: the group may wait longer than we
        # know.
        return Slot.within(max(self.end - now, self.commit_s), LAST_COMMIT_S)


@dataclass(slots=True)
class LastAssignment:
    """When (monotonic) the last assignment came, and when its hooks and starts were done."""

    began: float = -inf
    ended: float = -inf

    def asked_at(self, now: float, heartbeat_s: float) -> float:
        """When the group can have asked for a revocation, at the earliest, that is seen *now*."""
        # No heartbeat was sent while the hooks ran. So what the first ones after it say may be as
        # old as the assignment. What a later one says was not true yet when the one before it was
        # answered.
        return self.began if now - self.ended <= 2 * heartbeat_s else now - heartbeat_s


def of_revocation(
    times: GroupTimes,
    grace_s: float,
    now: float,
    last: LastAssignment,
    *,
    hooks: int,
    commits_twice: bool,
) -> Deadlines:
    """The deadlines of a revocation that begins *now*.

    Args:
        grace_s: How long handlers may finish, if there is time.
        hooks: How many hooks will run.
        commits_twice: What was committed is then committed to Kafka as well.
    """
    end = last.asked_at(now, times.heartbeat_s) + times.rebalance_s - times.join_s
    # Even if it seems to be too late, try: the group may still wait.
    left_s = max(end - now, times.rebalance_s / 4)
    if commits_twice:
        left_s -= min(COPIED_S, left_s / 4)
    commit_s = min(LAST_COMMIT_S + CLEANUP_S, left_s / 3)
    hooks_s = min(1.0, left_s / 10) if hooks else 0.0
    is_short = left_s < grace_s + hooks * (HOOK_S + CLEANUP_S) + LAST_COMMIT_S + CLEANUP_S
    return Deadlines(now + grace_s, now + left_s, commit_s, hooks_s, is_short)


def of_assignment(times: GroupTimes, grace_s: float, now: float) -> Deadlines:
    """The deadlines of an assignment's hooks.

    While they run no heartbeat is sent, so they must end within the session. And a revocation may
    follow at once, which needs its own time.
    """
    left_s = min(times.session_s, times.rebalance_s - LAST_COMMIT_S - CLEANUP_S - grace_s)
    left_s -= times.heartbeat_s + times.join_s
    return Deadlines(now, now + max(left_s, min(times.session_s, times.rebalance_s) / 4))


def without_group(grace: float) -> Deadlines:
    """The deadlines where no group waits for what is released."""
    return Deadlines(grace, inf)
