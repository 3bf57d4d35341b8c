"""The log of one partition in memory: records, and the gaps that markers, compaction and deletion leave. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from reactive_kafka.records import HeaderPairs


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A stored record; satisfies :class:`~reactive_kafka.records.RawRecord`."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs = ()


class PartitionLog:
    """Records by ascending offset, between ``start`` and ``end``; an offset without a record is a gap.

    :class:`MemoryBroker` says what its changes stand for: transactions, compaction, retention, elections.
    """

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
