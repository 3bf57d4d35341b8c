"""How old records are when handlers get them, and when they are settled: every one counts, about
right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reactive_kafka.delivery.ages import Ages, RecordTimes
from reactive_kafka.observe.facts import AGE_BUCKETS_S, DurationHistogram
from reactive_kafka.records import RawRecord
from reactive_kafka.testing import FakeClock, record
from tests.tracking.values import tracker_of

AGES_S = st.sampled_from([0.0, 0.001, 0.02, 0.3, 7.0, 4000.0, 200_000.0]) | st.floats(-10, 1e6)
WALL = 1_700_000_000.0


class Timed:
    """A tracker of records with these ages at the start, on a clock that a test turns."""

    def __init__(self, *pieces: list[float]) -> None:
        self.clock, self.times = FakeClock(100.0, WALL), RecordTimes()
        self.tracker = tracker_of()
        self.tracker.ages = Ages(self.times, self.clock)
        for ages in pieces:
            first, at = (
                self.tracker.position,
                range(self.tracker.position, self.tracker.position + len(ages)),
            )
            records: list[RawRecord] = [
                record(offset=offset, timestamp=round((WALL - age) * 1000))
                for offset, age in zip(at, ages, strict=True)
            ]
            self.tracker.deliver(at, at.stop)
            self.tracker.ages.came(first, records)

    def settle(self, first: int, count: int, *, start: bool = True) -> None:
        if start:
            self.tracker.start_range(first, count, self.clock.monotonic())
        self.tracker.settle_range(first, first + count)
        self.tracker.compact()


def buckets(histogram: DurationHistogram) -> dict[int, int]:
    return {at: count for at, count in enumerate(histogram.counts) if count}


def bucket(age_s: float) -> int:
    return bisect_left(AGE_BUCKETS_S, max(0.0, age_s))


@given(st.lists(st.lists(AGES_S, min_size=1, max_size=90), min_size=1, max_size=4), st.data())
def test_each_record_counts_once_in_whatever_order_they_are_settled(
    pieces: list[list[float]], data: st.DataObject
) -> None:
    timed = Timed(*pieces)
    every = sum(map(len, pieces))
    for index in data.draw(st.permutations(range(every))):
        timed.settle(index, 1)
    assert sum(timed.times.ages.counts) == sum(timed.times.delays.counts) == every


@given(st.floats(0, 1e5), st.floats(0, 100), st.integers(1, 300))
@example(newest=0.099609375, each=0.1, count=105)
def test_records_of_a_poll_lie_evenly_between_the_first_and_the_last(
    newest: float, each: float, count: int
) -> None:
    ages = [newest + each * number for number in reversed(range(count))]
    timed = Timed(ages)
    timed.settle(0, count)
    first, last = (round((WALL - age) * 1000) / 1000 for age in (ages[0], ages[-1]))
    between = [first + (last - first) * number / max(1, count - 1) for number in range(count)]
    expected = Counter(bucket(WALL - stamp) for stamp in between)
    found = buckets(timed.times.ages)
    # An age that stands on the bound of a bucket may be counted on either side of it.
    on_bounds = sum(
        abs(WALL - stamp - bound) < 1e-5 for stamp in between for bound in AGE_BUCKETS_S
    )
    assert sum(found.values()) == count
    assert sum(abs(found.get(at, 0) - expected[at]) for at in {*found, *expected}) <= 2 * on_bounds


def test_a_delay_ends_when_the_handler_gets_the_record_and_an_age_when_it_is_settled() -> None:
    timed = Timed([2.0])
    timed.clock.advance(1.0)
    timed.tracker.start_range(0, 1, timed.clock.monotonic())
    timed.clock.advance(10.0)
    timed.settle(0, 1, start=False)
    assert (timed.times.delays.sum_s, timed.times.ages.sum_s) == (3.0, 13.0)


@given(st.lists(st.floats(0, 1000), min_size=2, max_size=5), st.booleans(), st.data())
def test_a_delay_stays_what_it_was_however_long_clocks_stand_after_it(
    waits_s: list[float], in_run: bool, data: st.DataObject
) -> None:
    timed = Timed([2.0] * len(waits_s))
    tracker, clock = timed.tracker, timed.clock
    if in_run:
        tracker.begin_run(0, clock.monotonic())
    started_s = 0.0
    for index, wait_s in enumerate(waits_s):
        delay_s = clock.monotonic() - 100.0
        if in_run:
            tracker.run_at, tracker.run_since = index, clock.monotonic()
        else:
            tracker.start_range(index, 1, clock.monotonic())
        for _ in range(data.draw(st.integers(0, 2))):
            tracker.stop_clock([index], clock.monotonic())
            clock.advance(wait_s)
            tracker.start_clock([index], clock.monotonic())
        if in_run and data.draw(st.booleans()):
            # Its handler has failed, and is called again in place after a while.
            tracker.end_run(index, tracker.run_since)
            tracker.stop_clock([index], clock.monotonic())
            clock.advance(wait_s)
            tracker.start_clock([index], clock.monotonic())
            tracker.settle(index)
            tracker.begin_run(index + 1, clock.monotonic())
        elif in_run:
            tracker.end_run(index + 1)
            tracker.begin_run(index + 1, clock.monotonic())
        if data.draw(st.booleans()):
            tracker.deliver([tracker.position], 0)
        tracker.compact()
        started_s += 2.0 + delay_s
    for index in range(len(waits_s)):
        tracker.settle(index)
        # What leaves the window at once may be counted as one.
        tracker.compact()
    assert timed.times.delays.sum_s == pytest.approx(started_s, abs=0.01)


def test_what_is_settled_behind_an_unsettled_record_counts_with_it() -> None:
    timed = Timed([1.0, 1.0])
    timed.settle(1, 1)
    assert sum(timed.times.ages.counts) == 0
    timed.settle(0, 1)
    assert sum(timed.times.ages.counts) == 2


def test_a_timestamp_in_the_future_is_no_age_and_a_record_without_one_counts_nowhere() -> None:
    timed = Timed([-60.0])
    timed.settle(0, 1)
    assert (timed.times.ages.sum_s, buckets(timed.times.ages)) == (0.0, {0: 1})
    without = Timed([WALL + 1])
    without.settle(0, 1)
    assert buckets(without.times.ages) == {}


def test_what_no_handler_got_has_an_age_and_no_delay() -> None:
    timed = Timed([1.0])
    timed.settle(0, 1, start=False)
    assert (sum(timed.times.ages.counts), sum(timed.times.delays.counts)) == (1, 0)


def test_a_run_is_timed_from_its_begin() -> None:
    timed = Timed([5.0] * 100)
    tracker = timed.tracker
    tracker.begin_run(0, timed.clock.monotonic())
    timed.clock.advance(1.0)
    tracker.run_at, tracker.run_since = 100, timed.clock.monotonic()
    tracker.end_run(100)
    tracker.compact()
    assert timed.times.delays.sum_s == 500.0
    assert timed.times.ages.sum_s == 600.0


def test_an_assignment_that_ends_has_counted_what_was_settled_in_order() -> None:
    timed = Timed([1.0, 1.0, 1.0])
    timed.tracker.start_range(0, 3, timed.clock.monotonic())
    timed.tracker.settle(0)
    timed.tracker.settle(2)
    timed.tracker.close()
    assert sum(timed.times.ages.counts) == 1
