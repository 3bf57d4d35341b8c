"""Which records an operator has skipped, and for how long that is remembered."""

from __future__ import annotations

from reactive_kafka.fetching.record_skips import MOST_SKIPS, RecordSkips
from reactive_kafka.records import TopicPartition

ONE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def kept(
    skips: RecordSkips,
    offsets: range,
    committed: int | None = None,
    partition: TopicPartition = ONE,
) -> list[int]:
    """The offsets of the records that are left of those that came."""
    left, its_offsets = skips.without(partition, offsets, offsets, committed)
    assert list(left) == list(its_offsets)
    return list(left)


def test_a_skipped_record_is_left_out_until_the_committed_position_has_passed_it() -> None:
    skips = RecordSkips()
    assert skips.add(ONE, 2)
    assert kept(skips, range(4)) == [0, 1, 3]
    assert kept(skips, range(4), committed=2) == [0, 1, 3], "after a restart"
    assert kept(skips, range(4, 6), committed=3) == [4, 5]
    assert not skips


def test_a_record_that_waits_is_forgotten_when_the_log_turns_out_not_to_have_it() -> None:
    skips = RecordSkips()
    skips.add(ONE, 2)
    skips.add(ONE, 9)
    kept(skips, range(3, 6))
    assert not skips.has(ONE, 2)
    assert skips.has(ONE, 9)


def test_partitions_do_not_skip_for_each_other_and_each_is_forgotten_alone() -> None:
    skips = RecordSkips()
    skips.add(ONE, 1)
    skips.skipped(OTHER, 1)
    skips.forget(ONE)
    assert kept(skips, range(2)) == [0, 1]
    assert kept(skips, range(2), partition=OTHER) == [0]


def test_what_was_skipped_and_is_never_committed_takes_no_place_of_what_waits() -> None:
    skips = RecordSkips()
    for offset in range(2 * MOST_SKIPS):
        assert skips.add(ONE, offset)
        assert kept(skips, range(offset, offset + 1)) == []
    assert kept(skips, range(2 * MOST_SKIPS)) == list(range(MOST_SKIPS))
    for offset in range(MOST_SKIPS):
        assert skips.add(OTHER, offset)
    assert not skips.add(OTHER, MOST_SKIPS)
    assert skips.add(OTHER, 0), "it waits already"
