"""Records that an operator skips before they have come. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reactive_kafka.records import TopicPartition

MOST_SKIPS = 1000
"""How many records of a channel may wait to be skipped."""


class RecordSkips:
    """The offsets of one channel that are skipped when they come; false while there are none.

    They last through restarts of the channel, and are forgotten with the process.
    """

    def __init__(self) -> None:
        self._wanted: dict[TopicPartition, set[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def add(self, partition: TopicPartition, offset: int) -> bool:
        """Skip a record when it comes; False if too many wait already."""
        if sum(map(len, self._wanted.values())) >= MOST_SKIPS:
            return offset in self._wanted.get(partition, ())
        self._wanted.setdefault(partition, set()).add(offset)
        return True

    def has(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a record is to be skipped when it comes."""
        return offset in self._wanted.get(partition, ())

    def forget(self, partition: TopicPartition) -> None:
        """Skip nothing of a partition any more: it is read from another position, or is new."""
        self._wanted.pop(partition, None)

    def without(
        self, partition: TopicPartition, records: Sequence[Any], offsets: Sequence[int]
    ) -> tuple[Sequence[Any], Sequence[int]]:
        """Leave out the records that are skipped; return the others, and their offsets.

        For the tracker they are a gap of the log, so the committed position passes them with the
        records around them.
        """
        wanted = self._wanted.get(partition)
        if wanted is None:
            return records, offsets
        hit = wanted.intersection(offsets)
        # What lies before has been passed, and will not come.
        left = {offset for offset in wanted if offset > offsets[-1]}
        if left:
            self._wanted[partition] = left
        else:
            del self._wanted[partition]
        if not hit:
            return records, offsets
        kept = [
            (record, offset)
            for record, offset in zip(records, offsets, strict=True)
            if offset not in hit
        ]
        return [record for record, _ in kept], [offset for _, offset in kept]
