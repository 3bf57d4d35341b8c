"""The positions of a group: what it has stored, and what is to be stored at the end of a
transaction. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import count, groupby
from typing import NamedTuple

from reactive_kafka.errors import BrokerError, MetadataTooLargeError, PositionsRefusedError
from reactive_kafka.records import Committed, TopicPartition


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One commit that the group has accepted; ``at`` is the clock's monotonic time, in seconds."""

    at: float
    member: str
    generation: int
    offsets: Mapping[TopicPartition, Committed]


class _Pending(NamedTuple):
    """A position in a transaction, and the request that brought it: which one that was, counted,
    and whose.
    """

    arrived: int
    member: str
    generation: int
    position: Committed


class StoredPositions:
    """What a group has stored, and the positions in transactions that are open."""

    def __init__(self) -> None:
        self.stored: dict[TopicPartition, Committed] = {}
        # Which request brought what is stored.
        self._arrived: dict[TopicPartition, int] = {}
        # By transactional id.
        self._pending: dict[str, dict[TopicPartition, _Pending]] = {}
        self._requests = count()

    def store(
        self, at: float, member: str, generation: int, offsets: Mapping[TopicPartition, Committed]
    ) -> CommitEntry:
        """Store positions now, at a clock's time."""
        return self._store(CommitEntry(at, member, generation, offsets), next(self._requests))

    def hold(
        self, by: str, member: str, generation: int, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Keep positions until the transaction of a transactional id ends; the later one of a
        partition counts.
        """
        arrived = next(self._requests)
        mine = self._pending.setdefault(by, {})
        mine.update(
            {
                tp: _Pending(arrived, member, generation, position)
                for tp, position in offsets.items()
            }
        )

    def end(self, by: str, is_committed: bool, at: float) -> list[CommitEntry]:
        """End a transaction; returns what that has stored, by request.

        A position that arrived before the one that is stored is dropped. Source: Kafka's
        ``OffsetMetadataManager``, which goes by the place of the request in its own log.
        """
        pending = sorted(self._pending.pop(by, {}).items(), key=lambda item: item[1][:3])
        if not is_committed:
            return []
        newer = [(tp, one) for tp, one in pending if one.arrived > self._arrived.get(tp, -1)]
        entries = []
        for (arrived, member, generation), its in groupby(newer, key=lambda item: item[1][:3]):
            offsets = {tp: one.position for tp, one in its}
            entries.append(self._store(CommitEntry(at, member, generation, offsets), arrived))
        return entries

    def unstable(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those that have a position in a transaction that is open."""
        return [
            partition
            for partition in partitions
            if any(partition in its for its in self._pending.values())
        ]

    def forget(self, topic: str) -> None:
        """Drop everything of a topic."""
        for partition in [one for one in self.stored if one.topic == topic]:
            del self.stored[partition]
            # A test may have put the position there.
            self._arrived.pop(partition, None)
        for pending in self._pending.values():
            for partition in [one for one in pending if one.topic == topic]:
                del pending[partition]

    def _store(self, entry: CommitEntry, arrived: int) -> CommitEntry:
        self.stored.update(entry.offsets)
        self._arrived.update(dict.fromkeys(entry.offsets, arrived))
        return entry


def acceptable(
    offsets: Mapping[TopicPartition, Committed],
    limit: int,
    refusals: Mapping[TopicPartition, BrokerError],
) -> tuple[dict[TopicPartition, Committed], BrokerError | None]:
    """The positions that are stored, and the error for the others.

    Args:
        offsets: All that are to be stored.
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
    return kept, PositionsRefusedError(
        {**refused, **dict.fromkeys(too_long, error)}
    ) if refused else error


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
