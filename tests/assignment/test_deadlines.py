"""The time of a rebalance's steps: together no longer than the group waits, and the last commit
keeps its share.
"""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reactive_kafka.assignment.deadlines import (
    CLEANUP_S,
    HOOK_S,
    Deadlines,
    LastAssignment,
    of_assignment,
    of_revocation,
    without_group,
)
from reactive_kafka.config.checks import LAST_COMMIT_S, GroupTimes

USUAL = GroupTimes(heartbeat_s=3, session_s=45, rebalance_s=60)
LONG_AGO = LastAssignment()

seconds = st.floats(0, 1000)
times = st.builds(
    GroupTimes,
    heartbeat_s=st.floats(0.1, 60),
    session_s=st.floats(0.5, 600),
    rebalance_s=st.floats(0.5, 600),
)


def revocation(*, commits_twice: bool = False) -> Deadlines:
    return of_revocation(USUAL, 5, 100, LONG_AGO, hooks=1, commits_twice=commits_twice)


@given(times, seconds, st.lists(seconds, max_size=4), seconds, seconds, st.booleans(), st.data())
def test_whatever_the_steps_take_they_end_in_time_and_the_last_commit_has_its_share(
    group: GroupTimes,
    grace_s: float,
    hooks: list[float],
    rest_s: float,
    commit_takes_s: float,
    commits_twice: bool,
    data: st.DataObject,
) -> None:
    began = 1000.0
    handlers_s, jobs = data.draw(seconds), data.draw(st.booleans())
    deadlines = of_revocation(
        group, grace_s, began, LONG_AGO, hooks=len(hooks), commits_twice=commits_twice
    )
    now = min(
        began + handlers_s,
        deadlines.drain_end if jobs else min(deadlines.grace, deadlines.drain_end),
    )
    for number, takes_s in enumerate(hooks):
        slot = deadlines.hook(now, len(hooks) - number)
        assert 0 <= slot.run_s <= HOOK_S
        assert 0 <= slot.cleanup_s <= CLEANUP_S
        now += min(takes_s, slot.run_s + slot.cleanup_s)
    now = max(now, min(now + rest_s, min(deadlines.grace, deadlines.commit_at)))
    commit = deadlines.commit(now)
    assert commit.run_s >= min(LAST_COMMIT_S, 0.75 * deadlines.commit_s) - 1e-6
    now += min(commit_takes_s, commit.run_s + commit.cleanup_s)
    assert now <= deadlines.end + 1e-6
    patience_s = group.rebalance_s - group.heartbeat_s - group.join_s
    assert now - began <= max(patience_s, group.rebalance_s / 4) + 1e-6


@given(times, seconds, st.floats(0, 100), st.floats(0, 100))
def test_it_is_counted_from_when_the_group_may_have_asked(
    group: GroupTimes, hooks_took_s: float, since_s: float, grace_s: float
) -> None:
    """An assignment's hooks run without heartbeats, so the group may have waited since the
    assignment.
    """
    now = 5000.0
    last = LastAssignment(now - since_s - hooks_took_s, now - since_s)
    found = of_revocation(group, grace_s, now, last, hooks=1, commits_twice=False)
    asked_at = last.began if since_s <= 2 * group.heartbeat_s else now - group.heartbeat_s
    latest = max(asked_at + group.rebalance_s - group.join_s, now + group.rebalance_s / 4)
    assert found.end == pytest.approx(latest)


@given(times, st.floats(0, 100), st.lists(seconds, min_size=1, max_size=4))
def test_hooks_of_an_assignment_end_before_its_session_does_and_leave_time_for_a_revocation(
    group: GroupTimes, grace_s: float, hooks: list[float]
) -> None:
    assume(group.heartbeat_s < group.session_s / 2)
    deadlines, now = of_assignment(group, grace_s, 0.0), 0.0
    for number, takes_s in enumerate(hooks):
        slot = deadlines.hook(now, len(hooks) - number)
        now += min(takes_s, slot.run_s + slot.cleanup_s)
    assert (
        now <= max(group.session_s - group.heartbeat_s - group.join_s, group.session_s / 4) + 1e-6
    )
    assert (
        now
        <= max(
            group.rebalance_s - group.heartbeat_s - group.join_s - grace_s, group.rebalance_s / 4
        )
        + 1e-6
    )


def test_usual_times_cut_nothing() -> None:
    found = revocation()
    assert (found.grace, min(found.grace, found.drain_end)) == (105, 105)
    assert (found.is_short, found.hook(105, 1).run_s) == (False, HOOK_S)
    assert found.commit(137).run_s == LAST_COMMIT_S
    assert found.end == 100 - 3 + 60 - 1


def test_a_hook_cannot_take_the_time_of_those_behind_it() -> None:
    first = revocation().hook(105, 3)
    assert first.run_s + first.cleanup_s == pytest.approx((revocation().commit_at - 105) / 3)


def test_a_second_commit_to_kafka_has_time_of_its_own() -> None:
    assert revocation(commits_twice=True).end == revocation().end - 5


def test_without_a_group_nobody_waits() -> None:
    alone = without_group(7)
    assert (alone.end, alone.grace, alone.drain_end) == (inf, 7, inf)
    assert alone.hook(1e9, 9).run_s == HOOK_S
    assert alone.commit(1e9).run_s == LAST_COMMIT_S
