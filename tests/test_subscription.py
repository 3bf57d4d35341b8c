"""What a subscription reads, which is the one answer to that question."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import IncomingSettings, TopicPartition
from reactive_kafka.config.incoming_kinds import AssignedPartition
from reactive_kafka.subscription import Partitions, Pattern, Ranges, Subscription, Topics

ASSIGNED = Partitions((TopicPartition("orders", 1), TopicPartition("orders", 3)))


@pytest.mark.parametrize(
    ("subscription", "topic", "expected"),
    [
        (Topics(("orders", "refunds")), "refunds", True),
        (Topics(("orders",)), "orders-2", False),
        (Pattern("ord.*"), "orders", True),
        # The whole name.
        (Pattern("ord"), "orders", False),
        # The broker's own.
        (Pattern(".*"), "__consumer_offsets", False),
        # Named on purpose.
        (Topics(("__consumer_offsets",)), "__consumer_offsets", True),
        (ASSIGNED, "orders", True),
        (ASSIGNED, "refunds", False),
    ],
)
def test_it_reads_its_topics_what_its_pattern_matches_or_what_it_is_assigned(
    subscription: Subscription, topic: str, expected: bool
) -> None:
    assert subscription.reads(topic) is expected


def test_of_assigned_topics_it_reads_the_assigned_partitions() -> None:
    assert ASSIGNED.includes(TopicPartition("orders", 1))
    assert not ASSIGNED.includes(TopicPartition("orders", 0))
    assert Pattern("ord.*").includes(TopicPartition("orders", 0))
    assert Topics(("orders",)).includes(TopicPartition("orders", 0))


@pytest.mark.parametrize(
    ("subscription", "topics"),
    [(Topics(("b", "a")), ("b", "a")), (Pattern("a|b"), ()), (ASSIGNED, ("orders",))],
)
def test_it_names_the_topics_that_are_known_without_asking(
    subscription: Subscription, topics: tuple[str, ...]
) -> None:
    assert subscription.topics == topics


def test_a_channels_settings_say_what_it_reads() -> None:
    named = IncomingSettings(name="orders", group_id="billing", topics=("orders",))
    matched = IncomingSettings(name="orders", group_id="billing", topics=(), pattern="ord.*")
    assigned = tuple(AssignedPartition(partition=partition) for partition in ASSIGNED.partitions)
    static = IncomingSettings(name="orders", group_id=None, topics=(), assign=assigned)
    assert [one.subscription for one in (named, matched, static)] == [
        Topics(("orders",)),
        Pattern("ord.*"),
        ASSIGNED,
    ]


PAIRS = st.lists(st.integers(0, 60), min_size=2, max_size=10, unique=True).map(
    lambda bounds: list(zip(sorted(bounds)[::2], sorted(bounds)[1::2], strict=False))
)


@given(PAIRS, st.integers(0, 70), st.integers(0, 70))
def test_ranges_are_the_offsets_that_their_pairs_name(
    pairs: list[tuple[int, int]], at: int, other: int
) -> None:
    ranges = Ranges.of(pairs)
    read = {offset for start, end in pairs for offset in range(start, end)}
    assert {offset for start, end in ranges.pairs for offset in range(start, end)} == read
    assert (ranges.start, ranges.end) == (min(read), max(read) + 1)
    assert ranges.after(at) == min((offset for offset in read if offset >= at), default=ranges.end)
    assert ranges.count(at, other) == len(read & set(range(at, other)))
    until = ranges.until(at)
    begins = ranges.after(at)
    if begins < ranges.end:
        assert set(range(begins, until)) <= read
    assert until not in read
    assert ranges.has_holes == (len(read) < ranges.end - ranges.start)


@given(PAIRS)
def test_ranges_that_touch_are_one(pairs: list[tuple[int, int]]) -> None:
    single = [(offset, offset + 1) for start, end in pairs for offset in range(start, end)]
    assert Ranges.of(single) == Ranges.of(pairs)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([(5, 3)], "5..3 ends before it begins"),
        ([(5, 5)], "5..5 is empty"),
        ([(5, 8), (1, 3)], "1..3 comes after 5..8"),
        ([(1, 5), (3, 8)], "3..8 begins before the end of 1..5"),
        ([(1, 5), (2, 3)], "2..3 begins before the end of 1..5"),
        ([(1, 3), (3, 5), (4, 6)], "4..6 begins before the end of 1..5"),
    ],
)
def test_ranges_that_do_not_ascend_are_refused(pairs: list[tuple[int, int]], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        Ranges.of(pairs)


def test_whole_topics_are_read_in_all_partitions() -> None:
    reads = Partitions((TopicPartition("refunds", 2),), ("orders",))
    assert reads.topics == ("refunds", "orders")
    assert reads.reads("orders")
    assert reads.includes(TopicPartition("orders", 99))
    assert not reads.includes(TopicPartition("refunds", 1))
