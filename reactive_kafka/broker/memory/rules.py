"""The log of a partition, with its gaps, and which member of a group gets which partitions. Pure.

``topics``: topic -> number of partitions; ``members``: member id -> topics it subscribes to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from reactive_kafka.records import HeaderPairs, TopicPartition

Shares = dict[str, frozenset[TopicPartition]]


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A stored record; satisfies :class:`~reactive_kafka.records.RawRecord`."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs = ()


class PartitionLog:
    """Records by ascending offset, between ``start`` and ``end``; an offset without a record is a gap."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._records: list[MemoryRecord] = []
        self._offsets: list[int] = []

    @property
    def records(self) -> Sequence[MemoryRecord]:
        return tuple(self._records)

    def append(
        self, timestamp: int | None, key: bytes | None, value: bytes | None, headers: HeaderPairs = ()
    ) -> MemoryRecord:
        stored = MemoryRecord(self.end, timestamp, key, value, tuple(headers))
        self._records.append(stored)
        self._offsets.append(stored.offset)
        self.end += 1
        return stored

    def append_markers(self, count: int) -> None:
        self.end += count

    def remove(self, offsets: Collection[int]) -> None:
        gone = frozenset(offsets)
        self._keep([record for record in self._records if record.offset not in gone])

    def delete_before(self, offset: int) -> None:
        if offset > self.end:
            raise ValueError(f"offset {offset} is past the end of the log, {self.end}")
        self.start = max(self.start, offset)
        self._keep([record for record in self._records if record.offset >= self.start])

    def truncate(self, end: int) -> None:
        self.end = min(self.end, end)
        self.start = min(self.start, self.end)
        self._keep([record for record in self._records if record.offset < self.end])

    def read(self, position: int, most: int) -> tuple[Sequence[MemoryRecord], int]:
        """Up to *most* records from *position* on, and the position after them: past the gaps behind them, too."""
        first = bisect_left(self._offsets, position)
        taken = self._records[first : first + most]
        rest = first + len(taken)
        return taken, self._offsets[rest] if rest < len(self._offsets) else self.end

    def offset_at(self, time_ms: int) -> int | None:
        later = (one.offset for one in self._records if one.timestamp is not None and one.timestamp >= time_ms)
        return next(later, None)

    def _keep(self, records: list[MemoryRecord]) -> None:
        self._records = records
        self._offsets = [record.offset for record in records]


def range_shares(topics: Mapping[str, int], members: Mapping[str, frozenset[str]]) -> Shares:
    """member id -> its partitions: of each topic a run of neighbours, the first members one more.

    Source: Kafka's RangeAssignor.
    """
    shares: dict[str, set[TopicPartition]] = {member: set() for member in members}
    for topic, partitions in topics.items():
        takers = sorted(member for member, read in members.items() if topic in read)
        first = 0
        for index, taker in enumerate(takers):
            past = first + partitions // len(takers) + (index < partitions % len(takers))
            shares[taker].update(TopicPartition(topic, number) for number in range(first, past))
            first = past
    return {member: frozenset(share) for member, share in shares.items()}


def sticky_shares(
    topics: Mapping[str, int], members: Mapping[str, frozenset[str]], owners: Mapping[TopicPartition, str]
) -> Shares:
    """member id -> its partitions: what it owns already, as far as the shares are even then.

    ``owners``: partition -> member id that owns it; both may be gone by now.

    Source: Kafka's CooperativeStickyAssignor, in what it achieves.
    """
    shares: dict[str, set[TopicPartition]] = {member: set() for member in sorted(members)}
    readers = {topic: [member for member in shares if topic in members[member]] for topic in sorted(topics)}
    partitions = [TopicPartition(topic, number) for topic in readers for number in range(topics[topic])]
    for partition in partitions:
        if owners.get(partition) in readers[partition.topic]:
            shares[owners[partition]].add(partition)
    for partition in partitions:
        takers = readers[partition.topic]
        if takers and owners.get(partition) not in takers:
            shares[min(takers, key=lambda member: len(shares[member]))].add(partition)
    while _move_one(shares, members):
        pass
    return {member: frozenset(share) for member, share in shares.items()}


def _move_one(shares: dict[str, set[TopicPartition]], members: Mapping[str, frozenset[str]]) -> bool:
    """Move a partition to a member that has at least two less; False if nobody has too many."""
    by_size = sorted(shares, key=lambda member: len(shares[member]))
    for giver in reversed(by_size):
        for taker in by_size:
            if len(shares[giver]) - len(shares[taker]) < 2:
                break
            movable = [partition for partition in shares[giver] if partition.topic in members[taker]]
            if movable:
                moved = max(movable)
                shares[giver].remove(moved)
                shares[taker].add(moved)
                return True
    return False
