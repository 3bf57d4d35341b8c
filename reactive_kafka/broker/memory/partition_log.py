"""The log of a partition, with its gaps and transactions, and which member of a group gets which
partitions. Pure.

``topics``: topic -> number of partitions; ``members``: member id -> topics it subscribes to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from reactive_kafka.records import HeaderPairs


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A stored record; satisfies :class:`~reactive_kafka.records.RawRecord`."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs = ()


@dataclass(frozen=True, slots=True)
class Spoiled:
    """Offsets, ``until`` excluded, whose bytes cannot be read; whether these say where they end."""

    first: int
    until: int
    tells_end: bool = True

    @property
    def told_until(self) -> int | None:
        return self.until if self.tells_end else None


class PartitionLog:
    """Records by ascending offset, between ``start`` and ``end``; an offset without a record is a
    gap.

    Where *committed* is asked for, it answers as to a reader with ``read_committed``.
    """

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.spoiled: list[Spoiled] = []
        self._records: list[StoredRecord] = []
        self._offsets: list[int] = []
        # Transactional id -> offsets of its transaction that is open.
        self._open: dict[str, list[int]] = {}
        # Offsets of records.
        self._aborted: set[int] = set()

    @property
    def records(self) -> Sequence[StoredRecord]:
        return tuple(self._records)

    @property
    def stable_end(self) -> int:
        """The last stable offset: where the oldest transaction that is open begins, else the
        end.
        """
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
        """Store a record; *by*: the transactional id whose transaction it is part of."""
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
        """Append the marker that ends a transaction, also where none of its records is left."""
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
            by: [offset for offset in its if offset < self.end] for by, its in self._open.items()
        }
        self._open = {by: offsets for by, offsets in left.items() if offsets}
        # The others are given out again.
        self._aborted = {offset for offset in self._aborted if offset < self.end}

    def read(
        self, position: int, most: int, committed: bool = False
    ) -> tuple[Sequence[StoredRecord], int]:
        """Up to *most* records from *position* on, and the position after them: past the gaps
        behind them, too.

        It ends before the next offset that is spoiled.
        """
        end = min((one.first for one in self.spoiled if one.first > position), default=self.end)
        end = min(end, self.end_for(committed))
        at = bisect_left(self._offsets, position)
        past = bisect_left(self._offsets, end)
        if not committed or not self._aborted:
            taken = self._records[at : min(past, at + most)]
            at += len(taken)
        else:
            taken = []
            while at < past and (len(taken) < most or self._offsets[at] in self._aborted):
                if self._offsets[at] not in self._aborted:
                    taken.append(self._records[at])
                at += 1
        return taken, self._offsets[at] if at < past else end

    def spoiled_at(self, position: int) -> Spoiled | None:
        """What cannot be read where a reader stands."""
        return next((one for one in self.spoiled if one.first <= position < one.until), None)

    def offset_at(self, time_ms: int, committed: bool = False) -> int | None:
        """The offset of the first record at or after a time.

        It may be part of an aborted transaction. Source: Kafka's ``ListOffsets``, which only looks
        at the end.
        """
        later = (
            one.offset
            for one in self._records
            if one.timestamp is not None and one.timestamp >= time_ms
        )
        found = next(later, None)
        return found if found is not None and found < self.end_for(committed) else None

    def _keep(self, records: list[StoredRecord]) -> None:
        self._records = records
        self._offsets = [record.offset for record in records]
