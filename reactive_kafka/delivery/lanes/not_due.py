"""Records of a retry topic that are not due yet. Pure."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

from reactive_kafka.records import RawRecord


class NotDue:
    """The records of one partition that wait until they are due; ``len`` counts them."""

    __slots__ = ("_due", "_latest")

    def __init__(self) -> None:
        # A heap of (due, arrival number, record).
        self._due: list[tuple[float, int, RawRecord]] = []
        self._latest = -inf

    def hold(self, record: RawRecord, index: int, due: float, *, in_order: bool = False) -> None:
        """Keep a record until *due*; with *in_order* at least as long as those held before it."""
        if in_order:
            due = max(due, self._latest)
            self._latest = due
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
        for place, (_, held, record) in enumerate(self._due):
            if held == index:
                del self._due[place]
                heapify(self._due)
                return record
        return None

    @property
    def next(self) -> float | None:
        """When the next record is due; None if none is held."""
        return self._due[0][0] if self._due else None

    def clear(self) -> None:
        """Forget all records."""
        self._due.clear()

    def __len__(self) -> int:
        return len(self._due)
