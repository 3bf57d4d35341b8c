"""The ``range`` assignor: each member gets a range of each topic, near its rack if possible. Pure.

Topics with equal numbers of partitions and equal members are divided at the same places, so that
one member has the same partition numbers of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    MemberSubscription,
    Shares,
    readers_of,
)
from reactive_kafka.records import TopicPartition


class RangeAssignor:
    """Gives each reader of a topic an equal range, one more to the first ones.

    Gives the same result as Java's ``RangeAssignor``. If members and replicas are in racks, a
    member gets partitions with a replica in its own rack first, as far as equal shares allow
    (KIP-881).
    """

    name = "range"
    is_cooperative = False

    def assign(
        self,
        members: Mapping[str, MemberSubscription],
        partitions: Mapping[str, Sequence[int]],
        replica_racks: Mapping[TopicPartition, frozenset[str]],
    ) -> Shares:
        shares: Shares = {member_id: set() for member_id in members}
        racks = {member_id: member.rack for member_id, member in members.items()}
        topics = [
            _TopicDivision(topic, partitions[topic], readers, racks, replica_racks)
            for topic, readers in readers_of(members, sorted(partitions)).items()
            if readers
        ]
        if any(topic.racks_matter for topic in topics):
            _divide_by_racks(topics, shares)
        for topic in topics:
            topic.give_ranges(shares, needs_rack=False)
        return shares

    def user_data(self, owned: frozenset[TopicPartition], generation: int) -> bytes:
        return b""


class _TopicDivision:
    """One topic while its partitions are given out."""

    def __init__(
        self,
        topic: str,
        numbers: Sequence[int],
        readers: Sequence[str],
        racks: Mapping[str, str | None],
        replica_racks: Mapping[TopicPartition, frozenset[str]],
    ) -> None:
        self.readers = readers
        self.partitions = [TopicPartition(topic, number) for number in numbers]
        self._left = dict.fromkeys(self.partitions)
        self._given = dict.fromkeys(readers, 0)
        self._share = len(numbers) // len(readers)
        self._extra = len(numbers) % len(readers)
        self._racks = {reader: racks[reader] for reader in readers}
        self._replica_racks = {
            partition: replica_racks.get(partition, frozenset()) for partition in self.partitions
        }
        self.racks_matter = self._do_racks_matter()

    def _do_racks_matter(self) -> bool:
        """Return False if a reader's rack would not decide anything."""
        racks_of_readers = {rack for rack in self._racks.values() if rack is not None}
        racks_of_replicas = frozenset[str]().union(*self._replica_racks.values())
        if not racks_of_readers & racks_of_replicas:
            return False
        # If each partition has a replica in every rack, no choice of readers is better.
        return any(racks != racks_of_replicas for racks in self._replica_racks.values())

    def is_near(self, reader: str, partition: TopicPartition) -> bool:
        """Return whether a partition has a replica in the reader's rack. True without a rack."""
        rack = self._racks[reader]
        return rack is None or rack in self._replica_racks[partition]

    def room(self, reader: str) -> int:
        """Return how many more partitions a reader may get."""
        return max(0, self._share + (self._extra > 0) - self._given[reader])

    def give(self, reader: str, partitions: Sequence[TopicPartition], shares: Shares) -> None:
        """Give partitions to a reader that has room for them."""
        shares[reader].update(partitions)
        self._given[reader] += len(partitions)
        if self._given[reader] > self._share:
            self._extra -= 1
        for partition in partitions:
            del self._left[partition]

    def give_ranges(self, shares: Shares, *, needs_rack: bool) -> None:
        """Fill up the readers in their order. With *needs_rack* only from their own racks."""
        for reader in self.readers:
            fitting = [
                partition
                for partition in self._left
                if not needs_rack or self.is_near(reader, partition)
            ]
            if given := fitting[: self.room(reader)]:
                self.give(reader, given, shares)


def _divide_by_racks(topics: Iterable[_TopicDivision], shares: Shares) -> None:
    """Give each reader what is in its rack, and the same numbers of topics of equal shape."""
    shapes: dict[tuple[tuple[str, ...], int], list[_TopicDivision]] = {}
    for topic in topics:
        shapes.setdefault((tuple(topic.readers), len(topic.partitions)), []).append(topic)
    for alike in shapes.values():
        if len(alike) > 1:
            _divide_alike(alike, shares)
        elif alike[0].racks_matter:
            alike[0].give_ranges(shares, needs_rack=True)


def _divide_alike(topics: Sequence[_TopicDivision], shares: Shares) -> None:
    """Give a partition number of all topics to a reader that is near to all of them."""
    for same_number in zip(*(topic.partitions for topic in topics), strict=True):
        row = list(zip(topics, same_number, strict=True))
        for reader in topics[0].readers:
            if all(topic.room(reader) and topic.is_near(reader, it) for topic, it in row):
                for topic, partition in row:
                    topic.give(reader, [partition], shares)
                break
