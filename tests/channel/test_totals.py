"""What a channel counts is bounded, and nothing of it is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.channel.totals import MOST_LEFT, OTHERS, ChannelTotals
from tests.observe.samples import totals as partition_totals


def day(number: int) -> TopicPartition:
    """The partition of a topic that is new each day."""
    return TopicPartition(f"orders-{number:05}", 0)


def test_topics_that_come_and_go_for_ever_are_counted_together_from_some_number_on() -> None:
    """Rows J4, S8 of the faults."""
    totals = ChannelTotals()
    for number in range(MOST_LEFT + 12):
        totals.received(day(number), 3)
    seen = totals.bounded([day(0), day(5)])
    assert len(seen) == MOST_LEFT + 3, "the assigned two, those that are left, and the others"
    assert seen[OTHERS].received == 3 * 10
    assert {day(0), day(5), day(12), day(MOST_LEFT + 11)} <= seen.keys()
    assert day(11) not in seen
    assert totals.bounded([day(0), day(5)]) == seen, "as long as nothing else comes"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["ignore", "fail"])), max_size=60),
    st.data(),
)
def test_nothing_that_was_counted_is_lost(
    counted: list[tuple[int, str]], data: st.DataObject
) -> None:
    totals = ChannelTotals()
    for number, strategy in counted:
        one = totals.totals_of(day(number))
        for name in ("received", "acked", "dead_lettered", "delayed", "poison"):
            setattr(one, name, getattr(one, name) + 1)
        one.nacked[strategy] = one.nacked.get(strategy, 0) + 1
        seen = totals.bounded(
            map(day, data.draw(st.sets(st.integers(0, 9), max_size=2))), most_left=3
        )
        assert len(seen) <= 3 + 2 + 1
    sums = partition_totals()
    for each in totals.totals.values():
        sums.add(each)
    every = len(counted)
    assert sums == partition_totals(
        received=every,
        acked=every,
        nacked=sums.nacked,
        dead_lettered=every,
        delayed=every,
        poison=every,
    )
    assert sums.nacked == {
        name: n for name in ("ignore", "fail") if (n := sum(one == name for _, one in counted))
    }
