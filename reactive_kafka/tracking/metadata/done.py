"""What is done of a partition above its position, kept up from one tick to the next. No I/O, no
clock.

A record that is settled stays settled, and one that comes is numbered behind all others. So the
open ones are those that were open the last time, as far as they still are, and those among what has
come since. The window is known in pieces: one that is settled as a whole is never looked at again,
and the numbers of another are only gone through again where it has fewer open records than before.
That takes one count in C, and no note is made when a record is settled.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain, compress
from operator import itemgetter

from reactive_kafka.tracking.metadata.acks import MOST_OPEN
from reactive_kafka.tracking.tracker import NOT_SETTLED, SETTLED, OffsetTracker

_SETTLED = bytes([SETTLED])


class KnownDone:
    """The open records of one tracker, as many as a text has room for; every other one up to the
    last is done.
    """

    __slots__ = ("_most", "_piece", "_pieces", "_seen", "tracker")

    def __init__(self, tracker: OffsetTracker, *, most: int = MOST_OPEN, piece: int = 4096) -> None:
        self.tracker = tracker
        # Open records that a text has room for; records of a piece.
        self._most = most
        self._piece = piece
        # Ascending; those in which something was open.
        self._pieces: list[_Piece] = []
        # Arrival number: all records before it were looked at.
        self._seen = 0

    def above(self, position: int) -> tuple[list[int], int]:
        """The offsets from a position on that are not done, ascending, and where (exclusive) the
        last done one ends.

        That is how it was at the last :meth:`look` for this position. Everything else before the
        end is done, what was kept of an earlier assignment among it. Nothing is known where records
        behind the position were never read. Where more are open than a text has room for, the first
        of them are told: more of them than there is room for.
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
        """Find out what is open from a position on, as much of it as a text has room for."""
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
        """The tracker's own count of settled records, at the last look: nothing else moves what is
        done.
        """
        tracker = self.tracker
        seen = self._seen - self.tracker.base
        still_open = sum(len(piece.places) for piece in self._pieces)
        return tracker.settled_before + seen - still_open + tracker.flags.count(SETTLED, seen)

    def _until(self) -> int:
        """Where the last record ends that is known to be done."""
        tracker = self.tracker
        last = tracker.flags.rfind(SETTLED)
        until = tracker.offset_of(tracker.base + last) + 1 if last >= 0 else tracker.safe
        return until if tracker.kept is None else max(until, tracker.kept.until)


class _Piece:
    """The open ones among records that came one after the other: which of them, and their
    offsets.
    """

    __slots__ = ("first", "offsets", "places", "until")

    def __init__(self, first: int) -> None:
        # Arrival numbers.
        self.first = self.until = first
        # From the first on.
        self.places: list[int] = []
        self.offsets: list[int] = []

    def count_from(self, position: int) -> int:
        """How many of the offsets are not before a position."""
        return len(self.offsets) - bisect_left(self.offsets, position)

    def extend(self, tracker: OffsetTracker, until: int) -> None:
        """Look at the records that have come since, up to this arrival number (exclusive)."""
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
        """Forget what was settled since; whether something is left."""
        first = max(self.first - tracker.base, 0)
        until = self.until - tracker.base
        count = until - first - tracker.flags.count(SETTLED, first, until) if until > first else 0
        # So there are two or more.
        if 0 < count < len(self.places):
            # What was let go is done.
            flags = tracker.flags[first:until].rjust(self.until - self.first, _SETTLED)
            are_open = bytes(itemgetter(*self.places)(flags)).translate(NOT_SETTLED)
            self.places = list(compress(self.places, are_open))
            self.offsets = list(compress(self.offsets, are_open))
        return count > 0
