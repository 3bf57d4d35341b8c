"""Remembers which records above a position are open, from one tick to the next. No I/O, no clock.

A settled record stays settled, and a new record is numbered after all others. So the open records
are those that were open the last time and still are, and open ones among the new records. The
window is known in pieces: a piece that is settled as a whole is never looked at again, and another
one is looked through only if it has fewer open records than before. That takes one count in C for
each piece, and nothing is noted when a record is settled.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain, compress
from operator import itemgetter

from reactive_kafka.tracking.metadata.acks import MOST_OPEN
from reactive_kafka.tracking.tracker import NOT_SETTLED, SETTLED, OffsetTracker

_SETTLED = bytes([SETTLED])


class KnownDone:
    """The open records of one tracker, as many as a text has room for.

    Args:
        most: The number of open records that a text has room for.
        piece: Records of a piece.
    """

    __slots__ = ("_most", "_piece", "_pieces", "_seen", "tracker")

    def __init__(self, tracker: OffsetTracker, *, most: int = MOST_OPEN, piece: int = 4096) -> None:
        self.tracker = tracker
        self._most = most
        self._piece = piece
        # The pieces in which something was open, ascending.
        self._pieces: list[_Piece] = []
        # All records before this arrival number were looked at.
        self._seen = 0

    def above(self, position: int) -> tuple[list[int], int]:
        """The open offsets from a position on, ascending, and where (exclusive) the last done ends.

        It is what the last :meth:`look` for this position has found. Every other offset before the
        end is done; the acks kept of an earlier assignment count. Nothing is known where records
        behind the position were never read. If more are open than a text has room for, the first of
        them are returned, at least one more than there is room for.
        """
        tracker = self.tracker
        until = self._until()
        if position < tracker.start or until <= position:
            return [], position
        found = list(chain.from_iterable(piece.offsets for piece in self._pieces))
        is_whole = self._seen == tracker.base + len(tracker.flags)
        if is_whole and tracker.kept is not None:
            found.extend(tracker.kept.open_between(tracker.position, until))
        return found[bisect_left(found, position) : bisect_left(found, until)], until

    def look(self, position: int) -> None:
        """Find the open records from a position on, as many as a text has room for."""
        tracker = self.tracker
        tracker.compact()
        base = tracker.base
        end = tracker.base + len(tracker.flags)
        self._pieces = [piece for piece in self._pieces if piece.has_open(tracker)]
        self._seen = max(self._seen, base)
        count = sum(piece.count_from(position) for piece in self._pieces)
        while self._seen < end and count <= self._most:
            last = self._pieces[-1] if self._pieces else None
            if last is None or last.until < self._seen or last.until - last.first >= self._piece:
                last = _Piece(self._seen)
                self._pieces.append(last)
            before = last.count_from(position)
            self._seen = min(last.first + self._piece, end)
            last.extend(tracker, self._seen)
            count += last.count_from(position) - before
            if not last.places:
                self._pieces.pop()

    @property
    def settled(self) -> int:
        """The number of settled records at the last look: only with it the done records change."""
        tracker = self.tracker
        seen = self._seen - self.tracker.base
        still_open = sum(len(piece.places) for piece in self._pieces)
        return tracker.settled_before + seen - still_open + tracker.flags.count(SETTLED, seen)

    def _until(self) -> int:
        """The offset after the last record that is known to be done."""
        tracker = self.tracker
        last = tracker.flags.rfind(SETTLED)
        until = tracker.offset_of(tracker.base + last) + 1 if last >= 0 else tracker.safe
        return until if tracker.kept is None else max(until, tracker.kept.until)


class _Piece:
    """The open ones among records that were numbered one after the other."""

    __slots__ = ("first", "offsets", "places", "until")

    def __init__(self, first: int) -> None:
        # Arrival numbers: from the first up to *until* (exclusive).
        self.first = first
        self.until = first
        # The places of the open records, counted from the first, and their offsets.
        self.places: list[int] = []
        self.offsets: list[int] = []

    def count_from(self, position: int) -> int:
        """How many open offsets are not before a position."""
        return len(self.offsets) - bisect_left(self.offsets, position)

    def extend(self, tracker: OffsetTracker, until: int) -> None:
        """Look at the records up to this arrival number (exclusive) that have come since."""
        since = self.until
        self.until = until
        flags = tracker.flags[since - tracker.base : until - tracker.base]
        if flags.count(SETTLED) < len(flags):
            places = list(compress(range(len(flags)), flags.translate(NOT_SETTLED)))
            runs = list(tracker.offsets.ranges(since, until))
            offsets = runs[0] if len(runs) == 1 else list(chain.from_iterable(runs))
            self.places.extend(
                map(range(since - self.first, until - self.first).__getitem__, places)
            )
            self.offsets.extend(map(offsets.__getitem__, places))

    def has_open(self, tracker: OffsetTracker) -> bool:
        """Forget the records that were settled since; returns whether an open one is left."""
        first = max(self.first - tracker.base, 0)
        until = self.until - tracker.base
        count = until - first - tracker.flags.count(SETTLED, first, until) if until > first else 0
        # There are two or more places then, which itemgetter needs to return a tuple.
        if 0 < count < len(self.places):
            # Records that have left the window are done.
            flags = tracker.flags[first:until].rjust(self.until - self.first, _SETTLED)
            are_open = bytes(itemgetter(*self.places)(flags)).translate(NOT_SETTLED)
            self.places = list(compress(self.places, are_open))
            self.offsets = list(compress(self.offsets, are_open))
        return count > 0
