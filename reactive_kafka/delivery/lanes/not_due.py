"""Records of a retry topic that are not due yet. Pure."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

from reactive_kafka.records import RawRecord

_Held = tuple[float, int, RawRecord]
_NEVER = -inf


class NotDue:
    """The records of one partition that wait until they are due; ``len`` counts them."""

    __slots__ = ("_due", "_latest")

    def __init__(self) -> None:
        # A heap of (due, arrival number, record). Only partitions of retry topics ever have one.
        self._due: list[_Held] | tuple[()] = ()
        # When the last record that was held in order is due.
        self._latest = _NEVER

    def hold(self, record: RawRecord, index: int, due: float, *, in_order: bool = False) -> None:
        """Keep a record until *due*; with *in_order* at least as long as those held before it."""
        if in_order:
            due = max(due, self._latest)
            self._latest = due
        if not self._due:
            self._due = []
        heappush(self._due, (due, index, record))

    def take(self, now: float) -> list[tuple[RawRecord, int]]:
        """Take the records that are due by *now*, earliest first, with their arrival numbers."""
        due = []
        while self._due and self._due[0][0] <= now:
            _, index, record = heappop(self._due)
            due.append((record, index))
        return due

    def remove(self, index: int) -> RawRecord | None:
        """Forget the record with this arrival number, and return it; None: it is not held."""
        for held in self._due:
            _, number, record = held
            if number == index:
                rest = [other for other in self._due if other is not held]
                heapify(rest)
                self._due = rest
                return record
        return None

    @property
    def next(self) -> float | None:
        """When the next record is due; None if none is held."""
        return self._due[0][0] if self._due else None

    def clear(self) -> None:
        """Forget all records."""
        self._due = ()

    def __len__(self) -> int:
        return len(self._due)
