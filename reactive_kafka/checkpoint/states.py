"""The states of one partition: what its records have set, and which state belongs to which position. No I/O.

A state takes effect with its record's ack. With a position goes the state that the highest record before it has set, so
a state is never ahead of its position. All states are encoded text; None is no state.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import NamedTuple


class _Set(NamedTuple):
    arrival: int
    """The record's number in its tracker."""
    text: str | None


class States:
    """What the records of one partition have set since its row was claimed.

    Args:
        base: The state of the row, or where reading restarts before that.
    """

    def __init__(self, base: str | None) -> None:
        self._base = base
        self._offsets: list[int] = []  # of records that have set something, ascending
        self._sets: dict[int, _Set] = {}
        self._batch: range = range(0)
        self._start = -1  # what records before it have set counts: they were settled before reading restarted

    def restart(self, position: int) -> None:
        """Reading starts elsewhere. All records before *position* are settled; what others have set is void."""
        # What is kept serves a second seek, which may lead back behind the first but not behind what the store has.
        self._forget(slice(bisect_left(self._offsets, position), None))
        self._batch, self._start = range(0), position

    def begin(self, offsets: Sequence[int]) -> None:
        """A handler is called with these records, ascending: what an earlier call has set for them is void.

        Each record of a batch sees what those before it in the batch have set.
        """
        for offset in offsets:
            self.drop(offset)
        self._batch = range(offsets[0], offsets[-1] + 1)

    def set(self, offset: int, index: int, text: str | None) -> None:
        """Set the state from the record at *offset* on."""
        if offset not in self._sets:
            insort(self._offsets, offset)
        self._sets[offset] = _Set(index, text)

    def drop(self, offset: int) -> None:
        """Forget what a record has set: it was nacked, or is handled again."""
        if self._sets.pop(offset, None) is not None:
            del self._offsets[bisect_left(self._offsets, offset)]

    def get(self, offset: int, is_open: Callable[[int], bool]) -> str | None:
        """The state that the record at *offset* sees: its own, else that of the nearest record before it that counts.

        Args:
            is_open: Whether the record with an arrival number has no verdict yet; nacked ones were dropped.
        """
        if offset in self._sets:
            return self._sets[offset].text
        for at in range(bisect_left(self._offsets, offset) - 1, -1, -1):
            before = self._offsets[at]
            is_before_in_batch = offset in self._batch and before in self._batch
            if before < self._start or is_before_in_batch or not is_open(self._sets[before].arrival):
                return self._sets[before].text
        return self._base

    def at(self, position: int) -> str | None:
        """The state to store with a position, before which every record is settled."""
        at = bisect_left(self._offsets, position) - 1
        return self._base if at < 0 else self._sets[self._offsets[at]].text

    def stored(self, position: int) -> None:
        """The store has *position*: what was set before it becomes the base."""
        self.found(position, self.at(position))

    def found(self, position: int, text: str | None) -> None:
        """The store has *position* with this state."""
        self._base = text
        self._forget(slice(bisect_left(self._offsets, position)))

    def _forget(self, which: slice) -> None:
        for offset in self._offsets[which]:
            del self._sets[offset]
        del self._offsets[which]
