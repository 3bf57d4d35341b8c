"""Which positions of a group may be ours, after seeks and after assignments that have ended."""

from __future__ import annotations

from reactive_kafka.partitions.commit_state import CommitState
from tests.app.helpers import tp
from tests.partitions.reading import lone_partition
from tests.tracking.values import tracker_of


def sought_back() -> CommitState:
    """Positions up to 8 may be stored for the place that a seek has left."""
    commits = lone_partition(tp(0)).commits
    old = tracker_of(tp(0), 0, committed=0)
    old.sent(8)
    commits.start(tracker_of(tp(0), 2, committed=0), old, None)
    return commits


def test_a_position_below_the_place_that_is_read_is_none_that_was_sent_for_it() -> None:
    commits = lone_partition(tp(0)).commits
    tracker = tracker_of(tp(0), 10, committed=5)
    commits.start(tracker, None, None)
    tracker.sent(12)
    assert [position for position in range(20) if commits.is_as_left(tracker, position)] == [
        5,
        10,
        11,
        12,
    ]


def test_a_position_that_was_stored_for_the_place_before_a_seek_confirms_nothing_of_the_new_one() -> (
    None
):
    commits = sought_back()
    tracker = tracker_of(tp(0), 2, committed=0)
    commits.retain(tracker, 8)
    assert commits.stored == 8
    assert tracker.uncommitted_from == 0


def test_a_position_that_the_new_place_has_confirmed_too_is_its_own() -> None:
    commits = sought_back()
    tracker = tracker_of(tp(0), 2, committed=0)
    tracker.confirmed(6)
    commits.retain(tracker, 4)
    assert tracker.uncommitted_from == 4


def test_an_assignment_that_has_ended_leaves_no_positions_that_may_be_ours() -> None:
    commits = sought_back()
    tracker = tracker_of(tp(0), 2, committed=0)
    assert commits.is_as_left(tracker, 7)
    commits.unknown.add(1, is_repeated=False)
    commits.drop(tracker, was_committing=True, is_ours=False)
    assert not commits.is_as_left(tracker, 7)
    assert commits.unknown.lowest(9) == 9


def test_a_request_in_flight_is_void_only_if_somebody_else_had_the_partition() -> None:
    for was_committing, is_ours in ((True, True), (True, False), (False, False)):
        commits = lone_partition(tp(0)).commits
        commits.send()
        commits.drop(tracker_of(tp(0)), was_committing=was_committing, is_ours=is_ours)
        assert commits.is_void is (was_committing and not is_ours)


def test_a_place_of_which_nothing_was_committed_leaves_no_positions_behind() -> None:
    commits = sought_back()
    commits.start(tracker_of(tp(0), 30, committed=0), None, None)
    assert not commits.behind


def test_a_seek_from_a_place_of_which_nothing_was_stored_leaves_the_positions_of_the_one_before() -> (
    None
):
    commits = sought_back()
    nothing_stored = tracker_of(tp(0), 2, committed=2)
    nothing_stored.sent(3)
    commits.start(tracker_of(tp(0), 30, committed=0), nothing_stored, None)
    assert commits.behind == range(9)
    stored = tracker_of(tp(0), 2, committed=2)
    stored.sent(5)
    stored.confirmed(4)
    commits.start(tracker_of(tp(0), 30, committed=0), stored, None)
    assert commits.behind == range(4, 6)


def test_a_position_of_unknown_outcome_at_the_start_of_reading_is_not_taken_for_the_groups() -> (
    None
):
    commits = lone_partition(tp(0)).commits
    tracker = tracker_of(tp(0), 5, committed=3)
    commits.start(tracker, None, None)
    commits.unknown.add(5, is_repeated=False)
    tracker.sent(5)
    assert commits.unmoved(tracker) == 3
    tracker.sent(6)
    assert commits.unmoved(tracker) == 6
