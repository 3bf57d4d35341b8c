"""The settled offsets above the committed position, as the page draws them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.tracking.settled_ranges import settled_above
from reactive_kafka.tracking.tracker import OffsetTracker
from tests.observe.samples import ORDERS_0


def tracker_at(position: int, records: int, committed: int | None = None) -> OffsetTracker:
    tracker = OffsetTracker(ORDERS_0, position, committed=committed)
    tracker.deliver(range(position, position + records), position + records)
    return tracker


def test_nothing_is_settled_before_a_verdict() -> None:
    assert settled_above(tracker_at(10, 5, committed=10)) == ()
    assert settled_above(tracker_at(10, 0, committed=10)) == ()


def test_islands_lie_behind_unsettled_records() -> None:
    tracker = tracker_at(10, 10, committed=10)
    for index in (2, 3, 7):
        tracker.settle(index)
    assert settled_above(tracker) == ((12, 14), (17, 18))


def test_what_waits_for_its_commit_is_settled_too() -> None:
    tracker = tracker_at(10, 10, committed=10)
    for index in (0, 1, 4):
        tracker.settle(index)
    assert settled_above(tracker) == ((10, 12), (14, 15))
    tracker.compact()
    assert settled_above(tracker) == ((10, 12), (14, 15))
    for index in range(10):
        tracker.settle(index)
    tracker.compact()
    assert settled_above(tracker) == ((10, 20),)
    tracker.confirmed(20)
    assert settled_above(tracker) == ()


def test_without_a_committed_position_they_begin_where_reading_began() -> None:
    tracker = tracker_at(10, 5)
    tracker.settle(0)
    assert settled_above(tracker) == ((10, 11),)


def test_the_last_range_reaches_over_those_that_are_too_many() -> None:
    tracker = tracker_at(0, 1000, committed=0)
    for index in range(1, 1000, 2):
        tracker.settle(index)
    ranges = settled_above(tracker, most=3)
    assert ranges == ((1, 2), (3, 4), (5, 1000))


def test_a_nacked_record_ends_a_range() -> None:
    tracker = tracker_at(0, 4, committed=0)
    tracker.settle(1)
    tracker.nack(2)
    tracker.settle(3)
    assert settled_above(tracker) == ((1, 2), (3, 4))


def test_an_assignment_that_is_over_has_none() -> None:
    tracker = tracker_at(0, 4, committed=0)
    tracker.settle(1)
    tracker.close()
    assert settled_above(tracker) == ()


@given(st.sets(st.integers(0, 60)), st.booleans())
def test_they_hold_exactly_the_settled_offsets(settled: set[int], is_compact: bool) -> None:
    tracker = tracker_at(100, 61, committed=100)
    for index in settled:
        tracker.settle(index)
    if is_compact:
        tracker.compact()
    ranges = settled_above(tracker, most=100)
    assert {offset - 100 for first, after in ranges for offset in range(first, after)} == settled
    assert all(one[1] < other[0] for one, other in itertools.pairwise(ranges))
