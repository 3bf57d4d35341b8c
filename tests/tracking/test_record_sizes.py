"""The bytes of the records in a window that are not settled."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.records import HeaderPairs, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker


@dataclass
class OfSize:
    value: bytes | None
    offset: int = 0
    timestamp: int | None = None
    key: bytes | None = None
    headers: HeaderPairs = ()


class ShortWindows(OffsetTracker):
    """Remembers the unsettled records of each window that has more than three."""

    LONG_WINDOW = 3


def deliver(tracker: OffsetTracker, sizes: list[int]) -> None:
    first = tracker.deliver(
        range(tracker.position, tracker.position + len(sizes)), tracker.position + len(sizes)
    )
    tracker.measure([OfSize(bytes(size)) for size in sizes], first)


@given(
    rounds=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=40), min_size=1, max_size=4),
    kind=st.sampled_from([OffsetTracker, ShortWindows]),
    data=st.data(),
)
def test_the_bytes_in_flight_are_those_of_the_records_that_are_not_settled(
    rounds: list[list[int]], kind: type[OffsetTracker], data: st.DataObject
) -> None:
    tracker = kind(TopicPartition("orders", 0), 0)
    unsettled: dict[int, int] = {}
    for sizes in rounds:
        first = tracker.position
        deliver(tracker, sizes)
        unsettled |= dict(enumerate(sizes, first))
        for index in data.draw(st.sets(st.sampled_from(sorted(unsettled)))):
            tracker.settle(index)
            del unsettled[index]
        assert tracker.unsettled_bytes() == sum(unsettled.values())
        if not unsettled:
            break
    tracker.close()
    assert tracker.unsettled_bytes() == 0


def test_sizes_that_nobody_asks_for_are_kept_for_the_window_only() -> None:
    """With ``batch_max_bytes`` alone no poll asks for the bytes in flight."""
    tracker = OffsetTracker(TopicPartition("orders", 0), 0)
    for poll in range(100):
        deliver(tracker, [7] * 10)
        tracker.settle_range(0, 10 * poll + 5)
    assert tracker.committable == 995
    assert tracker.sizes is not None
    assert len(tracker.sizes._sizes) <= 20
    assert list(tracker.sizes.of(995, 5)) == [7] * 5
