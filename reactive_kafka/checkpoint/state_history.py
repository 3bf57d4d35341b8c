"""Which state belongs to which position of one partition. States are encoded text. No I/O.

A state takes effect with the ack of its record. A position is stored with the state that the
highest record before it has set, so a state is never ahead of its position. None is no state.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import NamedTuple


class _SetState(NamedTuple):
    # The record's number in its tracker.
    arrival: int
    text: str | None


class StateHistory:
    """The states that the records of one partition have set since the partition's row was claimed.

    Args:
        base: The state in the row, or the one at the position where reading restarts.
    """

    def __init__(self, base: str | None) -> None:
        self._base = base
        # Offsets of the records that have set a state, ascending.
        self._offsets: list[int] = []
        self._set_states: dict[int, _SetState] = {}
        # Offsets of the batch that a handler is called with.
        self._batch: range = range(0)
        # States set by records before this offset count: the records were settled before reading
        # restarted here.
        self._start = -1
        # The handler that runs may have seen a state that an earlier record has changed since.
        self.is_outdated = False

    def restart(self, position: int) -> None:
        """Read on from *position*: all records before it are settled, later states are void."""
        # The states before it are kept for a second seek. That one may lead back behind the first,
        # but not behind what the store has.
        self._forget(slice(bisect_left(self._offsets, position), None))
        self._batch = range(0)
        self._start = position

    def begin(self, offsets: Sequence[int]) -> None:
        """Drop what an earlier call has set for these records: a handler is called with them.

        Each record of a batch sees what the records before it in the batch have set.

        Args:
            offsets: The records' offsets, ascending.
        """
        self.is_outdated = False
        for offset in offsets:
            self.drop(offset)
        self._batch = range(offsets[0], offsets[-1] + 1)

    def set(self, offset: int, arrival: int, text: str | None) -> None:
        """Set the state from the record at *offset* on."""
        if offset not in self._set_states:
            insort(self._offsets, offset)
        self._set_states[offset] = _SetState(arrival, text)

    def drop(self, offset: int) -> None:
        """Forget the state of a record that was nacked or is handled again."""
        if self._set_states.pop(offset, None) is not None:
            del self._offsets[bisect_left(self._offsets, offset)]

    def get(self, offset: int, is_open: Callable[[int], bool]) -> str | None:
        """Return the state that the record at *offset* sees.

        It is its own, or else that of the nearest record before it that counts. A record counts if
        it is settled, or is in the same batch.

        Args:
            offset: The record's offset.
            is_open: Returns for an arrival number whether the record has no verdict yet. Nacked
                records have been dropped.
        """
        own = self._set_states.get(offset)
        if own is not None:
            return own.text
        for place in range(bisect_left(self._offsets, offset) - 1, -1, -1):
            earlier = self._offsets[place]
            set_state = self._set_states[earlier]
            is_in_same_batch = offset in self._batch and earlier in self._batch
            if earlier < self._start or is_in_same_batch or not is_open(set_state.arrival):
                return set_state.text
        return self._base

    def at_position(self, position: int) -> str | None:
        """Return the state to store with *position*, before which every record is settled."""
        place = bisect_left(self._offsets, position) - 1
        if place < 0:
            return self._base
        return self._set_states[self._offsets[place]].text

    def stored(self, position: int) -> None:
        """Note that the store has *position* with its state."""
        self.found(position, self.at_position(position))

    def found(self, position: int, text: str | None) -> None:
        """Note that the store has *position* with the state *text*, which becomes the base."""
        self._base = text
        self._forget(slice(bisect_left(self._offsets, position)))

    def found_late(self, position: int, text: str | None) -> None:
        """As :meth:`found`, for a position before the place where reading restarted.

        At the restart it was not known that the store had it.
        """
        self.is_outdated = True
        self.found(position, text)

    def _forget(self, places: slice) -> None:
        for offset in self._offsets[places]:
            del self._set_states[offset]
        del self._offsets[places]
