"""Records that an operator skips: before they have come, and again if they come again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reactive_kafka.records import TopicPartition

MOST_SKIPS = 1000
"""How many records of a channel may wait to be skipped. Of those that were skipped and whose
position is not committed, the last so many are remembered."""


class RecordSkips:
    """The offsets of one channel that are skipped when they come; false while there are none.

    A record that was skipped comes again after a restart or a rebalance if the position behind it
    was not committed. So its offset is kept until then. All are forgotten with the process.
    """

    def __init__(self) -> None:
        # Those that have not come.
        self._waiting: dict[TopicPartition, set[int]] = {}
        # Those that were skipped, and may come again; the last one at the end.
        self._skipped: dict[TopicPartition, dict[int, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting or self._skipped)

    def add(self, partition: TopicPartition, offset: int) -> bool:
        """Skip a record when it comes; False if too many wait already."""
        if sum(map(len, self._waiting.values())) >= MOST_SKIPS:
            return offset in self._waiting.get(partition, ())
        self._waiting.setdefault(partition, set()).add(offset)
        return True

    def skipped(self, partition: TopicPartition, offset: int) -> None:
        """Skip a record that was skipped just now, if it comes again."""
        self._skipped.setdefault(partition, {})[offset] = None
        while sum(map(len, self._skipped.values())) > MOST_SKIPS:
            oldest, offsets = next(iter(self._skipped.items()))
            del offsets[next(iter(offsets))]
            if not offsets:
                del self._skipped[oldest]

    def has(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a record is to be skipped when it comes."""
        return offset in self._waiting.get(partition, ()) or offset in self._skipped.get(
            partition, ()
        )

    def forget(self, partition: TopicPartition) -> None:
        """Skip nothing of a partition any more: it is read from another position, or is new."""
        self._waiting.pop(partition, None)
        self._skipped.pop(partition, None)

    def without(
        self,
        partition: TopicPartition,
        records: Sequence[Any],
        offsets: Sequence[int],
        committed: int | None,
    ) -> tuple[Sequence[Any], Sequence[int]]:
        """Leave out the records that are skipped; return the others, and their offsets.

        For the tracker they are a gap of the log, so the committed position passes them with the
        records around them.

        Args:
            committed: The committed position. What lies before it will not come again.
        """
        waiting = self._waiting.pop(partition, set())
        skipped = self._skipped.pop(partition, {})
        if not waiting and not skipped:
            return records, offsets
        hit = (waiting | skipped.keys()).intersection(offsets)
        # What was waited for and lies before the last record is there no more.
        if left := {offset for offset in waiting if offset > offsets[-1]}:
            self._waiting[partition] = left
        for offset in (*skipped, *sorted(hit - skipped.keys())):
            if committed is None or offset >= committed:
                self.skipped(partition, offset)
        if not hit:
            return records, offsets
        kept = [
            (record, offset)
            for record, offset in zip(records, offsets, strict=True)
            if offset not in hit
        ]
        return [record for record, _ in kept], [offset for _, offset in kept]
