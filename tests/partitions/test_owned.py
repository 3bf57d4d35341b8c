"""The lanes of partitions that come, drain, start elsewhere and are retained."""

from __future__ import annotations

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.lane_states import LaneState
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import Partition, PartitionState
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.tracking.tracker import OffsetTracker
from tests.nacks.test_handling import make_acknowledger

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def owned(*names: TopicPartition) -> ClientPartitions:
    """Partitions that are read."""
    found = ClientPartitions(
        "orders",
        PartitionTable(),
        LaneQueue(shared=False),
        make_acknowledger()[0],
        lambda lane: None,
    )
    found.assign(1, frozenset(names))
    for one in found.table:
        found.start(one, OffsetTracker(one.id, 0, committed=0))
        found.table.move(one, "read")
    return found


def of(partitions: ClientPartitions, name: TopicPartition) -> tuple[Partition, Lane]:
    one = partitions.table.get(name)
    assert one is not None
    assert one.lane is not None
    return one, one.lane


async def test_the_lanes_of_what_drains_are_suspended_and_the_others_stay_open() -> None:
    partitions = owned(A, B)
    partitions.drain([A])
    assert of(partitions, A)[1].state is LaneState.SUSPENDED
    assert of(partitions, B)[1].state is LaneState.OPEN


async def test_what_starts_elsewhere_while_it_drains_is_suspended_and_can_be_retained() -> None:
    partitions = owned(A)
    partitions.drain([A])
    one, _ = of(partitions, A)
    # A reset: its log was cut off.
    partitions.start(one, OffsetTracker(A, 5, committed=5))
    assert one.state is PartitionState.DRAINING
    assert of(partitions, A)[1].state is LaneState.SUSPENDED
    partitions.revoke([A])
    partitions.assign(2, frozenset({A}))
    assert partitions.retain(one, Committed(5))
    partitions.resume(one)
    assert of(partitions, A)[1].state is LaneState.OPEN


async def test_a_partition_that_starts_while_the_channel_ends_gives_out_nothing() -> None:
    partitions = owned(A)
    partitions.is_ending = True
    partitions.drain()
    partitions.revoke()
    partitions.assign(2, frozenset({A, B}))
    one, lane = of(partitions, A)
    assert partitions.retain(one, Committed(0))
    partitions.resume(one)
    assert (one.state, lane.state) == (PartitionState.DRAINING, LaneState.SUSPENDED)
    other = partitions.table.get(B)
    assert other is not None
    partitions.start(other, OffsetTracker(B, 0))
    assert (other.state, of(partitions, B)[1].state) == (
        PartitionState.DRAINING,
        LaneState.SUSPENDED,
    )


async def test_what_is_assigned_again_without_a_revocation_is_suspended_first_and_retained() -> (
    None
):
    partitions = owned(A, B)
    one, lane = of(partitions, A)
    partitions.assign(2, frozenset({A}))
    assert (one.state, lane.state) == (PartitionState.ASSIGNED, LaneState.SUSPENDED)
    assert partitions.retain(one, Committed(0))
    partitions.resume(one)
    assert (one.state, lane.state) == (PartitionState.READING, LaneState.OPEN)
    assert of(partitions, B)[1].state is LaneState.OPEN
