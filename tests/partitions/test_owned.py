"""The lanes of partitions that come, drain, start elsewhere and are retained."""

from __future__ import annotations

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.partitions.partition import PartitionState
from tests.partitions.reading import lane_of, partition_of, partitions_read
from tests.tracking.values import tracker_of

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


async def test_the_lanes_of_what_drains_are_suspended_and_the_others_stay_open() -> None:
    partitions = partitions_read(A, B)
    partitions.drain([A])
    assert lane_of(partitions, A).state == "suspended"
    assert lane_of(partitions, B).state == "open"


async def test_what_starts_elsewhere_while_it_drains_is_suspended_and_can_be_retained() -> None:
    partitions = partitions_read(A)
    partitions.drain([A])
    one = partition_of(partitions, A)
    # A reset: its log was cut off.
    partitions.start(one, tracker_of(A, 5, committed=5))
    assert one.state is PartitionState.DRAINING
    assert lane_of(partitions, A).state == "suspended"
    partitions.revoke([A])
    partitions.assign(2, frozenset({A}))
    assert partitions.retain(one, Committed(5))
    partitions.resume(one)
    assert lane_of(partitions, A).state == "open"


async def test_a_partition_that_starts_while_the_channel_ends_gives_out_nothing() -> None:
    partitions = partitions_read(A)
    partitions.is_ending = True
    partitions.drain()
    partitions.revoke()
    partitions.assign(2, frozenset({A, B}))
    one, lane = partition_of(partitions, A), lane_of(partitions, A)
    assert partitions.retain(one, Committed(0))
    partitions.resume(one)
    assert (one.state, lane.state) == (PartitionState.DRAINING, "suspended")
    other = partitions.table.get(B)
    assert other is not None
    partitions.start(other, tracker_of(B))
    assert (other.state, lane_of(partitions, B).state) == (
        PartitionState.DRAINING,
        "suspended",
    )


async def test_what_is_assigned_again_without_a_revocation_is_suspended_first_and_retained() -> (
    None
):
    partitions = partitions_read(A, B)
    one, lane = partition_of(partitions, A), lane_of(partitions, A)
    partitions.assign(2, frozenset({A}))
    assert (one.state, lane.state) == (PartitionState.ASSIGNED, "suspended")
    assert partitions.retain(one, Committed(0))
    partitions.resume(one)
    assert (one.state, lane.state) == (PartitionState.READING, "open")
    assert lane_of(partitions, B).state == "open"
