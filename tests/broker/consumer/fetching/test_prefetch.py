"""When the next fetch is sent although some of the last one is left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.consumer.fetching import prefetch
from tests.broker.consumer.fetching.parts import Reads

MOST_BYTES = 4_000


@pytest.mark.parametrize(
    ("lefts", "partitions", "is_low"),
    [
        ((400, 600), 4, True),
        # More than a quarter of an answer.
        ((400, 601), 4, False),
        # Most partitions are held.
        ((400, 600), 3, False),
        ((), 9, False),
    ],
)
def test_it_is_time_if_little_is_left_and_most_partitions_have_nothing(
    lefts: tuple[int, ...], partitions: int, is_low: bool
) -> None:
    reads = Reads(partitions)
    for number, left in enumerate(lefts):
        reads.keep_some(number, content=bytes(left))
    assert prefetch.runs_low(reads, MOST_BYTES) is is_low


@given(st.sets(st.integers(0, 3)))
def test_only_nodes_that_have_answered_are_hurried(in_flight: set[int]) -> None:
    reads = Reads(3, leaders={0: 0, 1: 1, 2: 2})
    for number in range(3):
        reads.keep_some(number)
    assert prefetch.nodes_to_hurry(reads.held.values(), in_flight, 0.0) == {0, 1, 2} - in_flight


def test_a_fetch_waits_for_a_part_of_the_time_that_records_were_held() -> None:
    assert prefetch.most_wait_ms(12.0, 12.8) == pytest.approx(100)
    assert prefetch.most_wait_ms(19.0, 19.0) == 0
