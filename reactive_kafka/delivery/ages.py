"""How old records are when handlers get them, and when they are settled: counted as they leave their window."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reactive_kafka.clock import Clock
from reactive_kafka.commit.window import NOT_STARTED
from reactive_kafka.observe.facts import AGE_BUCKETS_S, DurationHistogram, age_histogram
from reactive_kafka.records import RawRecord

STEP = 32
"""So many consecutive records of one poll go by the timestamp of the first of them: each one's would cost 30 ns."""


@dataclass(slots=True)
class RecordTimes:
    """Of one channel, through all of its sessions."""

    ages: DurationHistogram = field(default_factory=age_histogram)  # from the timestamp to the settlement
    delays: DurationHistogram = field(default_factory=age_histogram)  # from the timestamp to the handler


class _Piece(NamedTuple):
    first: int  # arrival number
    until: int
    stamps: list[int]  # the timestamps of each STEP-th record, in milliseconds since the epoch


class Ages:
    """The timestamps of the records in one partition's window."""

    __slots__ = ("_clock", "_pieces", "_to")

    def __init__(self, times: RecordTimes, clock: Clock) -> None:
        self._to = times
        self._clock = clock
        self._pieces: deque[_Piece] = deque()

    def came(self, first: int, records: Sequence[RawRecord]) -> None:
        """Records were delivered, the first with arrival number *first*."""
        stamps = [-1 if (stamp := record.timestamp) is None else stamp for record in records[::STEP]]
        self._pieces.append(_Piece(first, first + len(records), stamps))

    def passed(self, first: int, started: Sequence[float], count: int) -> None:
        """The first *count* records of the window leave it: all of them are settled.

        *first* is the arrival number of the first, and *started* are the moments at which handlers got them.
        """
        pieces, until = self._pieces, first + count
        wall = self._clock.wall()
        epoch = wall - self._clock.monotonic()  # of the monotonic clock
        while pieces and pieces[0].first < until:
            piece = pieces[0]
            low, high = max(piece.first, first), min(piece.until, until)
            if low < high:
                self._count(piece, low, high, started, first, wall, epoch)
            if piece.until > until:
                return
            pieces.popleft()

    def _count(
        self, piece: _Piece, low: int, high: int, started: Sequence[float], base: int, wall: float, epoch: float
    ) -> None:
        """Count the records *low* up to *high*: all at once, if the first and the last are of the same buckets."""
        last = high - 1
        begin, end = (low - piece.first) // STEP, (last - piece.first) // STEP
        stamp, began = piece.stamps[begin], started[low - base]
        if begin != end:
            other, ended = piece.stamps[end], started[last - base]
            if (
                bisect_left(AGE_BUCKETS_S, wall - stamp / 1000) != bisect_left(AGE_BUCKETS_S, wall - other / 1000)
                or bisect_left(AGE_BUCKETS_S, began + epoch - stamp / 1000)
                != bisect_left(AGE_BUCKETS_S, ended + epoch - other / 1000)
                or (stamp < 0) != (other < 0)
                or (began == NOT_STARTED) != (ended == NOT_STARTED)
            ):
                middle = piece.first + (begin + end + 1) // 2 * STEP
                self._count(piece, low, middle, started, base, wall, epoch)
                self._count(piece, middle, high, started, base, wall, epoch)
                return
        if stamp < 0:
            return
        count, since = high - low, stamp / 1000  # another machine's clock may be ahead of ours
        self._to.ages.observe(max(0.0, wall - since), count)
        if began != NOT_STARTED:
            self._to.delays.observe(max(0.0, began + epoch - since), count)
