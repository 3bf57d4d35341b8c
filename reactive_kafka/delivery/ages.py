"""How old records are when handlers get them, and when they are settled: counted as they leave
their window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from reactive_kafka.clock import Clock
from reactive_kafka.observe.facts import AGE_BUCKETS_S, DurationHistogram, age_histogram
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import NOT_STARTED


@dataclass(slots=True)
class RecordTimes:
    """Of one channel, through all of its sessions."""

    # From the timestamp to the settlement.
    ages: DurationHistogram = field(default_factory=age_histogram)
    # From the timestamp to the handler.
    delays: DurationHistogram = field(default_factory=age_histogram)


_Piece = tuple[int, int, int, int]
"""Records of one poll: the first's arrival number, and the one behind the last; the first's and the
last's timestamp, in milliseconds since the epoch. Those of the others lie evenly between: to ask
each record would cost 30 ns."""


class Ages:
    """The timestamps of the records in one partition's window."""

    __slots__ = ("_clock", "_pieces", "_to")

    def __init__(self, times: RecordTimes, clock: Clock) -> None:
        self._to = times
        self._clock = clock
        self._pieces: deque[_Piece] = deque()

    def came(self, first: int, records: Sequence[RawRecord]) -> None:
        """Records were delivered, the first with arrival number *first*."""
        oldest = records[0].timestamp
        newest = records[-1].timestamp
        if oldest is not None and newest is not None:
            self._pieces.append((first, first + len(records), oldest, newest))

    def passed(self, first: int, started: Sequence[float], count: int) -> None:
        """The first *count* records of the window leave it: all of them are settled.

        *first* is the arrival number of the first, and *started* are the moments at which handlers
        got them.
        """
        pieces = self._pieces
        until = first + count
        wall = self._clock.wall()
        # Of the monotonic clock.
        epoch = wall - self._clock.monotonic()
        while pieces and pieces[0][0] < until:
            begin, end, oldest, newest = pieces[0]
            low = begin if begin > first else first
            high = end if end < until else until
            if low < high and oldest >= 0:
                each = 0.0 if end - begin < 2 else (newest - oldest) / (end - begin - 1) / 1000
                since = oldest / 1000 + (low - begin) * each
                self._count(low - first, high - first, since, each, started, wall, epoch)
            if end > until:
                return
            pieces.popleft()

    def _count(
        self,
        low: int,
        high: int,
        since: float,
        each: float,
        started: Sequence[float],
        wall: float,
        epoch: float,
    ) -> None:
        """Count the records *low* up to *high* of the window: at once, if the first and the last
        are of one bucket.

        *since* is the timestamp of the first, in seconds, and each next one's is later by *each*.
        """
        last = high - 1
        behind = since + (last - low) * each
        age = wall - since
        began = started[low]
        ended = started[last]
        delay = began + epoch - since
        if last > low and not (
            _alike(age, wall - behind)
            and (began == NOT_STARTED) == (ended == NOT_STARTED)
            and _alike(delay, ended + epoch - behind)
        ):
            middle = (low + high) // 2
            self._count(low, middle, since, each, started, wall, epoch)
            self._count(middle, high, since + (middle - low) * each, each, started, wall, epoch)
            return
        # Another machine's clock may be ahead of ours.
        self._to.ages.observe(age if age > 0.0 else 0.0, high - low)
        if began != NOT_STARTED:
            self._to.delays.observe(delay if delay > 0.0 else 0.0, high - low)


def _alike(one: float, other: float) -> bool:
    """Whether two ages are of the same bucket."""
    at = bisect_left(AGE_BUCKETS_S, one)
    return (not at or AGE_BUCKETS_S[at - 1] < other) and (at == _MOST or other <= AGE_BUCKETS_S[at])


_MOST = len(AGE_BUCKETS_S)
