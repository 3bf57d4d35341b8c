"""Which partitions a member owns, and since which generation. Pure.

A commit belongs to the assignment in which it was made. A member may commit a partition with any
generation in which it has owned the partition without interruption. Kafka checks only the member
and its epoch: a late commit that is sent again after the partition has gone and come back would be
accepted, and move the position back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from reactive_kafka.errors import NotOwnerError
from reactive_kafka.records import TopicPartition


class OwnedSince:
    """Partition -> the generation since which the member owns it.

    Attributes:
        generation: The generation of the last assignment. It is Kafka's, plus a number that makes
            it larger than all before: Kafka begins at 1 again when a group was deleted.
    """

    def __init__(self) -> None:
        self.generation = -1
        self._since: dict[TopicPartition, int] = {}
        self._added = 0
        self._is_new_membership = True

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._since)

    def begin_membership(self) -> None:
        """Let the next assignment have a larger generation than all before: the member joins."""
        self._is_new_membership = True

    def assign(self, partitions: Collection[TopicPartition], kafka_generation: int) -> int:
        """Add *partitions*. Returns the generation of this assignment.

        Args:
            kafka_generation: The generation, or member epoch, that Kafka has named. It never goes
                back within a membership, and a partition that goes and comes back is assigned in a
                later one.
        """
        if self._is_new_membership:
            self._is_new_membership = False
            self._added = max(0, self.generation + 1 - kafka_generation)
        self.generation = max(self.generation, kafka_generation + self._added)
        for partition in partitions:
            self._since.setdefault(partition, self.generation)
        return self.generation

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions, which the member has given up or lost."""
        for partition in partitions:
            self._since.pop(partition, None)

    def check(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """Raise NotOwnerError unless the member owns all *partitions* since *generation*."""
        if generation > self.generation:
            raise NotOwnerError(
                f"generation {generation} has not begun: the member is in {self.generation}"
            )
        partitions = list(partitions)
        missing = [partition for partition in partitions if partition not in self._since]
        if missing:
            raise NotOwnerError(f"not assigned: {', '.join(map(str, missing))}")
        newer = [partition for partition in partitions if self._since[partition] > generation]
        if newer:
            raise NotOwnerError(
                f"assigned after generation {generation}: {', '.join(map(str, newer))}"
            )
