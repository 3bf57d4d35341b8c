"""The partitions of a client while they are read, for tests of what happens to them."""

from __future__ import annotations

from typing import Any

from reactive_kafka import TopicPartition
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.tracking.metadata.pending import MetadataPolicy
from tests.delivery.values import lane_queue
from tests.nacks.acknowledgers import make_acknowledger
from tests.tracking.values import tracker_of


def partitions_read(*names: TopicPartition) -> ClientPartitions:
    """Partitions that are read from 0 on."""
    found = ClientPartitions(
        "orders", PartitionTable(), lane_queue(), make_acknowledger()[0], lambda lane: None
    )
    found.assign(1, frozenset(names))
    for one in found.table:
        found.start(one, tracker_of(one.id, committed=0))
        found.table.move(one, "read")
    return found


def table_of(*names: TopicPartition) -> PartitionTable:
    """A table of partitions that have just been assigned."""
    table = PartitionTable()
    table.assign(1, names)
    return table


def lone_partition(name: TopicPartition) -> Partition:
    """A partition without a table around it."""
    return Partition(name, MetadataPolicy())


def partition_of(partitions: ClientPartitions, name: TopicPartition) -> Partition:
    one = partitions.table.get(name)
    assert one is not None
    return one


def lane_of(partitions: ClientPartitions, name: TopicPartition) -> Any:
    """The lane of a partition. Its state is one of "open", "suspended" and so on."""
    lane = partition_of(partitions, name).lane
    assert lane is not None
    return lane
