"""``settle_up_to``: a record and those before it, as far as a handler has had them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker

P0 = TopicPartition("orders", 0)


def tracker_with(count: int) -> OffsetTracker:
    tracker = OffsetTracker(P0, 0)
    tracker.deliver(range(count), count)
    return tracker


@given(
    verdicts=st.lists(st.sampled_from(["none", "acked", "nacked"]), min_size=1, max_size=12),
    waiting=st.sets(st.integers(0, 11)),
    put_back=st.sets(st.integers(0, 11)),
    data=st.data(),
)
def test_it_settles_what_is_open_and_was_started_and_nothing_else(
    verdicts: list[str], waiting: set[int], put_back: set[int], data: st.DataObject
) -> None:
    count = len(verdicts)
    tracker = tracker_with(count)
    told: list[int] = []
    tracker.in_order = not any(index < count for index in waiting)
    for index, verdict in enumerate(verdicts):
        if index not in waiting:
            tracker.start_range(index, 1, 1.0)
            if verdict == "acked":
                tracker.settle(index)
            elif verdict == "nacked":
                tracker.nack(index)
            elif index in put_back:
                tracker.put_back(index, told.append)
        elif index in put_back:
            # No handler has had it: it waited for its schema.
            tracker.put_back(index, told.append)
    if data.draw(st.booleans()):
        # Lets go of what is settled at the front.
        tracker.committable  # noqa: B018
    upto = data.draw(st.integers(0, count - 1))
    open_before = {i for i in range(count) if verdicts[i] == "none" or i in waiting}
    taken = {index for index in open_before if index <= upto and index not in waiting}
    assert tracker.settle_up_to(upto) == len(taken)
    assert {index for index in range(count) if tracker.is_open(index)} == open_before - taken
    assert set(told) == taken & put_back
    assert tracker.settle_up_to(upto) == 0
    for index in open_before - taken:
        tracker.nack(index)
    assert sorted(told) == sorted(open_before & put_back), "each is told of once"


def test_a_run_is_taken_up_to_the_record_that_its_handler_has() -> None:
    tracker = tracker_with(5)
    tracker.begin_run(0)
    # 0 and 1 are done, its handler has 2.
    tracker.run_at, tracker.run_since = 2, 1.0
    assert tracker.settle_up_to(2) == 1
    tracker.end_run(3)
    assert tracker.committable == 3


def test_a_tracker_whose_assignment_is_over_settles_nothing() -> None:
    tracker = tracker_with(3)
    tracker.start_range(0, 3, 1.0)
    tracker.close()
    assert tracker.settle_up_to(2) == 0
