"""The log of a partition, with gaps and transactions. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from reactive_kafka.records import HeaderPairs


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A stored record. Satisfies :class:`~reactive_kafka.records.RawRecord`."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs = ()


@dataclass(frozen=True, slots=True)
class Spoiled:
    """Unreadable offsets, ``until`` excluded. ``tells_end``: their bytes say where they end."""

    first: int
    until: int
    tells_end: bool = True

    @property
    def told_until(self) -> int | None:
        return self.until if self.tells_end else None


class PartitionLog:
    """Records in ascending order between ``start`` and ``end``. An offset without record is a gap.

    With *committed* a method answers as to a reader with ``read_committed``.
    """

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.spoiled: list[Spoiled] = []
        self._records: list[StoredRecord] = []
        self._offsets: list[int] = []
        # Transactional id -> offsets of its open transaction.
        self._open: dict[str, list[int]] = {}
        # Offsets of records in aborted transactions.
        self._aborted: set[int] = set()

    @property
    def records(self) -> Sequence[StoredRecord]:
        return tuple(self._records)

    @property
    def stable_end(self) -> int:
        """The last stable offset: where the oldest open transaction begins, or the end."""
        return max(
            self.start, min((offsets[0] for offsets in self._open.values()), default=self.end)
        )

    def end_for(self, committed: bool) -> int:
        return self.stable_end if committed else self.end

    def append(
        self,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs = (),
        by: str | None = None,
    ) -> StoredRecord:
        """Store a record. *by*: the transactional id, if it is part of a transaction."""
        stored = StoredRecord(self.end, timestamp, key, value, tuple(headers))
        self._records.append(stored)
        self._offsets.append(stored.offset)
        if by is not None:
            self._open.setdefault(by, []).append(stored.offset)
        self.end += 1
        return stored

    def append_markers(self, count: int) -> None:
        self.end += count

    def end_transaction(self, by: str, is_committed: bool) -> None:
        """Append the marker that ends a transaction, even if none of its records is left."""
        offsets = self._open.pop(by, ())
        if not is_committed:
            self._aborted.update(offsets)
        self.append_markers(1)

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
        left = {
            by: [offset for offset in offsets if offset < self.end]
            for by, offsets in self._open.items()
        }
        self._open = {by: offsets for by, offsets in left.items() if offsets}
        # Higher offsets will be used again for other records.
        self._aborted = {offset for offset in self._aborted if offset < self.end}

    def read(
        self, position: int, most: int, committed: bool = False
    ) -> tuple[Sequence[StoredRecord], int]:
        """Return up to *most* records from *position* on, and the position after them.

        That position is also past the gaps behind the records. Reading ends before unreadable
        offsets.
        """
        end = min(
            (spoiled.first for spoiled in self.spoiled if spoiled.first > position),
            default=self.end,
        )
        end = min(end, self.end_for(committed))
        index = bisect_left(self._offsets, position)
        end_index = bisect_left(self._offsets, end)
        if not committed or not self._aborted:
            taken = self._records[index : min(end_index, index + most)]
            index += len(taken)
        else:
            taken = []
            while index < end_index and (
                len(taken) < most or self._offsets[index] in self._aborted
            ):
                if self._offsets[index] not in self._aborted:
                    taken.append(self._records[index])
                index += 1
        return taken, self._offsets[index] if index < end_index else end

    def spoiled_at(self, position: int) -> Spoiled | None:
        """Return what makes *position* unreadable; None: it is readable."""
        return next(
            (spoiled for spoiled in self.spoiled if spoiled.first <= position < spoiled.until), None
        )

    def offset_at(self, time_ms: int, committed: bool = False) -> int | None:
        """Return the offset of the first record at or after a time.

        The record may be part of an aborted transaction. Source: Kafka's ``ListOffsets``, which
        checks only the end.
        """
        later = (
            record.offset
            for record in self._records
            if record.timestamp is not None and record.timestamp >= time_ms
        )
        found = next(later, None)
        return found if found is not None and found < self.end_for(committed) else None

    def _keep(self, records: list[StoredRecord]) -> None:
        self._records = records
        self._offsets = [record.offset for record in records]
