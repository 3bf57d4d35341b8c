"""How many bytes a poll may bring: no more than the bound, and never nothing for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.fetching.byte_budget import byte_room
from reactive_kafka.records import HeaderPairs, TopicPartition


@dataclass
class OfSize:
    value: bytes | None
    offset: int = 0
    timestamp: int | None = None
    key: bytes | None = None
    headers: HeaderPairs = ()


def room_of(held: list[int], most: int) -> tuple[Any, list[TopicPartition]]:
    partitions = [TopicPartition("orders", number) for number in range(len(held))]
    return byte_room(dict(zip(partitions, held, strict=True)), most), partitions


@given(
    held=st.lists(st.integers(0, 300), min_size=1, max_size=12),
    most=st.integers(1, 2000),
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=50),
)
def test_a_poll_keeps_the_bound_but_for_one_record_of_each_partition(
    held: list[int], most: int, sizes: list[int]
) -> None:
    room, partitions = room_of(held, most)
    before = sum(held)
    brought = 0
    last = 0
    for partition in partitions:
        records = [OfSize(bytes(size)) for size in sizes]
        count = room.fitting(partition, records)
        room.take(partition, records[:count])
        brought += sum(sizes[:count])
        last += sizes[count - 1] if count else 0
    # What a partition holds beyond its share is no more than its last record, as here.
    assert brought <= max(0, most - before) + last + sum(held)


@given(held=st.lists(st.integers(0, 300), min_size=1, max_size=12), most=st.integers(1, 2000))
def test_a_partition_that_holds_nothing_may_bring_a_record(held: list[int], most: int) -> None:
    room, partitions = room_of(held, most)
    for partition, size in zip(partitions, held, strict=True):
        if not size:
            assert room.fitting(partition, [OfSize(bytes(10_000))]) == 1
    if len(held) == 1:
        assert (room.left(partitions[0]) > 0) is (held[0] < most)


def test_half_is_divided_and_the_other_half_goes_to_who_comes_first() -> None:
    room, (first, second, third) = room_of([0, 0, 100], 600)
    assert [room.left(one) for one in (first, second, third)] == [400, 400, 300]
    room.take(first, [OfSize(bytes(350))])
    assert [room.left(one) for one in (first, second, third)] == [50, 150, 50]
    room.take(second, [OfSize(bytes(1000))])
    assert [room.left(one) for one in (first, second, third)] == [0, 0, 0]
