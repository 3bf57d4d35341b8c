"""How old records are when handlers get them, and when they are settled.

Nothing is timed record by record. Of each poll only the first and the last timestamp are kept, and
those of the others are taken to lie evenly between: to ask each record would cost 30 ns. Records
are counted as they leave their window, in ranges. A range counts at once if its ends are of the
same bucket. Workers have records leave the window after each stretch and before they rest, and the
channel does so ten times a second, so a time is late by 0.1 s at most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reactive_kafka.clock import Clock
from reactive_kafka.observe.facts import AGE_BUCKETS_S, DurationHistogram, age_histogram
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import NOT_STARTED


@dataclass(slots=True)
class RecordTimes:
    """The ages of one channel's records, through all of its sessions."""

    # From the timestamp of a record to its settlement.
    ages: DurationHistogram = field(default_factory=age_histogram)
    # From the timestamp of a record to its handler.
    delays: DurationHistogram = field(default_factory=age_histogram)


class _Poll(NamedTuple):
    """Records of one partition that came in one poll."""

    # The arrival number of the first record, and that after the last one.
    begin: int
    end: int
    # The first and the last timestamp, in milliseconds since the epoch.
    first_ms: int
    last_ms: int

    @property
    def step_s(self) -> float:
        """By how much each next record is younger, in seconds."""
        if self.end - self.begin < 2:
            return 0.0
        return (self.last_ms - self.first_ms) / (self.end - self.begin - 1) / 1000


class Ages:
    """The timestamps of the records in one partition's window."""

    __slots__ = ("_clock", "_polls", "_times")

    def __init__(self, times: RecordTimes, clock: Clock) -> None:
        self._times = times
        self._clock = clock
        self._polls: deque[_Poll] = deque()

    def came(self, first: int, records: Sequence[RawRecord]) -> None:
        """Note records that were delivered, the first with arrival number *first*."""
        first_ms = records[0].timestamp
        last_ms = records[-1].timestamp
        if first_ms is not None and last_ms is not None:
            self._polls.append(_Poll(first, first + len(records), first_ms, last_ms))

    def passed(self, first: int, started: Sequence[float], count: int) -> None:
        """Count the first *count* records of the window, which leave it: all are settled.

        Args:
            first: The arrival number of the first record in the window.
            started: When handlers got them, by the monotonic clock; there may be more behind them.
        """
        until = first + count
        now = self._clock.wall()
        # The wall-clock time at which the monotonic clock was 0.
        monotonic_start = now - self._clock.monotonic()
        while self._polls and self._polls[0].begin < until:
            poll = self._polls[0]
            low = max(poll.begin, first)
            high = min(poll.end, until)
            # Records without a timestamp of their own have -1.
            if low < high and poll.first_ms >= 0:
                step_s = poll.step_s
                timestamp = poll.first_ms / 1000 + (low - poll.begin) * step_s
                moments = _Moments(now, monotonic_start, started)
                self._count(low - first, high - first, timestamp, step_s, moments)
            if poll.end > until:
                return
            self._polls.popleft()

    def _count(
        self, low: int, high: int, timestamp: float, step_s: float, moments: _Moments
    ) -> None:
        """Count the records *low* up to *high* of the window.

        Args:
            timestamp: That of the first record, in seconds.
            step_s: By how much each next record's timestamp is later.
        """
        last = high - 1
        age = moments.now - timestamp
        started = moments.started[low]
        delay = started + moments.monotonic_start - timestamp
        if last > low:
            last_timestamp = timestamp + (last - low) * step_s
            last_age = moments.now - last_timestamp
            last_started = moments.started[last]
            last_delay = last_started + moments.monotonic_start - last_timestamp
            is_uniform = (
                _in_same_bucket(age, last_age)
                and (started == NOT_STARTED) == (last_started == NOT_STARTED)
                and _in_same_bucket(delay, last_delay)
            )
            if not is_uniform:
                middle = (low + high) // 2
                middle_timestamp = timestamp + (middle - low) * step_s
                self._count(low, middle, timestamp, step_s, moments)
                self._count(middle, high, middle_timestamp, step_s, moments)
                return
        # The clock of another machine may be ahead of ours.
        self._times.ages.observe(max(0.0, age), high - low)
        if started != NOT_STARTED:
            self._times.delays.observe(max(0.0, delay), high - low)


class _Moments(NamedTuple):
    """Times that a count needs, by the wall clock and by the monotonic clock."""

    now: float
    monotonic_start: float
    started: Sequence[float]


def _in_same_bucket(age: float, other: float) -> bool:
    """Return whether two ages are of the same bucket."""
    bucket = bisect_left(AGE_BUCKETS_S, age)
    if bucket > 0 and other <= AGE_BUCKETS_S[bucket - 1]:
        return False
    return bucket == len(AGE_BUCKETS_S) or other <= AGE_BUCKETS_S[bucket]
