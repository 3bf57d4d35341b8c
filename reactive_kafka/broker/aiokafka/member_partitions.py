"""Adds partitions to what aiokafka's fetcher reads, and removes them, without touching others."""

from __future__ import annotations

from collections.abc import Callable, Collection

from reactive_kafka.broker.aiokafka.client_calls import as_aiokafka
from reactive_kafka.broker.aiokafka.owned_partitions import OwnedPartitions
from reactive_kafka.records import TopicPartition


class MemberPartitions:
    """What a member of a group reads, for its membership.

    Args:
        owned: The consumer's partitions.
        wake: Ends a waiting poll.
    """

    def __init__(self, owned: OwnedPartitions, wake: Callable[[], None]) -> None:
        self._owned = owned
        self._wake = wake

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        self._owned.hold(self._owned.add(partitions))

    def stop_reading(self, partitions: Collection[TopicPartition]) -> None:
        self._owned.pause(partitions)
        self._owned.leaving.update(partitions)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        if not self._owned.is_closed:
            self._owned.remove(as_aiokafka(partitions))

    def wake(self) -> None:
        self._wake()
