"""A partition's log in memory keeps offsets as Kafka does; partitions are shared, for any topics
and members.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.broker.memory.assignors import range_shares, sticky_shares
from reactive_kafka.broker.memory.partition_log import PartitionLog


def log_with(count: int) -> PartitionLog:
    log = PartitionLog()
    for number in range(count):
        log.append(1, None, str(number).encode())
    return log


def test_reading_stops_at_the_wanted_number_and_says_where_to_go_on() -> None:
    log = log_with(5)
    records, position = log.read(1, 2)
    assert [record.offset for record in records] == [1, 2]
    assert position == 3


def test_the_position_passes_a_gap_behind_the_records_taken() -> None:
    log = log_with(3)
    log.append_markers(2)
    log.append(1, None, b"after")
    assert log.read(0, 3)[1] == 5
    assert log.read(5, 9)[1] == 6


def test_a_compacted_record_leaves_its_offset_as_a_gap() -> None:
    log = log_with(4)
    log.remove([1, 3])
    records, position = log.read(0, 9)
    assert [record.offset for record in records] == [0, 2]
    assert (position, log.end) == (4, 4)


def test_deleting_moves_the_start_and_never_back() -> None:
    log = log_with(4)
    log.delete_before(3)
    log.delete_before(1)
    assert (log.start, [record.offset for record in log.records]) == (3, [3])
    with pytest.raises(ValueError, match="past the end"):
        log.delete_before(5)


def test_truncation_gives_offsets_out_again() -> None:
    log = log_with(4)
    log.truncate(2)
    assert log.append(1, None, b"new").offset == 2


@given(
    st.lists(st.sampled_from(["record", "marker"])), st.sets(st.integers(0, 30)), st.integers(1, 5)
)
def test_reading_on_and_on_brings_every_record_once_and_ends_at_the_log_end(
    steps: list[str], compacted: set[int], most: int
) -> None:
    log = PartitionLog()
    for step in steps:
        if step == "record":
            log.append(1, None, b"")
        else:
            log.append_markers(1)
    log.remove(compacted)
    position, seen = 0, []
    while position < log.end:
        records, position = log.read(position, most)
        seen += [record.offset for record in records]
        assert position > (seen[-1] if seen else -1)
    assert seen == [record.offset for record in log.records]
    assert seen == [
        number for number, step in enumerate(steps) if step == "record" and number not in compacted
    ]


@given(st.lists(st.none() | st.integers(0, 9)), st.integers(0, 10))
def test_the_offset_at_a_time_is_that_of_the_first_record_not_older(
    times: list[int | None], wanted: int
) -> None:
    log = PartitionLog()
    for time in times:
        log.append(time, None, b"")
    found = log.offset_at(wanted)
    young = [offset for offset, time in enumerate(times) if time is not None and time >= wanted]
    assert found == (young[0] if young else None)


def numbers(partitions: frozenset[TopicPartition], topic: str = "t") -> list[int]:
    return sorted(one.partition for one in partitions if one.topic == topic)


def test_neighbours_stay_together_and_the_first_members_get_one_more() -> None:
    shares = range_shares({"t": 5}, {"b": frozenset({"t"}), "a": frozenset({"t"})})
    assert numbers(shares["a"]) == [0, 1, 2]
    assert numbers(shares["b"]) == [3, 4]


def test_a_member_gets_nothing_of_a_topic_it_does_not_read() -> None:
    shares = range_shares({"t": 2, "u": 2}, {"a": frozenset({"t"}), "b": frozenset({"t", "u"})})
    assert (numbers(shares["a"], "t"), numbers(shares["a"], "u")) == ([0], [])
    assert (numbers(shares["b"], "t"), numbers(shares["b"], "u")) == ([1], [0, 1])


def test_more_members_than_partitions_leaves_some_without() -> None:
    shares = range_shares({"t": 1}, {"a": frozenset({"t"}), "b": frozenset({"t"})})
    assert (numbers(shares["a"]), numbers(shares["b"])) == ([0], [])


TOPICS = st.dictionaries(st.sampled_from("tuv"), st.integers(0, 9))
MEMBERS = st.dictionaries(
    st.text("abc", min_size=1), st.frozensets(st.sampled_from("tuv")), max_size=6
)
OWNERS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("tuv"), st.integers(0, 9)), st.text("abc", min_size=1)
)


@given(TOPICS, MEMBERS)
def test_each_partition_that_somebody_reads_has_one_owner_and_shares_are_even(
    topics: dict[str, int], members: dict[str, frozenset[str]]
) -> None:
    shares = range_shares(topics, members)
    given_away = [one for share in shares.values() for one in share]
    assert len(given_away) == len(set(given_away))
    for topic, partitions in topics.items():
        sizes = [
            len(numbers(shares[member], topic)) for member in members if topic in members[member]
        ]
        assert sum(sizes) == (partitions if sizes else 0)
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


def owners_of(shares: dict[str, frozenset[TopicPartition]]) -> dict[TopicPartition, str]:
    return {partition: member for member, share in shares.items() for partition in share}


@given(TOPICS, MEMBERS, OWNERS)
def test_sticky_shares_give_each_partition_that_somebody_reads_to_one_of_its_readers(
    topics: dict[str, int], members: dict[str, frozenset[str]], owners: dict[TopicPartition, str]
) -> None:
    shares = sticky_shares(topics, members, owners)
    given_away = sorted(one for share in shares.values() for one in share)
    read = {topic for wanted in members.values() for topic in wanted}
    assert given_away == [
        TopicPartition(topic, n)
        for topic in sorted(read & topics.keys())
        for n in range(topics[topic])
    ]
    assert all(one.topic in members[member] for member, share in shares.items() for one in share)


@given(TOPICS, MEMBERS, OWNERS)
def test_sticky_shares_stay_as_they_are_while_nothing_changes(
    topics: dict[str, int], members: dict[str, frozenset[str]], owners: dict[TopicPartition, str]
) -> None:
    shares = sticky_shares(topics, members, owners)
    assert sticky_shares(topics, members, owners_of(shares)) == shares


@given(st.integers(0, 20), st.sets(st.text("abc", min_size=1), max_size=6), OWNERS)
def test_sticky_shares_are_even_and_a_new_member_only_takes_what_it_gets(
    partitions: int, names: set[str], owners: dict[TopicPartition, str]
) -> None:
    topics, members = {"t": partitions}, dict.fromkeys(names, frozenset("t"))
    before = sticky_shares(topics, members, owners)
    after = sticky_shares(topics, members | {"new": frozenset("t")}, owners_of(before))
    for shares in (before, after):
        sizes = [len(share) for share in shares.values()]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert all(after[name] <= before[name] for name in names)
