"""The positions of a group: the stored ones, and those in open transactions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import count, groupby
from typing import NamedTuple

from reactive_kafka.errors import BrokerError, MetadataTooLargeError, PositionsRefusedError
from reactive_kafka.records import Committed, TopicPartition


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """A commit that the group has accepted. ``at`` is the monotonic time in seconds."""

    at: float
    member: str
    generation: int
    offsets: Mapping[TopicPartition, Committed]


class _PendingPosition(NamedTuple):
    """A position in a transaction, and the request that brought it: its number and its sender."""

    request_number: int
    member: str
    generation: int
    position: Committed


class StoredPositions:
    """The stored positions of a group, and the positions in open transactions."""

    def __init__(self) -> None:
        self.stored: dict[TopicPartition, Committed] = {}
        # Partition -> the number of the request that brought the stored position.
        self._request_numbers: dict[TopicPartition, int] = {}
        # Transactional id -> the positions in its open transaction.
        self._pending: dict[str, dict[TopicPartition, _PendingPosition]] = {}
        self._requests = count()

    def store(
        self, at: float, member: str, generation: int, offsets: Mapping[TopicPartition, Committed]
    ) -> CommitEntry:
        """Store positions now, at a clock's time."""
        return self._store(CommitEntry(at, member, generation, offsets), next(self._requests))

    def hold(
        self, by: str, member: str, generation: int, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Keep positions until the transaction of *by* ends. The last one of a partition counts."""
        request_number = next(self._requests)
        mine = self._pending.setdefault(by, {})
        mine.update(
            {
                partition: _PendingPosition(request_number, member, generation, position)
                for partition, position in offsets.items()
            }
        )

    def end(self, by: str, is_committed: bool, at: float) -> list[CommitEntry]:
        """End a transaction, and return the commits that it stores, one per request.

        A position that arrived before the stored one is dropped. Source: Kafka's
        ``OffsetMetadataManager``, which compares the places of the requests in its log.
        """
        pending = sorted(self._pending.pop(by, {}).items(), key=lambda item: item[1][:3])
        if not is_committed:
            return []
        newer = [
            (partition, pending_position)
            for partition, pending_position in pending
            if pending_position.request_number > self._request_numbers.get(partition, -1)
        ]
        entries = []
        for (request_number, member, generation), group_of_request in groupby(
            newer, key=lambda item: item[1][:3]
        ):
            offsets = {
                partition: pending_position.position
                for partition, pending_position in group_of_request
            }
            entries.append(
                self._store(CommitEntry(at, member, generation, offsets), request_number)
            )
        return entries

    def unstable(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that have a position in an open transaction."""
        return [
            partition
            for partition in partitions
            if any(partition in pending for pending in self._pending.values())
        ]

    def forget(self, topic: str) -> None:
        """Drop everything about a topic."""
        for partition in [partition for partition in self.stored if partition.topic == topic]:
            del self.stored[partition]
            # pop(), because a test may have stored the position without a request.
            self._request_numbers.pop(partition, None)
        for pending in self._pending.values():
            for partition in [partition for partition in pending if partition.topic == topic]:
                del pending[partition]

    def _store(self, entry: CommitEntry, request_number: int) -> CommitEntry:
        self.stored.update(entry.offsets)
        self._request_numbers.update(dict.fromkeys(entry.offsets, request_number))
        return entry


def acceptable(
    offsets: Mapping[TopicPartition, Committed],
    limit: int,
    refusals: Mapping[TopicPartition, BrokerError],
) -> tuple[dict[TopicPartition, Committed], BrokerError | None]:
    """Return the positions to store, and the error for the others.

    Args:
        offsets: The positions of a commit.
        limit: How many UTF-16 units of metadata a position may have.
        refusals: partition -> why none of its positions is stored.
    """
    refused = {partition: refusals[partition] for partition in offsets if partition in refusals}
    too_long = [
        partition
        for partition, position in offsets.items()
        if partition not in refused and _units(position.metadata) > limit
    ]
    stored = offsets.keys() - refused.keys() - set(too_long)
    kept = {
        partition: Committed(*position)
        for partition, position in offsets.items()
        if partition in stored
    }
    if not too_long:
        return kept, PositionsRefusedError(refused) if refused else None
    error = MetadataTooLargeError(
        f"the metadata for {too_long[0]} is longer than {limit} UTF-16 units", too_long
    )
    if not refused:
        return kept, error
    return kept, PositionsRefusedError({**refused, **dict.fromkeys(too_long, error)})


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
