"""The sizes of the records in a tracker's window. No I/O, no clock."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import compress

from reactive_kafka.records import RawRecord, size_of


class RecordSizes:
    """Arrival number -> bytes of a record, for the records of one window.

    It exists only where a channel has a bound in bytes.
    """

    __slots__ = ("_base", "_sizes")

    def __init__(self, base: int) -> None:
        # The arrival number of the first record that is kept.
        self._base = base
        self._sizes: array[int] = array("q")

    def came(self, records: Iterable[RawRecord]) -> None:
        """Add records that arrived behind the last one."""
        self._sizes.extend(map(size_of, records))

    def forget_before(self, base: int) -> None:
        """Forget the records before this arrival number: they have left the window."""
        if base > self._base:
            del self._sizes[: base - self._base]
            self._base = base

    def of(self, first: int, count: int) -> array[int]:
        """Return the bytes of *count* records from arrival number *first* on."""
        place = first - self._base
        return self._sizes[place : place + count]

    def selected(self, first: int, selectors: Sequence[int]) -> int:
        """Return the bytes of the records whose selector is true, from number *first* on."""
        return sum(compress(self.of(first, len(selectors)), selectors))
