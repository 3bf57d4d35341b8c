"""``rate_limit``: in no time start more records than it allows, and all of them start."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.clock import Clock
from reactive_kafka.delivery.lanes.limits import StartLimit, TokenBucket

RATES = st.sampled_from([1 / 3600, 0.1, 1.0, 3.0, 100.0, 12_345.6, 1e6])
WAITS = st.lists(st.floats(0, 10) | st.just(0.0) | st.just(1e5), min_size=1, max_size=60)
# Times are floats: of an hour's worth no more than a second is uncertain.
NEAR = 1 + 1e-4


def as_fast_as_it_may(bucket: TokenBucket, waits: list[float]) -> list[float]:
    """When records start that come after these waits, one after the other, as soon as the bucket
    lets them.
    """
    starts, now = [], 1e6
    for wait in waits:
        now = max(now + wait, bucket.ready_at)
        bucket.take(1, now)
        starts.append(now)
    return starts


@given(RATES, WAITS)
def test_in_any_time_no_more_records_start_than_the_rate_and_its_burst_allow(
    rate: float, waits: list[float]
) -> None:
    starts = as_fast_as_it_may(TokenBucket(rate), waits)
    burst = max(1.0, rate)
    for first, since in enumerate(starts):
        for last in range(first, len(starts)):
            assert last - first + 1 <= (rate * (starts[last] - since) + burst) * NEAR


@given(RATES, WAITS)
def test_no_record_waits_longer_than_those_before_it_explain(
    rate: float, waits: list[float]
) -> None:
    came, starts = 1e6, as_fast_as_it_may(TokenBucket(rate), waits)
    for number, (wait, start) in enumerate(zip(waits, starts, strict=True), 1):
        came = max(came, starts[number - 2] if number > 1 else came) + wait
        assert start <= came + number / rate * NEAR


@pytest.mark.parametrize(
    ("rate", "at_once"), [(1 / 3600, 1), (0.5, 1), (1.0, 1), (2.5, 2), (100.0, 100), (1e6, 10**6)]
)
def test_the_burst_is_what_a_second_brings_and_one_record_at_least(
    rate: float, at_once: int
) -> None:
    bucket, started = TokenBucket(rate), 0
    while bucket.ready_at <= 0.0 and started < at_once + 1:
        bucket.take(1, 0.0)
        started += 1
    assert started == at_once
    assert bucket.ready_at <= max(1.0, 1 / rate)


@given(RATES, st.lists(st.integers(1, 10**6), min_size=2, max_size=20))
def test_what_starts_as_a_whole_is_followed_by_a_pause_that_it_is_worth(
    rate: float, sizes: list[int]
) -> None:
    bucket, starts = TokenBucket(rate), list[float]()
    for size in sizes:
        now = max(0.0, bucket.full_at)
        bucket.take(size, now)
        starts.append(now)
    for size, start, after in zip(sizes, starts, starts[1:], strict=False):
        assert after - start == pytest.approx(size / rate)


@dataclass
class Now:
    at: float = 0.0

    def monotonic(self) -> float:
        return self.at


@given(
    RATES, st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 100)), min_size=2, max_size=20)
)
def test_what_starts_later_than_it_was_taken_counts_from_its_start(
    rate: float, taken: list[tuple[int, float]]
) -> None:
    now, starts = Now(), list[float]()
    limit = StartLimit(TokenBucket(rate), cast(Clock, now), lambda: None)
    for size, waits_s in taken:
        now.at = max(now.at, limit.batch_at)
        starts_with = limit.batch_taken()
        # Nothing else is taken meanwhile.
        assert limit.batch_at == inf
        now.at += waits_s
        starts_with(size)
        starts.append(now.at)
    for (size, _), start, after in zip(taken, starts, starts[1:], strict=False):
        assert (after - start) * NEAR >= size / rate


def test_a_clock_that_stood_still_and_goes_on_much_later_brings_one_burst_and_no_more() -> None:
    bucket = TokenBucket(10.0)
    for _ in range(10):
        bucket.take(1, 5.0)
    assert bucket.ready_at > 5.0
    started = 0
    while bucket.ready_at <= 1e9:
        bucket.take(1, 1e9)
        started += 1
    assert started == 10
