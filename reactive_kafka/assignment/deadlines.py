"""How long each step of a rebalance may take, so that this member is back before its group goes on
without it. Pure.

The group gives its members one time for all of it, from the moment at which the rebalance begins. A
member hears of that with its next heartbeat at the latest, and sends none while it runs the hooks
of an assignment. What it does then (its handlers end, its hooks run, it commits) shares what is
left. Each step is granted its time when it begins, so what a step has not used is there for the
next one. The last commit has a share that no other step can take.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from reactive_kafka.config.checks import COPIED_S, LAST_COMMIT_S, GroupTimes

HOOK_S = 30.0
"""How long one hook of a rebalance may take where there is time."""

CLEANUP_S = 2.0
"""How long what was cancelled for taking too long may take to clean up, where there is time."""


class Slot(NamedTuple):
    """What is granted to a step: it is cancelled after *run_s*, and left alone *cleanup_s*
    later.
    """

    run_s: float
    cleanup_s: float

    @classmethod
    def within(cls, left_s: float, most_s: float) -> Slot:
        """*most_s*, or what there is of that in *left_s*, with its cleanup."""
        left_s = max(0.0, left_s)
        cleanup_s = min(CLEANUP_S, left_s / 4)
        return cls(min(most_s, left_s - cleanup_s), cleanup_s)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The moments (monotonic) of one release of partitions."""

    # Until then handlers are waited for.
    grace: float
    # When all has to be over; endless: nobody waits for it.
    end: float
    # Kept for the last commit.
    commit_s: float = 0.0
    # Kept for hooks.
    hooks_s: float = 0.0
    # There is less than its steps may take where nobody waits.
    is_short: bool = False

    @property
    def commit_at(self) -> float:
        """When the last commit begins at the latest."""
        return self.end - self.commit_s

    @property
    def drain_end(self) -> float:
        """Until when what runs is waited for, however much longer it may take."""
        return self.commit_at - self.hooks_s

    def hook(self, now: float, hooks: int) -> Slot:
        """The time of the next of *hooks* that are still to run: none of them can take that of the
        others.
        """
        return Slot.within((self.commit_at - now) / hooks, HOOK_S)

    def commit(self, now: float) -> Slot:
        # Its share also where the loop stood still meanwhile: the group may have more patience than
        # we know of.
        return Slot.within(max(self.end - now, self.commit_s), LAST_COMMIT_S)


@dataclass(slots=True)
class LastAssignment:
    """When (monotonic) the last assignment came, and when all that it led to was done."""

    began: float = -inf
    ended: float = -inf

    def asked_at(self, now: float, heartbeat_s: float) -> float:
        """The earliest moment at which the group can have asked for a revocation that is seen
        *now*.
        """
        # What the first heartbeats after an assignment's hooks tell may be as old as the
        # assignment. What a later one tells was not so when the one before it was answered.
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
    """Of a revocation that begins *now*; *commits_twice*: then what was committed goes to Kafka as
    well.
    """
    end = last.asked_at(now, times.heartbeat_s) + times.rebalance_s - times.join_s
    # It may be too late by now, or it may not: it tries.
    left_s = max(end - now, times.rebalance_s / 4)
    if commits_twice:
        left_s -= min(COPIED_S, left_s / 4)
    commit_s = min(LAST_COMMIT_S + CLEANUP_S, left_s / 3)
    hooks_s = min(1.0, left_s / 10) if hooks else 0.0
    is_short = left_s < grace_s + hooks * (HOOK_S + CLEANUP_S) + LAST_COMMIT_S + CLEANUP_S
    return Deadlines(now + grace_s, now + left_s, commit_s, hooks_s, is_short)


def of_assignment(times: GroupTimes, grace_s: float, now: float) -> Deadlines:
    """Of an assignment's hooks: a session goes on without heartbeats so long, and a revocation may
    follow at once.
    """
    left_s = min(times.session_s, times.rebalance_s - LAST_COMMIT_S - CLEANUP_S - grace_s)
    left_s -= times.heartbeat_s + times.join_s
    return Deadlines(now, now + max(left_s, min(times.session_s, times.rebalance_s) / 4))


def without_group(grace: float) -> Deadlines:
    """Nobody waits for what is released, or has assigned it."""
    return Deadlines(grace, inf)
